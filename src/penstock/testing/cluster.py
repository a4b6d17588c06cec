"""`penstock.testing.Cluster`: a real cluster of broker processes on this machine, for fault tests.

ZooKeeper comes from PySpark's wheel. Every wait polls the cluster's state; none sleeps for a fixed
time.
"""

import shutil
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from penstock.client.cluster import ClusterClient
from penstock.client.connection import ConnectionLimits
from penstock.client.metadata import PartitionMetadata
from penstock.client.security.properties import parse_client_security
from penstock.config.listeners import Listener
from penstock.config.text_values import as_text
from penstock.metadata_store.zookeeper.server import ZooKeeperServer
from penstock.server.broker_process import BrokerNotStarted, BrokerProcess
from penstock.server.local_cluster import LocalCluster
from penstock.testing.admin_calls import new_topic, run_apart
from penstock.testing.default_config import read_default_config
from penstock.testing.network_spaces import NetworkSpaces
from penstock.testing.security_kit import ClusterSecurity, SecurityKit
from penstock.testing.tcp_gate import TcpGate

LOOPBACK = "127.0.0.1"
WAIT_S = 180.0
_POLL_EVERY_S = 0.15  # each poll opens a client, which costs the brokers, too
_LIMITS = ConnectionLimits(connect_timeout_ms=2000)  # a paused broker accepts and never responds

Answer = TypeVar("Answer")


class NotInTime(AssertionError):
    """The awaited state did not come; the message has the last one."""


def _as_texts(config: Mapping[str, object]) -> dict[str, str]:
    return {name: as_text(value) for name, value in config.items()}


