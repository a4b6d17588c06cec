"""One leadership: its state, its writes and its orders. Built from the tree alone (KAFKA-5310).

Not who decides (the pure modules do), nor when (the owner in `run` calls, one thing at a time).
Every write is refused once another controller has been elected: Fenced, and the term is over.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Generic, NamedTuple, TypeVar

from penstock.config.effective_config import EffectiveConfig, resolve_broker
from penstock.config.raw_config import ConfigError, RawConfig
from penstock.controller import broker_changes as decide
from penstock.controller import config_change as alteration
from penstock.controller import create_partitions as growth
from penstock.controller import leader_changes
from penstock.controller import topic_creation as creation
from penstock.controller import topic_deletion as deletion
from penstock.controller.alter_partition import alter_partition
from penstock.controller.channel_manager import ControllerChannelManager, Delivery
from penstock.controller.interface import (
    ApiError,
    ConfigResourceChange,
    CreatableTopic,
    ElectionType,
    NewPartitions,
    Reassignment,
)
from penstock.controller.new_partitions import MAX_PARTITIONS_PER_REQUEST, CreationDependencies
from penstock.controller.offline_replicas import fail_replicas
from penstock.controller.reassignment import alter_reassignments, find_reassignments
from penstock.controller.refusals import check_topic_configs, find_duplicates, to_api_error
from penstock.controller.state import AddressedRequest, ClusterState, ControllerDecision
from penstock.controller.state_loader import (
    LoadWatches,
    find_restarted,
    find_topic_znodes,
    read_brokers,
    read_stored_state,
    repair,
)
from penstock.controller.write_batches import TRANSACTION_BYTES, batch_writes
from penstock.controller.znode_requests import ZnodeRequests
from penstock.metadata_store.election import ElectionResult
from penstock.metadata_store.errors import (
    BadVersion,
    MultiFailed,
    NodeExists,
    NoNode,
    NotEmpty,
)
from penstock.metadata_store.interface import Operation, Session, Watch
from penstock.model.alter_partition import AlterPartitionProposal, AlterPartitionResult
from penstock.model.cluster import (
    BrokerEpoch,
    BrokerId,
    ControllerEpoch,
    PartitionState,
    StopReplicaRequest,
    TopicState,
)
from penstock.model.errors import Refusal
from penstock.model.ids import TopicId, TopicPartition

TOPICS_AT_ONCE = 50

Answer = TypeVar("Answer")
Asked = TypeVar("Asked")


class ControllerFenced(Exception):
    """Somebody else has been elected since."""


class StateOutdated(Exception):
    """The tree is not what this term knows of it: people have changed it, too."""


class DecisionResult(NamedTuple, Generic[Answer]):
    """Answers, and for each the deliveries that make it true for whoever asked."""

    answers: list[Answer | ApiError]
    waits: Mapping[int, Sequence[Delivery]]  # by the answer's place


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerSetup:
    """What a controller is given at the start, and hands to each of its terms."""

    broker_id: BrokerId
    static: RawConfig
    random: Random
    new_topic_id: Callable[[], TopicId]
    report: Callable[[str], None]
    max_partitions: int = MAX_PARTITIONS_PER_REQUEST
    transaction_bytes: int = TRANSACTION_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerSignals:
    """Called from watches and outboxes; each must only note that there is something to do."""

    brokers_changed: Watch
    topics_changed: Watch
    topic_edited: Watch
    deletions_changed: Watch
    reassignments_changed: Watch
    elections_changed: Watch
    data_removed: Callable[[BrokerId, tuple[str, ...]], None]


class ActiveController:
    """Owned by the controller's task. `state` is what the tree says, between two calls."""

    state: ClusterState  # from `begin` on
    settings: EffectiveConfig  # of this broker, with what the tree adds

    def __init__(
        self,
        *,
        session: Session,
        leadership: ElectionResult,
        setup: ControllerSetup,
        signals: ControllerSignals,
        outboxes: ControllerChannelManager,
    ) -> None:
        self.session = session
        self.leadership = leadership
        self.setup = setup
        self.signals = signals
        self.outboxes = outboxes
        self.requests = ZnodeRequests(self)
        self._gone: dict[str, asyncio.Future[bool]] = {}

    async def begin(self) -> list[Delivery]:
        """Read all, finish what was begun, elect, tell everybody: the deliveries to this broker."""
        watches = LoadWatches(
            brokers=self.signals.brokers_changed,
            topics=self.signals.topics_changed,
            deletions=self.signals.deletions_changed,
        )
        tree = await read_stored_state(self.session, watches, self.setup.report)
        for each in tree.unreadable:
            self.setup.report(f"no topic is made of {each.name!r}: {each.why}")
        loaded = repair(
            tree,
            controller_id=self.setup.broker_id,
            controller_epoch=ControllerEpoch(self.leadership.epoch),
            new_topic_id=self.setup.new_topic_id,
        )
        self.state = loaded.state
        self._resolve_settings()
        taken = decide.fail_over(loaded.state, self._allows_unclean, find_restarted(tree))
        decision = loaded.then(taken)
        deliveries = await self.carry_out(decision)
        await self.requests.begin()
        own = self.setup.broker_id
        return [
            delivery
            for delivery, order in zip(deliveries, decision.requests, strict=True)
            if order.broker == own
        ]

    # What is asked for.

    async def create_topics(
        self, asked: Sequence[CreatableTopic], *, validate_only: bool
    ) -> DecisionResult[TopicState]:
        """In portions, so that a long request does not hold up the loop; each topic is whole."""
        twice = find_duplicates(topic.name for topic in asked)
        means, state = self._creation_means(), self.state
        answers: list[TopicState | ApiError] = []
        deliveries: list[Delivery] = []
        for portion in _portions(asked):
            decision, some = creation.create_topics(state, portion, means, twice=twice)
            if not validate_only:
                deliveries += await self.carry_out(decision)
            answers += some
            state = decision.state
            made = sum(len(each.partitions) for each in some if isinstance(each, TopicState))
            means = replace(means, left_partitions=means.left_partitions - made)
        return DecisionResult(answers, _all_wait(answers, deliveries))

    async def create_partitions(
        self, asked: Sequence[NewPartitions], *, validate_only: bool
    ) -> DecisionResult[None]:
        twice = find_duplicates(more.name for more in asked)
        decision, answers = growth.create_partitions(
            self.state, asked, self._creation_means(), twice=twice
        )
        deliveries = [] if validate_only else await self.carry_out(decision)
        return DecisionResult(answers, _all_wait(answers, deliveries))

    async def delete_topics(self, names: Sequence[str]) -> DecisionResult[None]:
        decision, answers = deletion.delete_topics(
            self.state, names, is_enabled=self.allows_deletion
        )
        await self.carry_out(decision)
        waits = {
            place: [self._gone_future(name)]
            for place, (name, answer) in enumerate(zip(names, answers, strict=True))
            if answer is None
        }
        return DecisionResult(answers, waits)

    async def alter_configs(
        self, asked: Sequence[ConfigResourceChange], *, validate_only: bool
    ) -> DecisionResult[None]:
        basis = alteration.ConfigBasis(static=self.setup.static, settings=self.settings)
        decision, answers = alteration.alter_configs(self.state, asked, basis)
        if validate_only:
            return DecisionResult(answers, {})
        deliveries = await self.carry_out(decision)
        self._resolve_settings()
        touched = [t for t in self.state.topics.values() if _is_leaderless(t)]
        elected = decide.elect_leaderless(
            self.state, [topic.name for topic in touched], self._allows_unclean
        )
        deliveries += await self.carry_out(elected)
        return DecisionResult(answers, _all_wait(answers, deliveries))

    async def elect_leaders(
        self, election: ElectionType, partitions: Sequence[TopicPartition] | None
    ) -> DecisionResult[dict[TopicPartition, ApiError | None]]:
        decision, answers = leader_changes.elect_leaders(self.state, election, partitions)
        deliveries = await self.carry_out(decision)
        return DecisionResult([answers], {0: deliveries})

    async def alter_reassignments(
        self, reassignments: Sequence[Reassignment], *, allow_replication_factor_change: bool
    ) -> DecisionResult[None]:
        """Answered when they have begun: the tree has them then."""
        decision, answers = alter_reassignments(
            self.state,
            reassignments,
            allow_replication_factor_change=allow_replication_factor_change,
        )
        await self.carry_out(decision)
        return DecisionResult(answers, {})

    async def list_reassignments(self) -> DecisionResult[Mapping[TopicPartition, PartitionState]]:
        return DecisionResult([find_reassignments(self.state)], {})

    async def alter_partition(
        self,
        proposals: Sequence[AlterPartitionProposal],
        broker: BrokerId,
        broker_epoch: BrokerEpoch,
    ) -> DecisionResult[list[AlterPartitionResult]]:
        try:
            decision, answers = alter_partition(
                self.state, broker=broker, broker_epoch=broker_epoch, proposals=proposals
            )
        except Refusal as refusal:
            return DecisionResult([to_api_error(refusal)], {})
        await self.carry_out(decision)
        return DecisionResult([answers], {})

    async def controlled_shutdown(
        self, broker: BrokerId, broker_epoch: BrokerEpoch
    ) -> DecisionResult[tuple[TopicPartition, ...]]:
        """Answered when the new leaders lead, and so do not meet their clients unprepared."""
        try:
            decision, left = leader_changes.controlled_shutdown(self.state, broker, broker_epoch)
        except Refusal as refusal:
            return DecisionResult([to_api_error(refusal)], {})
        deliveries = await self.carry_out(decision)
        others = [
            delivery
            for delivery, order in zip(deliveries, decision.requests, strict=True)
            if order.broker != broker
        ]
        return DecisionResult([left], {0: others})

    async def fail_replicas(
        self, broker: BrokerId, broker_epoch: BrokerEpoch, partitions: Sequence[TopicPartition]
    ) -> DecisionResult[None]:
        try:
            decision = fail_replicas(
                self.state, broker, broker_epoch, partitions, self._allows_unclean
            )
        except Refusal as refusal:
            return DecisionResult([to_api_error(refusal)], {})
        await self.carry_out(decision)
        return DecisionResult([None], {})

    # What happens.

    async def rebalance(self) -> None:
        """Leaders back to where they belong, where too many are not."""
        if not self.settings["auto.leader.rebalance.enable"]:
            return
        limit = self.settings["leader.imbalance.per.broker.percentage"]
        assert isinstance(limit, int)
        names = leader_changes.find_imbalanced(self.state, limit_percent=limit)
        decision, _ = leader_changes.elect_leaders(self.state, ElectionType.PREFERRED, names)
        await self.carry_out(decision)

    async def brokers_changed(self) -> None:
        brokers = await read_brokers(self.session, self.signals.brokers_changed, self.setup.report)
        await self.carry_out(decide.brokers_changed(self.state, brokers, self._allows_unclean))

    async def data_removed(self, broker: BrokerId, topics: tuple[str, ...]) -> None:
        await self.carry_out(deletion.replicas_deleted(self.state, broker, topics))
        await self._remove_ready()

    def end(self) -> None:
        """Nothing is sent any more; whoever waits for a deletion does not learn of its end here."""
        self.outboxes.close()
        for future in self._gone.values():
            future.cancel()

    # How it is done.

    async def carry_out(self, decision: ControllerDecision) -> list[Delivery]:
        for batch in batch_writes(decision.writes, self.setup.transaction_bytes):
            try:
                await self.write(batch)
            except MultiFailed as failed:
                if isinstance(failed.error, BadVersion | NodeExists | NoNode | NotEmpty):
                    raise StateOutdated(str(failed)) from failed
                raise
        self.state = decision.state
        self.outboxes.follow(self.state.brokers)
        deliveries = self.outboxes.push(decision.requests)
        for addressed, delivery in zip(decision.requests, deliveries, strict=True):
            self._heed_removal(addressed, delivery)
        await self.requests.settle()
        return deliveries

    async def write(self, operations: Sequence[Operation]) -> None:
        """All or none, and only while nobody else has been elected."""
        try:
            await self.session.multi(self.leadership.fence(operations))
        except MultiFailed as failed:
            if failed.failed_index == 0 and isinstance(failed.error, BadVersion):
                raise ControllerFenced from failed
            raise

    def _heed_removal(self, addressed: AddressedRequest, delivery: Delivery) -> None:
        order = addressed.request
        if not isinstance(order, StopReplicaRequest) or not order.delete:
            return
        names = {each.topic: None for each in order.partitions}
        topics = tuple(name for name in names if name in self.state.deleting)
        if not topics:  # partitions that have moved away
            return

        def tell(done: Delivery) -> None:
            if done.result():
                self.signals.data_removed(addressed.broker, topics)

        delivery.add_done_callback(tell)

    async def _remove_ready(self) -> None:
        """The tree's part of deletions of which no broker has data any more."""
        ready = deletion.find_deletable(self.state)
        if not ready:
            return
        found = {name: await find_topic_znodes(self.session, name) for name in ready}
        await self._carry_out_removal(deletion.remove_topics(self.state, found), ready)

    async def _carry_out_removal(self, decision: ControllerDecision, names: Sequence[str]) -> None:
        deliveries = await self.carry_out(decision)
        futures = [self._gone.pop(name) for name in names if name in self._gone]
        _settle_after(deliveries, futures)

    def _gone_future(self, name: str) -> asyncio.Future[bool]:
        if name not in self._gone:
            self._gone[name] = asyncio.get_running_loop().create_future()
        return self._gone[name]

    @property
    def allows_deletion(self) -> bool:
        return bool(self.settings["delete.topic.enable"])

    def _creation_means(self) -> CreationDependencies:
        return CreationDependencies(
            settings=self.settings,
            random=self.setup.random,
            new_topic_id=self.setup.new_topic_id,
            max_partitions=self.setup.max_partitions,
            left_partitions=self.setup.max_partitions,
        )

    def _allows_unclean(self, topic: TopicState) -> bool:
        try:
            resolved = check_topic_configs(topic.name, topic.configs, self.settings)
        except Refusal as refusal:  # stored by another version, or before the broker's file changed
            self.setup.report(
                f"no unclean election for topic {topic.name}, since its settings cannot be used: "
                f"{refusal.message}; alter or delete them"
            )
            return False
        return bool(resolved["unclean.leader.election.enable"])

    def _resolve_settings(self) -> None:
        own = str(self.setup.broker_id)
        try:
            self.settings = alteration.resolve_dynamic_config(
                self.setup.static, self.state.broker_configs, own
            )
        except ConfigError as error:
            # As Kafka: an operator must be able to correct through us what is wrong there.
            self.settings = resolve_broker(self.setup.static)
            self.setup.report(
                f"broker {own} uses none of the settings that were changed while it ran, since "
                f"they do not fit its file: {'; '.join(error.problems)}; alter or delete them"
            )


def _portions(asked: Sequence[Asked]) -> Iterator[Sequence[Asked]]:
    return (asked[at : at + TOPICS_AT_ONCE] for at in range(0, len(asked), TOPICS_AT_ONCE))


def _all_wait(
    answers: Sequence[object], deliveries: Sequence[Delivery]
) -> dict[int, Sequence[Delivery]]:
    return {p: deliveries for p, each in enumerate(answers) if not isinstance(each, ApiError)}


def _is_leaderless(topic: TopicState) -> bool:
    return any(each.leader < 0 for each in topic.partitions)


def _settle_after(deliveries: Sequence[Delivery], futures: Sequence[asyncio.Future[bool]]) -> None:
    """When all brokers know: whether applied or gone, none of them tells the old any more."""
    left = len(deliveries)

    def count(_: object) -> None:
        nonlocal left
        left -= 1
        if left <= 0:
            for future in futures:
                if not future.done():
                    future.set_result(True)

    for delivery in deliveries:
        delivery.add_done_callback(count)
    if not deliveries:
        count(None)
