"""A broker's handlers on real replicas over a real folder: requests go in and out as bytes.

The client's end of a connection, the clock and the controller are the test's own.
"""

import asyncio
import gc
import os
import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

from tests.unit.apis.fake_deferred_messages import FakeDeferredMessages
from tests.unit.apis.fake_group_coordinator import FakeGroupCoordinator
from tests.unit.apis.fake_scram_users import FakeScramUsers
from tests.unit.apis.fake_transaction_coordinator import FakeTransactionCoordinator
from tests.unit.apis.fake_verifier import FakeVerifier

from penstock.apis.config import ApiConfig
from penstock.apis.dispatcher import Dispatcher
from penstock.apis.fetch_sessions import FetchSessions
from penstock.apis.registry import APIS
from penstock.apis.sasl_gate import SaslGate
from penstock.apis.services import Services
from penstock.config.cached_config import CachedConfig
from penstock.config.effective_config import EffectiveConfig, resolve_broker
from penstock.config.log_config import LogConfig, StorageConfig
from penstock.config.raw_config import RawConfig
from penstock.controller.interface import (
    ApiError,
    ConfigResourceChange,
    CreatableTopic,
    NewPartitions,
    Reassignment,
)
from penstock.logs.event_logger import message_logger
from penstock.model.admin import ElectionType
from penstock.model.cluster import (
    BrokerEpoch,
    BrokerId,
    BrokerNode,
    ControllerEpoch,
    Endpoint,
    LeaderAndIsrPartition,
    LeaderAndIsrRequest,
    PartitionState,
    StopReplicaRequest,
    TopicState,
    UpdateMetadataRequest,
)
from penstock.model.ids import LeaderEpoch, TopicId, TopicPartition
from penstock.model.slices import FileRun, Releasable
from penstock.network.in_flight_request import InFlightRequest
from penstock.network.receive_memory import Kept, ReceiveMemory
from penstock.protocol.api_keys import ApiKey
from penstock.protocol.frames import encode_request_frame
from penstock.protocol.headers import read_response_header
from penstock.protocol.messages import decode_response
from penstock.protocol.records import Record, build_batch
from penstock.protocol.schemas import REQUIRED, describe_fields, get_request_schema
from penstock.replication.metadata_cache import MetadataCache
from penstock.replication.replica_manager import ReplicaManager
from penstock.security.authorizer import AclOperation, ResourceType
from penstock.security.principal import ANONYMOUS, Caller, Principal
from penstock.security.sasl.login import SaslLogin
from penstock.storage.segmented_engine import SegmentedEngine
from penstock.testing.manual_clock import ManualClock

ME, OTHER = BrokerId(1), BrokerId(2)
NOW_MS = 1_700_000_000_000
NO_TIME = timedelta()
CONTROLLER_EPOCH = ControllerEpoch(1)
LISTENER = "PLAINTEXT"


class FakeAuthorizer:
    """Allows what is not denied, and records every check."""

    def __init__(self) -> None:
        self.denies_all = False
        self.denied: set[tuple[AclOperation, ResourceType, str]] = set()
        self.checked: list[tuple[AclOperation, ResourceType, str]] = []

    def deny(self, operation: AclOperation, resource: ResourceType, name: str) -> None:
        self.denied.add((operation, resource, name))

    def allows(
        self, caller: Caller, operation: AclOperation, resource: ResourceType, name: str
    ) -> bool:
        self.checked.append((operation, resource, name))
        return not self.denies_all and (operation, resource, name) not in self.denied

    def allows_any(self, caller: Caller, operation: AclOperation, resource: ResourceType) -> bool:
        return self.allows(caller, operation, resource, "*")

    def names_allowed(
        self, caller: Caller, operation: AclOperation, resource: ResourceType, name: str
    ) -> bool:
        return self.allows(caller, operation, resource, name)


