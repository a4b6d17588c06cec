"""Controllers over a real embedded metadata store, with fake brokers that record requests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any

from penstock.config.raw_config import EMPTY_RAW_CONFIG, RawConfig
from penstock.controller.broker_registration import (
    controller_election,
    random_topic_id,
    register_broker,
)
from penstock.controller.controller import Controller
from penstock.controller.interface import ApiError
from penstock.controller.state import ClusterState, ControllerDecision
from penstock.controller.state_loader import read_stored_state, repair
from penstock.logs.event_logger import EventLogger, message_logger
from penstock.metadata_store.embedded.store import EmbeddedMetadataStore
from penstock.metadata_store.interface import Session
from penstock.model.cluster import (
    BrokerEpoch,
    BrokerId,
    BrokerNode,
    ControllerEpoch,
    ControllerRequest,
    ControllerRequestBody,
    Endpoint,
    LeaderAndIsrRequest,
    PartitionState,
    StopReplicaRequest,
    TopicState,
    UpdateMetadataRequest,
)
from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicPartition
from penstock.testing.simulated_disk import SimulatedDisk

NOW_MS = 1_700_000_000_000


def node(broker: int, *, rack: str | None = None, epoch: int = 0, port: int = 0) -> BrokerNode:
    endpoint = Endpoint("PLAINTEXT", "PLAINTEXT", "localhost", port or 9092 + broker)
    return BrokerNode(
        id=BrokerId(broker), epoch=BrokerEpoch(epoch), endpoints=(endpoint,), rack=rack
    )


@dataclass
class FakeBroker:
    """A broker's state from its controller requests, applied as a real broker does."""

    requests: list[ControllerRequestBody] = field(default_factory=list)
    replicas: dict[TopicPartition, PartitionState] = field(default_factory=dict)
    topics: dict[str, TopicState] = field(default_factory=dict)
    brokers: tuple[BrokerNode, ...] = ()
    broker_configs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def apply(self, request: ControllerRequestBody) -> None:
        self.requests.append(request)
        match request:
            case LeaderAndIsrRequest(partitions=partitions):
                self.replicas.update({partition.tp: partition.state for partition in partitions})
            case StopReplicaRequest(partitions=stopped):
                for partition in stopped:
                    self.replicas.pop(partition, None)
            case UpdateMetadataRequest():
                self._update_metadata(request)

    def _update_metadata(self, update: UpdateMetadataRequest) -> None:
        if update.is_full:
            self.topics.clear()
        if update.brokers is not None:
            self.brokers = update.brokers
        if update.broker_configs is not None:
            self.broker_configs = update.broker_configs
        self.topics.update({topic.name: topic for topic in update.topics})
        for name in update.deleted_topics:
            self.topics.pop(name, None)


@dataclass
class FakeChannel:
    """A fake controller channel: all brokers are reachable except those in `unreachable`."""

    brokers: dict[BrokerId, FakeBroker] = field(default_factory=dict)
    unreachable: set[BrokerId] = field(default_factory=set)
    refusals: dict[BrokerId, Exception] = field(default_factory=dict)  # raised by the next request
    sent: list[ControllerRequest] = field(default_factory=list)  # every attempt

    async def send(self, node: BrokerNode, sent: ControllerRequest) -> None:
        broker = node.id
        self.sent.append(sent)
        await asyncio.sleep(0)
        if broker in self.unreachable:
            raise ConnectionRefusedError(f"broker {broker} does not answer")
        if broker in self.refusals:
            raise self.refusals.pop(broker)
        self.brokers.setdefault(broker, FakeBroker()).apply(sent.body)

    def broker(self, broker: int = 0) -> FakeBroker:
        return self.brokers.setdefault(BrokerId(broker), FakeBroker())


async def yield_once(_: int) -> None:
    """A backoff without delay, which lets other tasks run."""
    await asyncio.sleep(0)


@dataclass
class Cluster:
    """A metadata store with registered brokers, and their controllers."""

    store: EmbeddedMetadataStore
    channel: FakeChannel = field(default_factory=FakeChannel)
    reports: list[str] = field(default_factory=list)
    sessions: dict[int, Session] = field(default_factory=dict)
    logger: EventLogger | None = None  # None: only warnings, into `reports`

    async def join(self, broker: int, *, rack: str | None = None) -> BrokerEpoch:
        self.sessions[broker] = await self.store.open_session()
        return await register_broker(self.sessions[broker], node(broker, rack=rack), now_ms=NOW_MS)

    async def leave(self, broker: int) -> None:
        await self.sessions.pop(broker).close()

    @asynccontextmanager
    async def controlled(
        self, broker: int = 0, *, static: RawConfig = EMPTY_RAW_CONFIG, **options: Any
    ) -> AsyncIterator[Controller]:
        controller = self.controller(broker, static=static, **options)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(controller.run())
            await controller.wait_ready()
            yield controller
            await controller.close()

    def controller(
        self, broker: int = 0, *, session: Session | None = None, **options: Any
    ) -> Controller:
        session = session or self.sessions[broker]
        return Controller(
            session=session,
            election=controller_election(session, BrokerId(broker), now_ms=NOW_MS),
            channel=self.channel,
            broker_id=BrokerId(broker),
            random=Random(7),
            wait_ms=yield_once,
            logger=self.logger or message_logger(self.reports.append),
            **options,
        )

    async def reread(self) -> ControllerDecision:
        """Return what a new controller loads: the state, and the writes that complete it."""
        session = await self.store.open_session()
        stored = await read_stored_state(session)
        await session.close()
        return repair(
            stored,
            controller_id=BrokerId(0),
            controller_epoch=ControllerEpoch(0),
            new_topic_id=random_topic_id,
        )


@asynccontextmanager
async def opened(disk: SimulatedDisk | None = None, *brokers: int) -> AsyncIterator[Cluster]:
    store = await EmbeddedMetadataStore.open(disk or SimulatedDisk("/data"), "/data/tree")
    cluster = Cluster(store)
    for broker in brokers or (0,):
        await cluster.join(broker)
    async with asyncio.timeout(60):
        yield cluster
    await store.close()


def run_scenario(scenario: Callable[[Cluster], Awaitable[None]], *brokers: int) -> None:
    async def run() -> None:
        async with opened(None, *brokers) as cluster:
            await scenario(cluster)

    asyncio.run(run())


async def settled() -> None:
    """Let all other tasks run until they block; none waits for the clock."""
    for _ in range(200):
        await asyncio.sleep(0)


def code_of(answer: object) -> ErrorCode:
    return answer.code if isinstance(answer, ApiError) else ErrorCode.NONE


def same_state(one: ClusterState, other: ClusterState) -> bool:
    """Equal except for the controller and for the brokers that have yet to delete replicas."""
    return (one.brokers, one.topics, set(one.deleting), one.broker_configs) == (
        other.brokers,
        other.topics,
        set(other.deleting),
        other.broker_configs,
    )
