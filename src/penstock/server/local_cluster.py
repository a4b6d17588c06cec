"""A cluster on this machine: broker processes, and a ZooKeeper ensemble unless one is named.

For `penstock up --brokers N` and for tests. It starts and stops processes; it decides nothing.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Self

from penstock.config.listeners import HostPort, Listener, find_host_port
from penstock.metadata_store.zookeeper.server import ZooKeeperEnsemble
from penstock.server.broker_process import BrokerNotStarted, BrokerProcess
from penstock.server.cluster_directory import ClusterDirectory
from penstock.server.development_defaults import CLUSTER_SETTINGS

FIRST_ID = 1


class BrokerLocation(NamedTuple):
    """A broker's address, and the command prefix that gives the process this address."""

    host: str
    prefix: tuple[str, ...] = ()


class LocalCluster:
    """Broker ids count from 1; each broker has a folder and a log file below `data`. No partition
    can have a folder of that name, because a single broker may have used `data` before.

    `listeners`: those of each broker, alike in all but their addresses; clients use the one that is
    named `for_clients`, or the first. Port 0 picks a free one, which the broker keeps. `zookeeper`:
    the connect string of a running ensemble; without it `zookeepers` servers are started.
    `connect_of`: the connect string of one broker, if brokers differ. `location_of`: where a broker
    runs, if not on the host of its listeners.
    """

    def __init__(
        self,
        data: Path,
        *,
        listeners: Sequence[Sequence[Listener]],
        for_clients: str | None = None,
        zookeeper: str | None = None,
        zookeepers: int = 1,
        config: Mapping[str, str] | None = None,
        broker_configs: Mapping[int, Mapping[str, str]] | None = None,
        connect_of: Callable[[int], str] | None = None,
        location_of: Callable[[int], BrokerLocation] | None = None,
    ) -> None:
        self._directory = ClusterDirectory(data)
        self._listeners = dict(enumerate(listeners, FIRST_ID))
        names = [listener.name for listener in listeners[0]]
        self._for_clients = 0 if for_clients is None else names.index(for_clients)
        self._addresses: dict[int, str] = {}  # for clients, of brokers that were ready once
        self._connect = zookeeper
        self.ensemble = None if zookeeper else ZooKeeperEnsemble(data, zookeepers)
        self._config = dict(config or {})
        self._broker_configs = dict(broker_configs or {})
        self._connect_of = connect_of or (lambda broker_id: self.connect)
        self._location_of = location_of
        self.processes: dict[int, BrokerProcess] = {}  # started and not stopped

    @property
    def broker_ids(self) -> Sequence[int]:
        return tuple(self._listeners)

    @property
    def bootstrap_servers(self) -> str:
        """Where clients reach all brokers, including stopped ones, which may start again. Known
        once they have started."""
        return ",".join(self._addresses[broker_id] for broker_id in sorted(self._addresses))

    def find_address(self, broker_id: int, listener: str) -> str | None:
        """HOST:PORT of one of its listeners by name, once it has started."""
        for own in self._listeners[broker_id]:
            if own.name == listener:
                return f"{own.host}:{own.port}"
        return None

    @property
    def connect(self) -> str:
        """ZooKeeper's connect string, once started."""
        return self._connect or self._get_ensemble().connect

    def start(self) -> Self:
        """Returns when every broker serves. If one cannot, all that was started is killed, and
        what it has created is removed."""
        try:
            self._directory.open(self._list_paths())
            if self.ensemble is not None:
                self.ensemble.start()
            for broker_id in self.broker_ids:
                self._spawn(broker_id)
            for broker_id in self.broker_ids:
                self._wait_ready(broker_id)
        except BaseException as failure:
            self._kill_processes()
            self._directory.remove_new(failure.add_note)
            self._directory.close()
            raise
        self._directory.keep()
        return self

    def start_broker(self, broker_id: int) -> None:
        """Start a stopped broker with its data and its port."""
        if broker_id in self.processes:
            raise BrokerNotStarted(f"broker {broker_id} is running already")
        self._spawn(broker_id)
        self._wait_ready(broker_id)

    def stop(self) -> None:
        """All brokers at once, so that none moves leaderships to one that stops next; then
        ZooKeeper."""
        processes, self.processes = self.processes, {}
        for process in processes.values():
            process.resume()
            process.ask_to_stop()
        failures = [
            failure for process in processes.values() if (failure := _stop(process)) is not None
        ]
        if self.ensemble is not None:
            self.ensemble.stop()
        self._directory.close()
        if failures:
            raise ExceptionGroup("brokers did not stop cleanly", failures)

    def kill(self) -> None:
        self._kill_processes()
        self._directory.close()

    def _kill_processes(self) -> None:
        while self.processes:
            self.processes.popitem()[1].kill()
        if self.ensemble is not None:
            self.ensemble.kill()

    def take_ended(self) -> Iterator[tuple[int, BrokerProcess]]:
        """Brokers that ended without being asked to; each is returned once."""
        for broker_id, process in list(self.processes.items()):
            if process.has_ended:
                yield broker_id, self.processes.pop(broker_id)

    def folder_of(self, broker_id: int) -> Path:
        return self._directory.path / f"broker{broker_id}"

    def log_of(self, broker_id: int) -> Path:
        """The broker's log, across restarts."""
        return self._directory.path / f"broker{broker_id}.log"

    def config_of(self, broker_id: int) -> dict[str, str]:
        """The broker's config, but for zookeeper.connect, which is known when ZooKeeper runs."""
        return {
            **CLUSTER_SETTINGS,
            **self._config,
            **self._broker_configs.get(broker_id, {}),
            **self._metrics_listener_of(broker_id),
            "broker.id": str(broker_id),
            "log.dirs": str(self.folder_of(broker_id)),
            "listeners": ",".join(map(str, self._listeners[broker_id])),
        }

    def _metrics_listener_of(self, broker_id: int) -> dict[str, str]:
        """Consecutive ports from that of the config, as all brokers are on one machine."""
        text = self._config.get("metrics.listener", "")
        address = find_host_port(text)
        if address is None or address.port == 0:
            return {}
        listener = HostPort(address.host, address.port + broker_id - FIRST_ID)
        return {"metrics.listener": str(listener)}

    def _list_paths(self) -> Iterator[Path]:
        """All that a first start creates."""
        if self.ensemble is not None:
            yield from self.ensemble.folders
        for broker_id in self.broker_ids:
            yield self.folder_of(broker_id)
            yield self.log_of(broker_id)

    def _spawn(self, broker_id: int) -> None:
        prefix: tuple[str, ...] = ()
        if self._location_of is not None:  # known when the network namespaces are open
            host, prefix = self._location_of(broker_id)
            self._listeners[broker_id] = [
                listener._replace(host=host) for listener in self._listeners[broker_id]
            ]
        config = {**self.config_of(broker_id), "zookeeper.connect": self._connect_of(broker_id)}
        log = self.log_of(broker_id)
        self.processes[broker_id] = BrokerProcess(config, log=log, prefix=prefix)

    def _wait_ready(self, broker_id: int) -> None:
        process = self.processes[broker_id]
        try:
            process.wait_ready()
        except BrokerNotStarted as error:
            del self.processes[broker_id]
            raise BrokerNotStarted(f"broker {broker_id}: {error}") from None
        addresses = process.bootstrap_servers.split(",")
        self._addresses[broker_id] = addresses[self._for_clients]
        self._listeners[broker_id] = [
            listener._replace(port=int(address.rpartition(":")[2]))
            for listener, address in zip(self._listeners[broker_id], addresses, strict=True)
        ]

    def _get_ensemble(self) -> ZooKeeperEnsemble:
        assert self.ensemble is not None
        return self.ensemble


def _stop(process: BrokerProcess) -> Exception | None:
    try:
        process.stop()
    except RuntimeError as error:
        return error
    return None
