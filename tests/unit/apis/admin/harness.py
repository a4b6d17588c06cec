"""A broker's services around a fake controller: requests and responses go through their bytes."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from inspect import isawaitable
from pathlib import Path
from typing import Any
from uuid import UUID

from tests.unit.storage.engine.cases import batch_of

from penstock.apis.api import Api, Request
from penstock.apis.config import ApiConfig
from penstock.apis.fetch_sessions import FetchSessions
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
    FailedReplicas,
    LeaderAndIsrPartition,
    LeaderAndIsrRequest,
    PartitionState,
    TopicState,
    UpdateMetadataRequest,
)
from penstock.model.errors import ErrorCode
from penstock.model.ids import LeaderEpoch, TopicId, TopicPartition
from penstock.network.in_flight_request import InFlightRequest
from penstock.protocol.messages import decode_request, decode_response, encode
from penstock.protocol.schemas import describe_fields, get_request_schema
from penstock.purgatory.loop_timers import LoopTimers
from penstock.replication.delayed_produce import PartitionAppended
from penstock.replication.metadata_cache import MetadataCache
from penstock.replication.replica_manager import ReplicaManager
from penstock.security.authorizer import AclOperation, ResourceType
from penstock.security.principal import Caller, Principal
from penstock.security.sasl.login import SaslLogin
from penstock.storage.segmented_engine import SegmentedEngine

OWN_ID = BrokerId(1)
OTHER_ID = BrokerId(2)
NOW_MS = 1_700_000_000_000
CALLER = Caller(Principal("User", "ada"), "10.0.0.9", "PLAINTEXT")


class FakeAuthorizer:
    """Allows everything that is not forbidden, and records every check."""

    def __init__(self) -> None:
        self.forbidden: set[tuple[AclOperation, ResourceType, str]] = set()
        self.checked: list[tuple[AclOperation, ResourceType, str]] = []

    def forbid(self, operation: AclOperation, resource: ResourceType, name: str) -> None:
        self.forbidden.add((operation, resource, name))

    def allows(
        self, caller: Caller, operation: AclOperation, resource: ResourceType, name: str
    ) -> bool:
        self.checked.append((operation, resource, name))
        return (operation, resource, name) not in self.forbidden

    def allows_any(self, caller: Caller, operation: AclOperation, resource: ResourceType) -> bool:
        return self.allows(caller, operation, resource, "*")

    def names_allowed(
        self, caller: Caller, operation: AclOperation, resource: ResourceType, name: str
    ) -> bool:
        return self.allows(caller, operation, resource, name)


class FakeController:
    """A fake controller: records requests, and returns the results that a test sets.

    A name without a scripted result succeeds, and its topic has what the request asks for.
    """

    def __init__(self) -> None:
        self.refusals: dict[str, ApiError] = {}
        self.created: list[CreatableTopic] = []
        self.deleted: list[str] = []
        self.added: list[NewPartitions] = []
        self.changed: list[ConfigResourceChange] = []
        self.elected: list[tuple[ElectionType, Sequence[TopicPartition] | None]] = []
        self.moved: list[Reassignment] = []
        self.moving: Mapping[TopicPartition, PartitionState] | ApiError = {}
        self.allow_replication_factor_change: bool | None = None
        self.validate_only: bool | None = None
        self.timeout_ms: int | None = None

    async def create_topics(
        self, topics: Sequence[CreatableTopic], *, validate_only: bool, timeout_ms: int
    ) -> list[TopicState | ApiError]:
        self.created += topics
        self.validate_only, self.timeout_ms = validate_only, timeout_ms
        return [self.refusals.get(topic.name) or _created_as_requested(topic) for topic in topics]

    async def delete_topics(
        self, names: Sequence[str], *, timeout_ms: int
    ) -> list[ApiError | None]:
        self.deleted += names
        self.timeout_ms = timeout_ms
        return [self.refusals.get(name) for name in names]

    async def create_partitions(
        self, additions: Sequence[NewPartitions], *, validate_only: bool, timeout_ms: int
    ) -> list[ApiError | None]:
        self.added += additions
        self.validate_only, self.timeout_ms = validate_only, timeout_ms
        return [self.refusals.get(addition.name) for addition in additions]

    async def alter_configs(
        self, changes: Sequence[ConfigResourceChange], *, validate_only: bool
    ) -> list[ApiError | None]:
        self.changed += changes
        self.validate_only = validate_only
        return [self.refusals.get(change.name) for change in changes]

    async def elect_leaders(
        self,
        choice: ElectionType,
        partitions: Sequence[TopicPartition] | None,
        *,
        timeout_ms: int,
    ) -> dict[TopicPartition, ApiError | None] | ApiError:
        self.elected.append((choice, partitions))
        self.timeout_ms = timeout_ms
        names = [TopicPartition("all", 0)] if partitions is None else partitions
        return self.refusals.get("") or {name: self.refusals.get(name.topic) for name in names}

    async def alter_reassignments(
        self,
        reassignments: Sequence[Reassignment],
        *,
        allow_replication_factor_change: bool,
        timeout_ms: int,
    ) -> list[ApiError | None]:
        self.moved += reassignments
        self.allow_replication_factor_change, self.timeout_ms = (
            allow_replication_factor_change,
            timeout_ms,
        )
        return [self.refusals.get(move.tp.topic) for move in reassignments]

    async def list_reassignments(self) -> Mapping[TopicPartition, PartitionState] | ApiError:
        return self.moving


def _created_as_requested(topic: CreatableTopic) -> TopicState | ApiError:
    if not topic.assignment and not 0 < topic.partitions * topic.replication_factor <= 1000:
        return ApiError(ErrorCode.INVALID_PARTITIONS, f"{topic.partitions} partitions")
    assignment = topic.assignment or dict.fromkeys(
        range(topic.partitions), (OWN_ID,) * topic.replication_factor
    )
    return topic_state(
        topic.name,
        replicas=[assignment[partition] for partition in sorted(assignment)],
        configs={name: value for name, value in topic.configs.items() if value is not None},
    )


def topic_state(
    name: str,
    *,
    replicas: Iterable[tuple[BrokerId, ...]] = ((OWN_ID,),),
    configs: Mapping[str, str] | None = None,
) -> TopicState:
    """A topic led by the first replica of each partition; its id is derived from its name."""
    return TopicState(
        name=name,
        topic_id=topic_id_of(name),
        partitions=tuple(
            PartitionState(replica[0], LeaderEpoch(0), replica, replica) for replica in replicas
        ),
        configs=configs or {},
    )


def topic_id_of(name: str) -> TopicId:
    return TopicId(UUID(bytes=name.encode().rjust(16, b"-")[-16:]))


class _NullConnection:
    """A connection that drops responses and has an address."""

    def __init__(self, caller: Caller, host: str) -> None:
        self.caller = caller
        self.local_host = host
        self.local_port = 9092
        self.number = 1
        self.is_closed = False
        self.login: SaslLogin | None = None

    def take_answer(self, in_flight: InFlightRequest) -> None: ...

    def let_next_start(self, in_flight: InFlightRequest) -> None: ...

    def try_keep(self, count: int) -> None: ...

    def mute(self, duration_ms: int) -> None: ...

    def close(self, reason: str, *, is_logged: bool = True) -> None: ...

    def fail(self, what: str) -> None: ...

    def complete_login(self, principal: Principal) -> None: ...

    def note_failed_login(self, reason: str) -> None: ...

    def note_expired_session(self) -> None: ...

    def drain(self) -> None: ...

    def on_disconnect(self, call: Callable[[], None]) -> None: ...


@dataclass
class AdminApiHarness:
    """Broker 1, in a cluster that the test describes."""

    log_dirs: tuple[Path, ...]
    given: Mapping[str, str] = field(default_factory=dict)
    advertised: Mapping[str, Endpoint] = field(default_factory=dict)
    caller: Caller = CALLER
    connected_to: str = "10.0.0.1"

    def __post_init__(self) -> None:
        self.acl = FakeAuthorizer()
        self.controller = FakeController()
        self.cluster = MetadataCache()
        paths = tuple(str(path) for path in self.log_dirs)
        self.static = RawConfig.from_mapping(
            {"broker.id": "1", "log.dirs": ",".join(paths), **self.given}, where="server.properties"
        )
        self.engine = SegmentedEngine(
            StorageConfig(log_dirs=paths), config_of=lambda topic: LogConfig()
        )
        self.engine.recover(lambda *, done, total: None, NOW_MS)
        timers = LoopTimers()
        self.replicas = ReplicaManager(
            broker_id=OWN_ID,
            engine=self.engine,
            metadata=self.cluster,
            effective_config=self.settings,
            timers=timers,
            wall_ms=lambda: NOW_MS,
            logger=message_logger(self._fail),
        )
        self.update(brokers=(node(OWN_ID),))
        self.services = Services(
            broker_id=OWN_ID,
            cluster_id="penstock-test-cluster",
            metadata=self.cluster,
            replicas=self.replicas,
            engine=self.engine,
            administration=self.controller,
            get_groups=None,  # type: ignore[arg-type] # no handler here asks for groups
            get_deferred=None,  # type: ignore[arg-type] # nor for delayed messages
            get_transactions=None,  # type: ignore[arg-type] # nor for transactions
            producer_ids=None,  # type: ignore[arg-type] # no handler here asks for producer ids
            authorizer=self.acl,
            timers=timers,
            wall_ms=lambda: NOW_MS,
            config=CachedConfig(self.settings, ApiConfig.from_broker),
            effective_config=self.settings,
            advertised=self.advertised,
            fetch_sessions=FetchSessions(max_sessions=1),
            run=self._run,
            logger=message_logger(self._fail),
            static_config=self.static,
        )

    def settings(self) -> EffectiveConfig:
        dynamic = self.cluster.broker_configs
        return resolve_broker(
            self.static,
            dynamic_cluster=RawConfig.from_mapping(dynamic.get("", {}), where="cluster"),
            dynamic_broker=RawConfig.from_mapping(dynamic.get("1", {}), where="broker 1"),
        )

    def update(
        self,
        *topics: TopicState,
        brokers: tuple[BrokerNode, ...] | None = None,
        broker_configs: Mapping[str, Mapping[str, str]] | None = None,
        controller: BrokerId = OWN_ID,
        failed: FailedReplicas | None = None,
    ) -> None:
        """Send the broker an UpdateMetadata request."""
        self.cluster.apply(
            UpdateMetadataRequest(
                controller_id=controller,
                controller_epoch=ControllerEpoch(1),
                is_full=False,
                brokers=brokers,
                topics=topics,
                broker_configs=broker_configs,
                failed=failed,
            )
        )

    def serve(self, topic: TopicState) -> None:
        """Send metadata of the topic, and LeaderAndIsr for this broker's replicas."""
        self.update(topic)
        self.replicas.become_leader_or_follower(
            LeaderAndIsrRequest(
                controller_id=OWN_ID,
                controller_epoch=ControllerEpoch(1),
                broker_epoch=BrokerEpoch(1),
                partitions=tuple(
                    LeaderAndIsrPartition(
                        TopicPartition(topic.name, number), topic.topic_id, state, is_new=True
                    )
                    for number, state in enumerate(topic.partitions)
                    if OWN_ID in state.replicas
                ),
            )
        )

    def write(self, partition: TopicPartition, *counts: int) -> None:
        """Append batches with that many records each; this broker alone commits them at once."""
        batches = [(partition, memoryview(bytearray(batch_of(count)))) for count in counts]
        answers: list[PartitionAppended] = []
        self.replicas.append(batches, acks=1, timeout_ms=0, done=answers.extend)
        assert [answer.code for answer in answers] == [ErrorCode.NONE] * len(counts)

    def ask(self, api: Api, version: int, **fields: Any) -> Any:
        """Return the response to a request with these fields; both are encoded and decoded."""
        return self.ask_with(api, version, build(get_request_schema(api.key, version), fields))

    def ask_with(self, api: Api, version: int, message: Any) -> Any:
        assert version in api.versions
        assert api.answer is not None
        sent = encode(message)
        request = Request(
            key=api.key,
            version=version,
            correlation_id=7,
            client_id="tests",
            in_flight=InFlightRequest(
                _NullConnection(self.caller, self.connected_to), memoryview(sent), 0
            ),
            message=decode_request(api.key, version, sent),
        )
        answer = api.answer(request, self.services)
        if isawaitable(answer):
            answer = asyncio.run(_wait(answer))
        body = answer if type(answer) is bytes else encode(answer)
        return decode_response(api.key, version, body)

    def close(self) -> None:
        self.engine.close()

    @staticmethod
    def _fail(line: str) -> None:
        raise AssertionError(f"nothing should be reported here: {line}")

    @staticmethod
    def _run(coroutine: object) -> None:
        raise AssertionError("handlers here start no tasks")


