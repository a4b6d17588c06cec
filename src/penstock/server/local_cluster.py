"""A cluster on this machine: broker processes, and a ZooKeeper of their own unless one is named.

For `penstock up --brokers N` and for tests. It starts, stops and tells; it decides nothing.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Self

from penstock.metadata_store.zookeeper.server import ZooKeeperEnsemble
from penstock.server.broker_process import BrokerNotStarted, BrokerProcess
from penstock.server.development_defaults import CLUSTER_SETTINGS

FIRST_ID = 1


class Place(NamedTuple):
    """Where a broker runs: its address, and what goes before its command so that it has it."""

    host: str
    prefix: tuple[str, ...] = ()


class LocalCluster:
    """Brokers are numbered from 1; each has its folder and its log below `data`. A folder's name is
    none that a partition can have: a single node may have kept its logs in `data`, too.

    `ports`: one for each broker, 0 for a free one, which it keeps from then on. `zookeeper`: the
    connect string of an ensemble that is there; else `zookeepers` servers are started.
    `connect_of`: the connect string of one broker, where it is not everybody's; `place_of`: where
    it runs, if not beside us.
    """

    def __init__(
        self,
        data: Path,
        *,
        host: str,
        ports: Sequence[int],
        zookeeper: str | None = None,
        zookeepers: int = 1,
        settings: Mapping[str, str] | None = None,
        connect_of: Callable[[int], str] | None = None,
        place_of: Callable[[int], Place] | None = None,
    ) -> None:
        self._data = data
        self._ports = dict(enumerate(ports, FIRST_ID))
        self._connect = zookeeper
        self.ensemble = None if zookeeper else ZooKeeperEnsemble(data, zookeepers)
        self._settings = dict(settings or {})
        self._connect_of = connect_of or (lambda broker_id: self.connect)
        self._place_of = place_of or (lambda broker_id: Place(host))
        self.processes: dict[int, BrokerProcess] = {}  # those that were started and not ended

    @property
    def broker_ids(self) -> Sequence[int]:
        return tuple(self._ports)

    @property
    def bootstrap_servers(self) -> str:
        """Of all brokers, also of those that do not run: they may come back."""
        ports = self._ports.items()
        return ",".join(f"{self._place_of(each).host}:{port}" for each, port in ports)

    @property
    def connect(self) -> str:
        """ZooKeeper's connect string, once started."""
        return self._connect or self._get_ensemble().connect

    def start(self) -> Self:
        """Returns when every broker serves; whatever was started is gone if one cannot."""
        try:
            self._data.mkdir(parents=True, exist_ok=True)
            if self.ensemble is not None:
                self.ensemble.start()
            for broker_id in self.broker_ids:
                self._spawn(broker_id)
            for broker_id in self.broker_ids:
                self._wait_ready(broker_id)
        except BaseException:
            self.kill()
            raise
        return self

    def start_broker(self, broker_id: int) -> None:
        """Again, with the data it had."""
        if broker_id in self.processes:
            raise BrokerNotStarted(f"broker {broker_id} runs already")
        self._spawn(broker_id)
        self._wait_ready(broker_id)

    def stop(self) -> None:
        """Brokers together, so that none waits for leaders that are to go next; then ZooKeeper."""
        processes, self.processes = self.processes, {}
        for process in processes.values():
            process.resume()
            process.ask_to_stop()
        failures = [failure for each in processes.values() if (failure := _stop(each)) is not None]
        if self.ensemble is not None:
            self.ensemble.stop()
        if failures:
            raise ExceptionGroup("brokers did not stop cleanly", failures)

    def kill(self) -> None:
        while self.processes:
            self.processes.popitem()[1].kill()
        if self.ensemble is not None:
            self.ensemble.kill()

    def take_ended(self) -> Iterator[tuple[int, BrokerProcess]]:
        """Brokers that ended without being told to, each once."""
        for broker_id, process in list(self.processes.items()):
            if process.has_ended:
                yield broker_id, self.processes.pop(broker_id)

    def folder_of(self, broker_id: int) -> Path:
        return self._data / f"broker{broker_id}"

    def log_of(self, broker_id: int) -> Path:
        """What the broker said, over all its lives."""
        return self._data / f"broker{broker_id}.log"

    def _spawn(self, broker_id: int) -> None:
        host, prefix = self._place_of(broker_id)
        settings = {
            **CLUSTER_SETTINGS,
            **self._settings,
            "broker.id": str(broker_id),
            "log.dirs": str(self.folder_of(broker_id)),
            "listeners": f"PLAINTEXT://{host}:{self._ports[broker_id]}",
            "zookeeper.connect": self._connect_of(broker_id),
        }
        self.processes[broker_id] = BrokerProcess(
            settings, log=self.log_of(broker_id), prefix=prefix
        )

    def _wait_ready(self, broker_id: int) -> None:
        process = self.processes[broker_id]
        try:
            process.wait_ready()
        except BrokerNotStarted as error:
            del self.processes[broker_id]
            raise BrokerNotStarted(f"broker {broker_id}: {error}") from None
        self._ports[broker_id] = int(process.bootstrap_servers.rpartition(":")[2])

    def _get_ensemble(self) -> ZooKeeperEnsemble:
        assert self.ensemble is not None
        return self.ensemble


def _stop(process: BrokerProcess) -> Exception | None:
    try:
        process.stop()
    except RuntimeError as error:
        return error
    return None