class FakeController:
    """Creates topics only on the harness's broker; refuses what a test sets."""

    def __init__(self, harness: "ApiHarness") -> None:
        self._harness = harness
        self.refusals: dict[str, ApiError] = {}
        self.is_slow = False  # responds before its requests have reached the broker
        self.created: list[CreatableTopic] = []
        self.next_id = 1000

    async def create_topics(
        self, topics: Sequence[CreatableTopic], *, validate_only: bool, timeout_ms: int
    ) -> list[TopicState | ApiError]:
        return [self._create(topic) for topic in topics]

    def _create(self, topic: CreatableTopic) -> TopicState | ApiError:
        refused = self.refusals.get(topic.name)
        if refused is not None:
            return refused
        self.created.append(topic)
        if self.is_slow:
            return topic_state(topic.name, topic.partitions)
        return self._harness.make_topic(topic.name, topic.partitions)

    async def next_producer_id(self) -> int:
        self.next_id += 1
        return self.next_id

    async def delete_topics(
        self, names: Sequence[str], *, timeout_ms: int
    ) -> list[ApiError | None]:
        raise NotImplementedError

    async def create_partitions(
        self, additions: Sequence[NewPartitions], *, validate_only: bool, timeout_ms: int
    ) -> list[ApiError | None]:
        raise NotImplementedError

    async def alter_configs(
        self, changes: Sequence[ConfigResourceChange], *, validate_only: bool
    ) -> list[ApiError | None]:
        raise NotImplementedError

    async def elect_leaders(
        self,
        choice: ElectionType,
        partitions: Sequence[TopicPartition] | None,
        *,
        timeout_ms: int,
    ) -> dict[TopicPartition, ApiError | None] | ApiError:
        raise NotImplementedError

    async def alter_reassignments(
        self,
        reassignments: Sequence[Reassignment],
        *,
        allow_replication_factor_change: bool,
        timeout_ms: int,
    ) -> list[ApiError | None]:
        raise NotImplementedError

    async def list_reassignments(self) -> Mapping[TopicPartition, PartitionState] | ApiError:
        raise NotImplementedError


class FakeConnection:
    """Keeps the responses in order, and reads file slices as the network does."""

    memory = ReceiveMemory(total_bytes=100_000_000, max_request_bytes=1_000_000)  # shared by all

    def __init__(self, *, host: str = "127.0.0.1", port: int = 9092, listener: str = LISTENER):
        self.caller = Caller(ANONYMOUS, "10.0.0.9", listener)
        self.local_host = host
        self.local_port = port
        self.number = 1
        self.is_closed = False
        self.closed_because: str | None = None
        self.is_close_logged = False
        self.unexpected_errors: list[BaseException | None] = []
        self.may_start_next = 0
        self.muted_ms: list[int] = []
        self.holds_leases = False  # whether responses keep their leases, as if not sent yet
        self.held: list[Releasable] = []
        self.login: SaslLogin | None = None
        self.failed_logins: list[str] = []
        self.expired_sessions = 0
        self.is_draining = False
        self._waiting: list[InFlightRequest] = []
        self._disconnect_callbacks: list[Callable[[], None]] = []

    def take_answer(self, in_flight: InFlightRequest) -> None:
        if in_flight in self._waiting:
            self._waiting.remove(in_flight)
        if in_flight.lease is None:
            return
        if self.is_closed or not self.holds_leases:
            in_flight.parts = [read_part(part) for part in in_flight.parts]
            in_flight.lease.release()
        else:
            self.held.append(in_flight.lease)

    def let_next_start(self, in_flight: InFlightRequest) -> None:
        self.may_start_next += 1

    def try_keep(self, count: int) -> Kept | None:
        return self.memory.try_keep(self.caller.host, count)

    def close(self, reason: str, *, is_logged: bool = True) -> None:
        self.is_closed = True
        self.is_close_logged = is_logged
        self.closed_because = reason
        for in_flight in self._waiting:
            for call in in_flight.take_close_callbacks():
                call()
        self._waiting.clear()
        for call in self._disconnect_callbacks:
            call()

    def mute(self, duration_ms: int) -> None:
        self.muted_ms.append(duration_ms)

    def fail(self, what: str) -> None:
        self.unexpected_errors.append(sys.exception())
        self.close(what)

    def complete_login(self, principal: Principal) -> None:
        self.caller = self.caller._replace(principal=principal)

    def note_failed_login(self, reason: str) -> None:
        self.failed_logins.append(reason)

    def note_expired_session(self) -> None:
        self.expired_sessions += 1

    def drain(self) -> None:
        self.is_draining = True

    def on_disconnect(self, call: Callable[[], None]) -> None:
        self._disconnect_callbacks.append(call)

    def begin(self, frame: memoryview) -> InFlightRequest:
        in_flight = InFlightRequest(self, frame, 0)
        self._waiting.append(in_flight)
        return in_flight


