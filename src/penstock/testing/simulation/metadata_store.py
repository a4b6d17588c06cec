"""The metadata store of a simulated cluster: the production's state machine, with sessions.

Requests are answered at once; a broker that is partitioned from it makes none. There are no
watches: brokers poll with every heartbeat, as late as a watch would be at worst.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

from penstock.controller.state_loader import StoredState, StoredTopic
from penstock.controller.znodes import (
    BROKER_IDS,
    BROKER_REPORTS,
    CONTROLLER,
    CONTROLLER_EPOCH,
    PERSISTENT_ZNODES,
    broker_path,
    decode_broker,
    decode_report,
    decode_state,
    decode_topic,
    encode_broker,
    encode_controller,
    encode_report,
    partition_path,
    partitions_path,
    report_path,
    state_path,
    topic_path,
)
from penstock.metadata_store.embedded.znode_tree import (
    EndSession,
    Failure,
    OpenSession,
    ZnodeChange,
    ZnodeTree,
)
from penstock.metadata_store.interface import (
    Create,
    Delete,
    Operation,
    SessionId,
    SetData,
    Value,
)
from penstock.model.broker_report import BrokerReport
from penstock.model.cluster import (
    BrokerEpoch,
    BrokerId,
    BrokerNode,
    ControllerEpoch,
    PartitionState,
)
from penstock.model.ids import TopicPartition


class SimulatedMetadataStore:
    def __init__(self, now_ms: Callable[[], int]) -> None:
        self.tree = ZnodeTree()
        self._now_ms = now_ms
        self._registrations: dict[int, BrokerNode] = {}  # by czxid
        self._setup = self.open_session()
        for path in (*PERSISTENT_ZNODES, BROKER_REPORTS, CONTROLLER_EPOCH):
            self.write(self._setup, [Create(path=path)])

    def create_topic(self, tps: Sequence[TopicPartition], data: bytes, state: bytes) -> None:
        """With the same state for every partition."""
        topic = tps[0].topic
        creations = [Create(path=topic_path(topic), data=data), Create(path=partitions_path(topic))]
        for tp in tps:
            creations.append(Create(path=partition_path(*tp)))
            creations.append(Create(path=state_path(*tp), data=state))
        self.write(self._setup, creations)

    # -- sessions --------------------------------------------------------------------------

    def open_session(self) -> SessionId:
        return SessionId(self.tree.apply(OpenSession(), self._now_ms()).zxid)

    def is_alive(self, session: SessionId) -> bool:
        return session in self.tree.sessions

    def expire(self, session: SessionId) -> None:
        self.tree.apply(EndSession(session), self._now_ms())

    # -- writing ---------------------------------------------------------------------------

    def write(self, session: SessionId, operations: Sequence[Operation]) -> Failure | None:
        applied = self.tree.apply(ZnodeChange(session, tuple(operations)), self._now_ms())
        return applied.result if isinstance(applied.result, Failure) else None

    def register(self, session: SessionId, broker: BrokerId) -> BrokerEpoch:
        """Replaces a registration from before a restart, whose session may not have expired."""
        path = broker_path(broker)
        node = BrokerNode(id=broker, epoch=BrokerEpoch(-1), endpoints=())
        data = encode_broker(node, now_ms=self._now_ms())
        operations: list[Operation] = [Create(path=path, data=data, ephemeral=True)]
        if self.tree.find(path) is not None:
            operations.insert(0, Delete(path=path))
        failure = self.write(session, operations)
        assert failure is None, failure
        return BrokerEpoch(self.tree.get(path).czxid)

    def write_report(self, broker: BrokerId, report: BrokerReport) -> None:
        """For a broker that starts: no controller changes it at the same time."""
        path, data = report_path(broker), encode_report(report)
        create = [Create(path=path, data=data)]
        failure = self.write(
            self._setup, create if report.version < 0 else [SetData(path=path, data=data)]
        )
        assert failure is None, failure

    def try_elect(self, session: SessionId, broker: BrokerId) -> tuple[ControllerEpoch, int] | None:
        """The controller epoch, and the version that its writes check; None if it lost the race."""
        version = self.tree.get(CONTROLLER_EPOCH).version
        epoch = ControllerEpoch(version + 1)
        failure = self.write(
            session,
            [
                SetData(path=CONTROLLER_EPOCH, data=str(epoch).encode(), version=version),
                Create(
                    path=CONTROLLER,
                    data=encode_controller(broker, now_ms=self._now_ms()),
                    ephemeral=True,
                ),
            ],
        )
        return None if failure is not None else (epoch, version + 1)

    # -- reading ---------------------------------------------------------------------------

    @property
    def has_controller(self) -> bool:
        return self.tree.find(CONTROLLER) is not None

    @property
    def controller_epoch_version(self) -> int:
        return self.tree.get(CONTROLLER_EPOCH).version

    def brokers(self) -> dict[BrokerId, BrokerNode]:
        ids = map(BrokerId, map(int, self.tree.children(BROKER_IDS)))
        return {broker: self._broker(broker) for broker in ids}

    def report(self, broker: BrokerId) -> BrokerReport:
        path = report_path(broker)
        if self.tree.find(path) is None:
            return BrokerReport()
        return decode_report(broker, self._value(path))

    def reports(self, brokers: Iterable[BrokerId]) -> dict[BrokerId, BrokerReport]:
        """Without empty ones."""
        reports = {broker: self.report(broker) for broker in brokers}
        return {broker: report for broker, report in reports.items() if report.replicas}

    def _broker(self, broker: BrokerId) -> BrokerNode:
        """Decoded once per registration, because brokers poll and a registration never changes."""
        czxid = self.tree.get(broker_path(broker)).czxid
        if czxid not in self._registrations:
            self._registrations[czxid] = decode_broker(broker, self._value(broker_path(broker)))
        return self._registrations[czxid]

    def state(self, tp: TopicPartition) -> PartitionState:
        path, number = state_path(*tp), tp.partition
        node = decode_topic(tp.topic, self.tree.get(topic_path(tp.topic)).data)
        return decode_state(
            path,
            self._value(path),
            replicas=node.replicas[number],
            adding=node.adding.get(number, ()),
            removing=node.removing.get(number, ()),
        )

    def read(self, tps: Sequence[TopicPartition], configs: Mapping[str, str]) -> StoredState:
        """The state that a controller reads at failover."""
        name = tps[0].topic
        topic = StoredTopic(
            name=name,
            node=decode_topic(name, self.tree.get(topic_path(name)).data),
            partition_nodes=frozenset(tp.partition for tp in tps),
            states={tp.partition: self.state(tp) for tp in tps},
            written={tp.partition: self.tree.get(state_path(*tp)).mzxid for tp in tps},
            configs=configs,
        )
        return StoredState(
            brokers=self.brokers(),
            topics=[topic],
            unreadable=(),
            marked=(),
            configured=(name,),
            broker_configs={},
            reports=self.reports(self.brokers()),
        )

    def _value(self, path: str) -> Value:
        node = self.tree.get(path)
        return Value(node.data, node.stat)