class Cluster:
    """`with Cluster(brokers=3) as cluster:`; broker ids count from 1.

    Without `data` everything is deleted at the end. `config` has Kafka's names and applies to all
    brokers, and `broker_configs` to one each. With `in_namespaces` each broker has a network
    namespace, and `cut` drops packets from one broker to another; starting it raises NoNamespaces
    if the machine does not allow that.
    `security`: "tls" or "sasl_ssl", among the brokers too, or "mtls_scram": certificates among the
    brokers, SCRAM for clients. `client_config` is what clients need.
    `zookeeper`: the connect string of servers that run already, in place of its own.
    """

    def __init__(
        self,
        brokers: int = 3,
        *,
        zookeepers: int = 1,
        data: str | Path | None = None,
        config: Mapping[str, object] | None = None,
        broker_configs: Mapping[int, Mapping[str, object]] | None = None,
        in_namespaces: bool = False,
        security: ClusterSecurity | None = None,
        zookeeper: str | None = None,
    ) -> None:
        if brokers < 1:
            raise ValueError(f"a cluster has at least one broker, not {brokers}")
        self._paused: set[int] = set()
        self._gates: dict[int, list[TcpGate]] = {}  # per broker: one to each ZooKeeper server
        self._spaces = NetworkSpaces(brokers) if in_namespaces else None
        self._security = self._make_security(security, brokers)
        protocols = self._security.listeners if self._security else {"PLAINTEXT": "PLAINTEXT"}
        self._is_temporary = data is None
        self._data = Path(tempfile.mkdtemp(prefix="penstock-") if data is None else data)
        self._local = LocalCluster(
            self._data,
            listeners=[[Listener(name, LOOPBACK, 0) for name in protocols]] * brokers,
            zookeeper=zookeeper,
            zookeepers=zookeepers,
            connect_of=self._connect_of,
            location_of=self._spaces.location if self._spaces else None,
            config={
                **read_default_config(),
                **(self._security.broker_config if self._security else {}),
                **_as_texts(config or {}),
            },
            broker_configs={
                broker_id: _as_texts(own) for broker_id, own in (broker_configs or {}).items()
            },
        )

    # -- start, stop and faults ------------------------------------------------------------

    def __enter__(self) -> Self:
        return self.start_all()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop_all()

    def start_all(self) -> Self:
        try:
            if self._spaces is not None:
                self._spaces.open()
            self._local.start()
        except BaseException:
            self._release()
            raise
        return self

    def stop_all(self) -> None:
        try:
            self._local.stop()
        finally:
            self._release()

    def _release(self) -> None:
        for gate in self._list_gates():
            gate.close()
        self._gates.clear()
        if self._spaces is not None:
            self._spaces.close()
        if self._is_temporary:
            shutil.rmtree(self._data, ignore_errors=True)

    def start(self, broker_id: int) -> None:
        """Restart it after `kill` or `stop`, with its data and its port."""
        self._local.start_broker(broker_id)

    def stop(self, broker_id: int) -> None:
        """A controlled shutdown: its leaderships move to other brokers first."""
        self._take(broker_id).stop()

    def kill(self, broker_id: int) -> None:
        """Simulate a crash (kill -9)."""
        self._take(broker_id).kill()

    def pause(self, broker_id: int) -> None:
        """Freeze the process (SIGSTOP): it looks dead to others, and no time passes for itself."""
        self._get(broker_id).pause()
        self._paused.add(broker_id)

    def resume(self, broker_id: int) -> None:
        self._get(broker_id).resume()
        self._paused.discard(broker_id)

    def cut_from_zookeeper(self, broker_id: int) -> None:
        """Cut only this broker from ZooKeeper; all other connections stay."""
        self._get(broker_id)
        for gate in self._gates[broker_id]:
            gate.shut()

    def join_to_zookeeper(self, broker_id: int) -> None:
        for gate in self._gates[broker_id]:
            gate.open()

    def cut(self, source: int, target: int) -> None:
        """Drop packets from broker `source` to broker `target`; the other direction stays open."""
        self._get_spaces().cut(source, target)

    def join(self, source: int, target: int) -> None:
        self._get_spaces().join(source, target)

    def kill_zookeeper(self, number: int = 1) -> None:
        self._get_ensemble_server(number).kill()

    def start_zookeeper(self, number: int = 1) -> None:
        """Returns at once; it serves when a majority runs: see `wait_zookeeper`."""
        self._get_ensemble_server(number).start()

    def wait_zookeeper(self) -> None:
        """Wait until all servers serve."""
        assert self._local.ensemble is not None
        self._local.ensemble.wait_serving()

    # -- use -------------------------------------------------------------------------------

    @property
    def bootstrap_servers(self) -> str:
        """HOST:PORT of every broker, for any Kafka client."""
        return self._local.bootstrap_servers

    def address(self, broker_id: int, listener: str) -> str:
        """HOST:PORT of a listener by its name, such as BROKERS of "mtls_scram"."""
        address = self._local.find_address(broker_id, listener)
        if address is None:
            raise ValueError(f"brokers of this cluster have no listener {listener!r}")
        return address

    @property
    def client_config(self) -> dict[str, str]:
        """What a client needs, by librdkafka's names; with secrets, if there is security."""
        if self._security is None:
            return {"bootstrap.servers": self.bootstrap_servers}
        return self._security.client_config(self.bootstrap_servers)

    @property
    def client_config_file(self) -> Path:
        """The same as a file, for `--client-config`. Only with `security`."""
        if self._security is None:
            raise ValueError("this cluster has no security: clients need only bootstrap_servers")
        return self._security.write_client_config(self.bootstrap_servers)

    def renew_certificates(self) -> None:
        """Replace the brokers' key and certificate, by which running brokers replace theirs within
        `penstock.ssl.reload.interval.ms`. Only with `security`."""
        if self._security is None:
            raise ValueError("this cluster has no security, and no certificates")
        self._security.renew()

    @property
    def zookeeper(self) -> str:
        """ZooKeeper's connect string."""
        return self._local.connect

    @property
    def running(self) -> tuple[int, ...]:
        """Ids of the brokers whose process exists, including paused ones."""
        return tuple(sorted(self._local.processes))

    def pid(self, broker_id: int) -> int:
        return self._get(broker_id).pid

    def data(self, broker_id: int) -> Path:
        """The log directory."""
        return self._local.folder_of(broker_id)

    def logs(self, broker_id: int) -> str:
        """The broker's log, across restarts."""
        return self._local.log_of(broker_id).read_text(errors="replace")

    @property
    def controller(self) -> int:
        """The broker id of the active controller, as the brokers report it."""
        return int(self.ask(lambda client: client.admin.describe_cluster()).controller_id)

    def create_topic(
        self,
        name: str,
        *,
        partitions: int = 1,
        replication_factor: int = 1,
        config: Mapping[str, object] | None = None,
    ) -> None:
        topic = new_topic(name, partitions, replication_factor, config)
        self.ask(lambda client: client.admin.create_topics([topic]))

    def leader(self, topic: str, partition: int) -> int:
        """The broker id of the leader; waits until there is one."""
        return int(self.wait_partition(topic, partition, lambda state: state.leader >= 0).leader)

    def in_sync(self, topic: str, partition: int) -> tuple[int, ...]:
        return tuple(self.partition(topic, partition).in_sync)

    def wait_in_sync(self, topic: str, partition: int, count: int) -> None:
        """Wait until the ISR has exactly `count` members."""
        self.wait_partition(topic, partition, lambda state: len(state.in_sync) == count)

    def wait_partition(
        self, topic: str, partition: int, is_so: Callable[[PartitionMetadata], bool]
    ) -> PartitionMetadata:
        return self.wait(lambda: self.partition(topic, partition), is_so)

    def wait_controller(self, is_so: Callable[[int], bool]) -> int:
        return self.wait(lambda: self.controller, is_so)

    def wait(self, poll: Callable[[], Answer], is_so: Callable[[Answer], bool]) -> Answer:
        """Poll until the condition holds; NotInTime after three minutes, with the last state."""
        deadline = time.monotonic() + WAIT_S
        while not is_so(state := poll()):
            if time.monotonic() > deadline:
                raise NotInTime(f"still not so after {WAIT_S:g} s: {state}")
            time.sleep(_POLL_EVERY_S)
        return state

    def ask(self, question: Callable[[ClusterClient], Awaitable[Answer]]) -> Answer:
        """Run one query with a new client, at brokers that are not paused."""
        addresses = self.bootstrap_servers.split(",")
        awake = [
            address for broker, address in enumerate(addresses, 1) if broker not in self._paused
        ]

        async def run() -> Answer:
            security = parse_client_security(self.client_config)
            async with ClusterClient(awake, limits=_LIMITS, security=security) as client:
                return await question(client)

        return run_apart(run)

    def partition(self, topic: str, partition: int) -> PartitionMetadata:
        metadata = self.ask(lambda client: client.metadata([topic]))
        state = metadata.find_partition(topic, partition)
        if state is None:
            raise KeyError(f"the cluster has no partition {partition} of topic {topic!r}")
        return state

    def _make_security(self, security: ClusterSecurity | None, brokers: int) -> SecurityKit | None:
        if security is None:
            return None
        spaces, ids = self._spaces, range(1, brokers + 1)
        hosts = [] if spaces is None else [spaces.location(broker).host for broker in ids]
        return SecurityKit(security, hosts=hosts)

    def _get(self, broker_id: int) -> BrokerProcess:
        if broker_id not in self._local.processes:
            raise BrokerNotStarted(f"broker {broker_id} is not running; {self.running} are")
        return self._local.processes[broker_id]

    def _take(self, broker_id: int) -> BrokerProcess:
        process = self._get(broker_id)
        self._paused.discard(broker_id)
        del self._local.processes[broker_id]
        return process

    def _connect_of(self, broker_id: int) -> str:
        """A connect string through TCP gates of this broker, so that it can be cut off alone."""
        if broker_id not in self._gates:
            servers, _, _ = self._local.connect.partition("/")
            ports = [int(address.rpartition(":")[2]) for address in servers.split(",")]
            host = LOOPBACK if self._spaces is None else self._spaces.own_host
            self._gates[broker_id] = [TcpGate(port, host=host) for port in ports]
        _, slash, path = self._local.connect.partition("/")
        return ",".join(gate.address for gate in self._gates[broker_id]) + slash + path

    def _get_spaces(self) -> NetworkSpaces:
        assert self._spaces is not None, "only a cluster in_namespaces has networks to cut"
        return self._spaces

    def _list_gates(self) -> list[TcpGate]:
        return [gate for gates in self._gates.values() for gate in gates]

    def _get_ensemble_server(self, number: int) -> ZooKeeperServer:
        assert self._local.ensemble is not None
        return self._local.ensemble.servers[number - 1]