def _refuse_views(frame: bytearray) -> None:
    """Raise BufferError if a view of the frame is still held."""
    try:
        frame.append(0)
    except BufferError:
        gc.collect()  # the traceback of a refused batch may hold one
        frame.append(0)


def read_part(part: Any) -> bytes:
    if isinstance(part, FileRun):
        return b"".join(os.pread(piece.fd, piece.length, piece.position) for piece in part.slices)
    return bytes(part)


class Sent:
    """A request in flight."""

    def __init__(
        self, in_flight: InFlightRequest, key: ApiKey, version: int, correlation_id: int
    ) -> None:
        self.in_flight = in_flight
        self.key = key
        self.version = version
        self.correlation_id = correlation_id

    @property
    def is_answered(self) -> bool:
        return self.in_flight.is_answered

    @property
    def bytes(self) -> bytes:
        assert self.in_flight.is_answered, "not answered yet"
        return b"".join(read_part(part) for part in self.in_flight.parts)

    @property
    def reply(self) -> Any:
        """The response of the same version, checked with its frame."""
        return self.read(self.version)

    def read(self, version: int) -> Any:
        frame = self.bytes
        assert int.from_bytes(frame[:4], "big") == len(frame) - 4
        correlation_id, body = read_response_header(frame[4:], self.key, version)
        assert correlation_id == self.correlation_id
        return decode_response(self.key, version, body)