async def _wait(answer: Any) -> Any:
    return await answer


def node(broker: BrokerId, *endpoints: Endpoint, rack: str | None = None) -> BrokerNode:
    given = endpoints or (Endpoint("PLAINTEXT", "PLAINTEXT", f"host-{broker}", 9090 + broker),)
    return BrokerNode(id=broker, epoch=BrokerEpoch(1), endpoints=given, rack=rack)


def build(entity: type, values: Mapping[str, Any]) -> Any:
    """Build a message from plain mappings; an unknown field is an error in the test."""
    fields = {shape.name: shape for shape in describe_fields(entity)}
    assert values.keys() <= fields.keys(), f"{entity.__name__} has only {sorted(fields)}"
    defaults = {"timeout": timedelta(seconds=30)} if "timeout" in fields else {}
    made = {name: _build_field(fields[name].entity, value) for name, value in values.items()}
    return entity(**(defaults | made))


def _build_field(entity: type | None, value: Any) -> Any:
    if isinstance(value, list | tuple):
        return tuple(_build_field(entity, item) for item in value)
    return build(entity, value) if entity is not None and value is not None else value


def rows(entities: Iterable[Any], *names: str) -> list[Any]:
    """Return these fields of each entity as a tuple; a single field as itself."""
    picked = [tuple(getattr(entity, name) for name in names) for entity in entities]
    return [item[0] for item in picked] if len(names) == 1 else picked