class ApiHarness:
    """Broker 1 with all of its handlers."""

    def __init__(
        self,
        folder: Path,
        *,
        settings: Mapping[str, str] | None = None,
        advertised: Mapping[str, Endpoint] | None = None,
    ) -> None:
        self.clock = ManualClock()
        self.wall_ms = NOW_MS
        self.guard = FakeAuthorizer()
        self.controller = FakeController(self)
        self.groups = FakeGroupCoordinator()
        self.transactions = FakeTransactionCoordinator()
        self.deferred = FakeDeferredMessages()
        self.verifier = FakeVerifier()
        self.scram_users = FakeScramUsers()
        self.reports: list[str] = []
        self.tasks: list[Coroutine[Any, Any, None]] = []
        self.runs_at_once = True
        self._settings = resolve_broker(RawConfig.from_mapping(settings or {}, where="test"))
        self.cluster = MetadataCache()
        self.engine = SegmentedEngine(
            StorageConfig(log_dirs=(str(folder),)), config_of=lambda topic: LogConfig()
        )
        self.engine.recover(lambda *, done, total: None, NOW_MS)
        self.replicas = ReplicaManager(
            broker_id=ME,
            engine=self.engine,
            metadata=self.cluster,
            effective_config=self.settings,
            timers=self.clock,
            wall_ms=lambda: self.wall_ms,
            logger=message_logger(self.reports.append),
        )
        self.full_half_groups: set[str] = set()
        self.sessions = FetchSessions(max_sessions=10, now_ms=self.clock.now_ms)
        self.services = Services(
            broker_id=ME,
            cluster_id="the-cluster",
            metadata=self.cluster,
            replicas=self.replicas,
            engine=self.engine,
            administration=self.controller,
            producer_ids=self.controller,
            authorizer=self.guard,
            full_half_groups=self.full_half_groups,
            timers=self.clock,
            config=CachedConfig(self.settings, ApiConfig.from_broker),
            effective_config=self.settings,
            advertised=advertised or {},
            fetch_sessions=self.sessions,
            run=self._run,
            logger=message_logger(self.reports.append),
            get_groups=lambda: self.groups,
            get_deferred=lambda: self.deferred,
            get_transactions=lambda: self.transactions,
            wall_ms=lambda: self.wall_ms,
            get_transaction_verifier=lambda: self.verifier,
            get_scram_users=lambda: self.scram_users,
        )
        self.dispatcher = Dispatcher(APIS, self.services)
        self.connection = FakeConnection()
        self._correlation_id = 0
        self.update_metadata(brokers=(node(ME),))

    def settings(self) -> EffectiveConfig:
        return self._settings

    def set_settings(self, settings: Mapping[str, str]) -> None:
        self._settings = resolve_broker(RawConfig.from_mapping(settings, where="test"))

    def close(self) -> None:
        self.engine.abandon()  # no test reads the log again

    def _run(self, task: Coroutine[Any, Any, None]) -> None:
        if self.runs_at_once:
            asyncio.run(task)
        else:
            self.tasks.append(task)

    def run_tasks(self) -> None:
        while self.tasks:
            asyncio.run(self.tasks.pop(0))

    # -- requests --------------------------------------------------------------------------

    def send(
        self,
        key: ApiKey,
        version: int,
        /,
        *,
        connection: FakeConnection | None = None,
        as_version: int | None = None,
        **values: Any,
    ) -> Sent:
        """Send a request without fields that the version lacks; missing ones get defaults."""
        message = build(get_request_schema(key, version), values)
        self._correlation_id += 1
        frame = bytearray(
            encode_request_frame(message, correlation_id=self._correlation_id, client_id="test")[4:]
        )
        if as_version is not None:
            frame[2:4] = as_version.to_bytes(2, "big", signed=True)
        in_flight = self.send_frame(frame, connection)
        return Sent(in_flight, key, version, self._correlation_id)

    def send_frame(
        self, frame: bytearray, connection: FakeConnection | None = None
    ) -> InFlightRequest:
        view = memoryview(frame)
        in_flight = (connection or self.connection).begin(view)
        if in_flight.login is None:
            self.dispatcher.on_request(in_flight)
        else:
            SaslGate(self.dispatcher.on_request, self.clock).on_request(in_flight)
        in_flight.frame = memoryview(b"")
        frame[:] = b"\xee" * len(frame)  # as if the next request were received into the buffer
        view.release()
        _refuse_views(frame)
        return in_flight

    def ask(self, key: ApiKey, version: int, /, **values: Any) -> Any:
        return self.send(key, version, **values).reply

    # -- the cluster -----------------------------------------------------------------------

    def update_metadata(self, *topics: TopicState, **changes: Any) -> None:
        self.cluster.apply(
            UpdateMetadataRequest(
                controller_id=ME,
                controller_epoch=CONTROLLER_EPOCH,
                is_full=False,
                topics=topics,
                **changes,
            )
        )

    def make_topic(
        self,
        name: str,
        partitions: int = 1,
        *,
        epoch: int = 0,
        replicas: tuple[BrokerId, ...] = (ME,),
        leader: BrokerId = ME,
        configs: Mapping[str, str] | None = None,
        topic_id: TopicId | None = None,
    ) -> TopicState:
        """Add a topic to the metadata, with its replicas on this broker."""
        state = topic_state(
            name,
            partitions,
            epoch=epoch,
            replicas=replicas,
            leader=leader,
            configs=configs,
            topic_id=topic_id,
        )
        self.update_metadata(state)
        orders = tuple(
            LeaderAndIsrPartition(
                TopicPartition(name, number), state.topic_id, partition, is_new=True
            )
            for number, partition in enumerate(state.partitions)
        )
        answers = self.replicas.become_leader_or_follower(
            LeaderAndIsrRequest(
                controller_id=ME,
                controller_epoch=CONTROLLER_EPOCH,
                broker_epoch=BrokerEpoch(0),
                partitions=orders,
            )
        )
        assert not any(answers.values()), answers
        return state

    def delete_topic(self, name: str) -> None:
        topic = self.cluster.find_topic(name)
        assert topic is not None
        names = tuple(TopicPartition(name, number) for number in range(len(topic.partitions)))
        self.update_metadata(deleted_topics=(name,))
        self.replicas.stop_replicas(
            StopReplicaRequest(
                controller_id=ME,
                controller_epoch=CONTROLLER_EPOCH,
                broker_epoch=BrokerEpoch(0),
                partitions=names,
                delete=True,
            )
        )

    def fill(self, topic: str, *batches: bytearray, partition: int = 0) -> None:
        """Append batches to a partition, one request each."""
        for batch in batches:
            reply = self.ask(
                ApiKey.PRODUCE,
                9,
                acks=1,
                topic_data=[
                    {"name": topic, "partition_data": [{"index": partition, "records": batch}]}
                ],
            )
            (answer,) = reply.responses[0].partition_responses
            assert answer.error_code == 0, answer


def node(broker: BrokerId, *listeners: str) -> BrokerNode:
    return BrokerNode(
        id=broker,
        epoch=BrokerEpoch(0),
        endpoints=tuple(
            Endpoint(name, "PLAINTEXT", f"host-{broker}", 9000 + broker)
            for name in listeners or (LISTENER,)
        ),
        rack=f"rack-{broker}",
    )


def topic_state(
    name: str,
    partitions: int = 1,
    *,
    epoch: int = 0,
    replicas: tuple[BrokerId, ...] = (ME,),
    leader: BrokerId = ME,
    configs: Mapping[str, str] | None = None,
    topic_id: TopicId | None = None,
) -> TopicState:
    state = PartitionState(leader, LeaderEpoch(epoch), replicas, replicas)
    return TopicState(
        name=name,
        topic_id=topic_id_of(name) if topic_id is None else topic_id,
        partitions=(state,) * partitions,
        configs=configs or {},
    )


def topic_id_of(name: str) -> TopicId:
    return TopicId(UUID(bytes=name.encode().rjust(16, b"-")[-16:]))


def batch(*values: bytes, at_ms: int = NOW_MS, **options: Any) -> bytearray:
    """Build one batch with a millisecond between its records."""
    records = [
        Record(position, at_ms + position, b"key", value)
        for position, value in enumerate(values or (b"v",))
    ]
    return build_batch(records, **options)


# -- messages of every version -----------------------------------------------------------------


def build(entity: Any, values: Mapping[str, Any]) -> Any:
    """Build a message from plain values: lists of mappings for its entries."""
    given: dict[str, Any] = {}
    for field in describe_fields(entity):
        if field.name in values:
            given[field.name] = _convert(field, values[field.name])
        elif field.default is REQUIRED:
            given[field.name] = _default(field)
    return entity(**given)


def _convert(shape: Any, value: Any) -> Any:
    if shape.entity is None or value is None:
        return tuple(value) if shape.is_array and value is not None else value
    if shape.is_array:
        return tuple(build(shape.entity, item) for item in value)
    return build(shape.entity, value)


_DEFAULTS: Mapping[str, Any] = {
    "string": "",
    "bytes": b"",
    "bool": False,
    "records": None,
    "uuid": None,
    "timedelta_i32": NO_TIME,
}


def _default(shape: Any) -> Any:
    if shape.is_nullable:
        return None
    if shape.is_array:
        return ()
    if shape.entity is not None:
        return build(shape.entity, {})
    return _DEFAULTS.get(shape.kafka_type, 0)
