"""The active controller: its state, its writes and its requests (KAFKA-5310: built from the store).

Not the decisions (the pure modules make them), nor when they are made (`controller.run` calls, one
event at a time). Every write fails with ControllerFenced once another controller has been elected.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from random import Random
from typing import Generic, NamedTuple, TypeVar

from penstock.config.effective_config import EffectiveConfig, resolve_broker
from penstock.config.raw_config import ConfigError, RawConfig
from penstock.controller import broker_changes, leader_changes, topic_creation, topic_deletion
from penstock.controller.alter_partition import alter_partition
from penstock.controller.change_events import (
    ChangeEvent,
    broker_left,
    find_absent,
    list_changes,
)
from penstock.controller.channel_manager import ControllerChannelManager, Delivery
from penstock.controller.config import ControllerConfig
from penstock.controller.config_change import ConfigBasis, alter_configs, resolve_dynamic_config
from penstock.controller.config_edits import (
    NOTHING_KNOWN,
    KnownConfigs,
    adopt_configs,
    keep_known_broker_configs,
    keep_known_topic_configs,
)
from penstock.controller.config_watches import ConfigWatches
from penstock.controller.create_partitions import create_partitions
from penstock.controller.damaged_leaders import replace_damaged_leaders
from penstock.controller.election_counters import ElectionCounters
from penstock.controller.incomplete_replicas import (
    MESSAGES_AT_ONCE,
    describe_open,
    describe_settled,
    list_reported,
    settle_reports,
)
from penstock.controller.interface import (
    ApiError,
    ConfigResourceChange,
    CreatableTopic,
    NewPartitions,
    Reassignment,
)
from penstock.controller.new_partitions import MAX_PARTITIONS_PER_REQUEST, CreationDependencies
from penstock.controller.offline_replicas import fail_replicas
from penstock.controller.reassignment import alter_reassignments
from penstock.controller.refusals import check_topic_configs, find_duplicates
from penstock.controller.state import AddressedRequest, ClusterState, ControllerDecision
from penstock.controller.state_loader import (
    LoadWatches,
    StoredState,
    find_restarted,
    find_topic_znodes,
    read_registered,
    read_stored_state,
    repair,
)
from penstock.controller.stored_configs import StoredConfigs
from penstock.controller.write_batches import TRANSACTION_BYTES, batch_writes
from penstock.controller.znode_requests import ZnodeRequests
from penstock.logs.event_logger import EventLogger
from penstock.logs.rate_limit import RateLimitedLogger
from penstock.metadata_store.election import ElectionResult
from penstock.metadata_store.errors import (
    BadVersion,
    MultiFailed,
    NodeExists,
    NoNode,
    NotEmpty,
)
from penstock.metadata_store.interface import Operation, Session, Watch
from penstock.model.admin import ElectionType
from penstock.model.alter_partition import AlterPartitionProposal, AlterPartitionResult
from penstock.model.cluster import (
    BrokerEpoch,
    BrokerId,
    ControllerEpoch,
    StopReplicaRequest,
    TopicState,
)
from penstock.model.errors import Refusal
from penstock.model.ids import TopicId, TopicPartition

TOPICS_PER_STEP = 50

Result = TypeVar("Result")


class ControllerFenced(Exception):
    """Another controller has been elected."""


class StateOutdated(Exception):
    """The stored state differs from this controller's, because something else has written it."""


class DecisionResult(NamedTuple, Generic[Result]):
    """Results, and for each the deliveries that must be done before it is returned."""

    results: list[Result | ApiError]
    deliveries: Mapping[int, Sequence[Delivery]]  # by the result's index


class ControllerSetup(NamedTuple):
    """The dependencies that stay the same each time this broker becomes the active controller."""

    broker_id: BrokerId
    static: RawConfig
    random: Random
    new_topic_id: Callable[[], TopicId]
    logger: EventLogger
    notes: RateLimitedLogger  # of events that clients cause
    elections: ElectionCounters
    last_known: KnownConfigs = NOTHING_KNOWN
    max_partitions: int = MAX_PARTITIONS_PER_REQUEST
    transaction_bytes: int = TRANSACTION_BYTES


class ControllerSignals(NamedTuple):
    """Callbacks of watches and deliveries; each only queues an event."""

    brokers_changed: Watch
    topics_changed: Watch
    topic_edited: Watch
    deletions_changed: Watch
    reassignments_changed: Watch
    elections_changed: Watch
    config_edited: Watch
    replicas_deleted: Callable[[BrokerId, tuple[str, ...]], None]


class ActiveController:
    """Owned by the controller's task. Between two calls, `state` is what the store holds."""

    state: ClusterState  # set by `fail_over`
    broker_config: EffectiveConfig  # of this broker, with the dynamic configs
    config: ControllerConfig  # out of `broker_config`

    def __init__(
        self,
        *,
        session: Session,
        elected: ElectionResult,
        setup: ControllerSetup,
        signals: ControllerSignals,
        channels: ControllerChannelManager,
    ) -> None:
        self.session = session
        self.elected = elected
        self.setup = setup
        self.signals = signals
        self.channels = channels
        self.znode_requests = ZnodeRequests(self)
        self.config_watches = ConfigWatches(self)
        self._deletions: dict[str, asyncio.Future[bool]] = {}  # done once the topic is gone
        self._waiting: frozenset[TopicPartition] = frozenset()  # without a leader, and reported

    async def fail_over(self) -> list[Delivery]:
        """Load the state, complete what was begun, elect leaders, send every broker the full state.

        Returns the deliveries to this broker.
        """
        watches = LoadWatches(
            brokers=self.signals.brokers_changed,
            topics=self.signals.topics_changed,
            deletions=self.signals.deletions_changed,
            configs=self.signals.config_edited,
        )
        stored = await read_stored_state(self.session, watches, self.setup.logger)
        for unreadable in stored.unreadable:
            self.setup.logger.warning(
                "topic_ignored", f"ignoring topic {unreadable.name!r}: {unreadable.why}"
            )
        loaded = repair(
            stored,
            controller_id=self.setup.broker_id,
            controller_epoch=ControllerEpoch(self.elected.epoch),
            new_topic_id=self.setup.new_topic_id,
        )
        self.state = loaded.state
        self._keep_known_configs(stored)
        elections = broker_changes.fail_over(
            self.state, self._allows_unclean, find_restarted(stored)
        )
        decision = loaded.then(elections)
        self._log(
            broker_left(broker, "absent at the controller failover")
            for broker in find_absent(loaded.state)
        )
        deliveries = await self.apply(decision, "controller failover")
        await self.znode_requests.fail_over()
        await self.config_watches.fail_over(
            topic.name for topic in stored.topics if topic.configs is not None
        )
        own = self.setup.broker_id
        return [
            delivery
            for delivery, request in zip(deliveries, decision.requests, strict=True)
            if request.broker == own
        ]

    # Requests.

    async def create_topics(
        self, topics: Sequence[CreatableTopic], *, validate_only: bool
    ) -> DecisionResult[TopicState]:
        """Create in steps of some topics, so that a long request does not block the event loop."""
        duplicates = find_duplicates(topic.name for topic in topics)
        dependencies, state = self._creation_dependencies(), self.state
        results: list[TopicState | ApiError] = []
        deliveries: list[Delivery] = []
        for at in range(0, len(topics), TOPICS_PER_STEP):
            decision, step_results = topic_creation.create_topics(
                state, topics[at : at + TOPICS_PER_STEP], dependencies, duplicates=duplicates
            )
            if not validate_only:
                deliveries += await self.apply(decision, "topics created")
            results += step_results
            state = decision.state
            created = sum(
                len(result.partitions) for result in step_results if isinstance(result, TopicState)
            )
            left = dependencies.left_partitions - created
            dependencies = dependencies._replace(left_partitions=left)
        return DecisionResult(results, _after_all(results, deliveries))

    async def create_partitions(
        self, requested: Sequence[NewPartitions], *, validate_only: bool
    ) -> DecisionResult[None]:
        duplicates = find_duplicates(request.name for request in requested)
        decision, results = create_partitions(
            self.state, requested, self._creation_dependencies(), duplicates=duplicates
        )
        deliveries = [] if validate_only else await self.apply(decision, "partitions created")
        return DecisionResult(results, _after_all(results, deliveries))

    async def delete_topics(self, names: Sequence[str]) -> DecisionResult[None]:
        decision, results = topic_deletion.delete_topics(
            self.state, names, is_enabled=self.config.delete_topic_enable
        )
        await self.apply(decision, "topics deleted")
        deleted = {
            index: [self._deletion_future(name)]
            for index, (name, result) in enumerate(zip(names, results, strict=True))
            if result is None
        }
        return DecisionResult(results, deleted)

    async def alter_configs(
        self, changes: Sequence[ConfigResourceChange], *, validate_only: bool
    ) -> DecisionResult[None]:
        decision, results = alter_configs(self.state, changes, self._config_basis())
        if validate_only:
            return DecisionResult(results, {})
        deliveries = await self.apply(decision, "configs altered")
        deliveries += await self._on_configs_altered()
        return DecisionResult(results, _after_all(results, deliveries))

    async def adopt_configs(
        self, read: Mapping[str, StoredConfigs], quiet: Collection[str] = ()
    ) -> None:
        """Configs that something else may have changed in the store, by path; what is wrong with
        the `quiet` ones has been reported."""
        decision, refused = adopt_configs(self.state, read, self._config_basis())
        for problem in refused:
            if problem.path not in quiet:
                self.report_refused_configs(*problem)
        if decision.requests or decision.state != self.state:
            await self.apply(decision, "config znodes changed")
        if decision.requests:
            await self._on_configs_altered()

    def report_refused_configs(self, path: str, message: str) -> None:
        self.setup.notes.warning("config_znode_ignored", path, message, path=path)

    async def _on_configs_altered(self) -> list[Delivery]:
        self._resolve_broker_config()
        leaderless = [topic.name for topic in self.state.topics.values() if _is_leaderless(topic)]
        elections = broker_changes.elect_leaderless(self.state, leaderless, self._allows_unclean)
        return await self.apply(elections, "configs altered")

    async def elect_leaders(
        self, election: ElectionType, partitions: Sequence[TopicPartition] | None
    ) -> DecisionResult[dict[TopicPartition, ApiError | None]]:
        decision, results = leader_changes.elect_leaders(self.state, election, partitions)
        deliveries = await self.apply(decision, f"{election.name.lower()} election requested")
        return DecisionResult([results], {0: deliveries})

    async def alter_reassignments(
        self, reassignments: Sequence[Reassignment], *, allow_replication_factor_change: bool
    ) -> DecisionResult[None]:
        """Returns once they are stored, not once they are finished."""
        decision, results = alter_reassignments(
            self.state,
            reassignments,
            allow_replication_factor_change=allow_replication_factor_change,
        )
        await self.apply(decision, "reassignment requested")
        return DecisionResult(results, {})

    async def alter_partition(
        self,
        proposals: Sequence[AlterPartitionProposal],
        broker: BrokerId,
        broker_epoch: BrokerEpoch,
    ) -> DecisionResult[list[AlterPartitionResult]]:
        decision, results = alter_partition(
            self.state, broker=broker, broker_epoch=broker_epoch, proposals=proposals
        )
        await self.apply(decision, f"ISR of leader {broker}", is_of_leader=True)
        return DecisionResult([results], {})

    async def controlled_shutdown(
        self, broker: BrokerId, broker_epoch: BrokerEpoch
    ) -> DecisionResult[tuple[TopicPartition, ...]]:
        """Returns once the new leaders have applied it, so that they are ready for clients."""
        decision, remaining = leader_changes.controlled_shutdown(self.state, broker, broker_epoch)
        deliveries = await self.apply(decision, f"controlled shutdown of broker {broker}")
        to_others = [
            delivery
            for delivery, request in zip(deliveries, decision.requests, strict=True)
            if request.broker != broker
        ]
        return DecisionResult([remaining], {0: to_others})

    async def fail_replicas(
        self, broker: BrokerId, broker_epoch: BrokerEpoch, partitions: Sequence[TopicPartition]
    ) -> DecisionResult[None]:
        await self.apply(
            fail_replicas(self.state, broker, broker_epoch, partitions, self._allows_unclean),
            f"logs failed on broker {broker}",
        )
        return DecisionResult([None], {})

    async def replace_damaged_leaders(
        self, broker: BrokerId, broker_epoch: BrokerEpoch, partitions: Sequence[TopicPartition]
    ) -> DecisionResult[None]:
        await self.apply(
            replace_damaged_leaders(self.state, broker, broker_epoch, partitions),
            f"damaged logs on broker {broker}",
        )
        return DecisionResult([None], {})

    # Events.

    async def rebalance_leaders(self) -> None:
        """Elect preferred leaders on brokers above leader.imbalance.per.broker.percentage."""
        if not self.config.auto_leader_rebalance_enable:
            return
        limit = self.config.leader_imbalance_per_broker_percentage
        imbalanced = leader_changes.find_imbalanced(self.state, limit_percent=limit)
        decision, _ = leader_changes.elect_leaders(self.state, ElectionType.PREFERRED, imbalanced)
        await self.apply(decision, "automatic election of preferred leaders")

    async def begin_reassignments(
        self, reassignments: Sequence[Reassignment], reason: str
    ) -> list[ApiError | None]:
        """Begin or cancel; of the balancer."""
        decision, results = alter_reassignments(
            self.state, reassignments, allow_replication_factor_change=False
        )
        await self.apply(decision, reason)
        return results

    async def elect_preferred(self, partitions: Sequence[TopicPartition], reason: str) -> None:
        existing = [tp for tp in partitions if self.state.find_topic(tp.topic) is not None]
        decision, _ = leader_changes.elect_leaders(self.state, ElectionType.PREFERRED, existing)
        await self.apply(decision, reason)

    async def brokers_changed(self) -> None:
        brokers, reports = await read_registered(
            self.session, self.signals.brokers_changed, self.setup.logger, self.state.brokers
        )
        decision = broker_changes.brokers_changed(
            self.state, brokers, self._allows_unclean, reports
        )
        await self.apply(decision, _describe_brokers(self.state, decision.state))

    async def replicas_deleted(self, broker: BrokerId, topics: tuple[str, ...]) -> None:
        await self.apply(
            topic_deletion.replicas_deleted(self.state, broker, topics), "replicas deleted"
        )
        deletable = topic_deletion.find_deletable(self.state)
        if deletable:
            await self._remove_topics(deletable)

    def resign(self) -> None:
        """Stop sending. Callers that wait for a deletion get NOT_CONTROLLER."""
        self.channels.close()
        for future in self._deletions.values():
            future.cancel()

    # From decision to effect.

    async def apply(
        self, decision: ControllerDecision, reason: str, *, is_of_leader: bool = False
    ) -> list[Delivery]:
        """Write, adopt the state, send, log. One delivery per request of the decision.

        `reason`: for the log. `is_of_leader`: a leader has proposed the ISRs and logs them itself.
        """
        if decision.state.reports:
            decision = self._settle(decision)
        for batch in batch_writes(decision.writes, self.setup.transaction_bytes):
            try:
                await self.write(batch)
            except MultiFailed as failed:
                if isinstance(failed.error, BadVersion | NodeExists | NoNode | NotEmpty):
                    raise StateOutdated(str(failed)) from failed
                raise
        self.setup.elections.count(self.state.topics, decision.state.topics)
        before, self.state = self.state, decision.state
        self._log(list_changes(before, self.state, reason, is_of_leader=is_of_leader))
        self.channels.set_brokers(self.state.brokers)
        deliveries = self.channels.send(decision.requests)
        for addressed, delivery in zip(decision.requests, deliveries, strict=True):
            self._watch_deletion(addressed, delivery)
        await self.znode_requests.remove_finished_reassignments()
        return deliveries

    def _log(self, changes: Iterable[ChangeEvent]) -> None:
        for level, event, message, fields, changed in changes:
            if changed is None:
                self.setup.logger.log(level, event, message, fields)
            else:
                self.setup.notes.log(level, event, changed, message, fields)

    def _settle(self, decision: ControllerDecision) -> ControllerDecision:
        """Remove the reports that the decision settles, and say what is lost or waits."""
        settled = settle_reports(decision)
        open_partitions = list_reported(settled.state)
        new = [tp for tp in open_partitions if tp not in self._waiting]
        self._waiting = frozenset(open_partitions)
        messages = [
            *describe_settled(self.state, decision.state),
            *describe_open(settled.state, new[:MESSAGES_AT_ONCE]),
        ]
        for message in messages[:MESSAGES_AT_ONCE]:
            self.setup.logger.warning("records_lost", message)
        unsaid = max(0, len(messages) - MESSAGES_AT_ONCE) + max(0, len(new) - MESSAGES_AT_ONCE)
        if unsaid > 0:
            self.setup.logger.warning(
                "records_lost", f"the same for {unsaid} more replicas that have lost records"
            )
        return settled

    async def write(self, operations: Sequence[Operation]) -> None:
        """Atomic, and only while no other controller has been elected."""
        try:
            await self.session.multi(self.elected.fence(operations))
        except MultiFailed as failed:
            if failed.failed_index == 0 and isinstance(failed.error, BadVersion):
                raise ControllerFenced from failed
            raise

    def _watch_deletion(self, addressed: AddressedRequest, delivery: Delivery) -> None:
        request = addressed.request
        if not isinstance(request, StopReplicaRequest) or not request.delete:
            return
        names = {tp.topic: None for tp in request.partitions}
        topics = tuple(name for name in names if name in self.state.deleting)
        if not topics:  # replicas that a reassignment removes
            return

        def on_done(done: Delivery) -> None:
            if done.result():
                self.signals.replicas_deleted(addressed.broker, topics)

        delivery.add_done_callback(on_done)

    async def _remove_topics(self, names: Sequence[str]) -> None:
        """Delete the znodes of topics of which no broker has replicas any more."""
        znodes = {name: await find_topic_znodes(self.session, name) for name in names}
        deliveries = await self.apply(
            topic_deletion.remove_topics(self.state, znodes), "topics deleted"
        )
        futures = [self._deletions.pop(name) for name in names if name in self._deletions]
        _complete_after(deliveries, futures)

    def _deletion_future(self, name: str) -> asyncio.Future[bool]:
        if name not in self._deletions:
            self._deletions[name] = asyncio.get_running_loop().create_future()
        return self._deletions[name]

    def _creation_dependencies(self) -> CreationDependencies:
        return CreationDependencies(
            broker_config=self.broker_config,
            random=self.setup.random,
            new_topic_id=self.setup.new_topic_id,
            max_partitions=self.setup.max_partitions,
            left_partitions=self.setup.max_partitions,
        )

    def _allows_unclean(self, topic: TopicState) -> bool:
        try:
            config = check_topic_configs(topic.name, topic.configs, self.broker_config)
        except Refusal as refusal:  # stored by another version, or the broker's file has changed
            self.setup.logger.warning(
                "configs_invalid",
                f"no unclean leader election for topic {topic.name}, because its configs are "
                f"invalid: {refusal.message}; alter or delete them",
            )
            return False
        return config.get_bool("unclean.leader.election.enable")

    def _keep_known_configs(self, stored: StoredState) -> None:
        """Instead of configs that cannot be read, or that have become invalid while no controller
        could refuse them."""
        self._resolve_broker_config(is_reported=False)
        brokers, refused = keep_known_broker_configs(
            self.state, stored.damaged_configs, self.setup.last_known, self._config_basis()
        )
        self.state = brokers
        self._resolve_broker_config()
        unreadable = {
            topic.name: topic.config_problem for topic in stored.topics if topic.config_problem
        }
        self.state, refused_topics = keep_known_topic_configs(
            self.state, unreadable, self.setup.last_known, self._config_basis()
        )
        for problem in (*refused, *refused_topics):
            self.report_refused_configs(*problem)

    def _config_basis(self) -> ConfigBasis:
        return ConfigBasis(static=self.setup.static, broker_config=self.broker_config)

    def _resolve_broker_config(self, *, is_reported: bool = True) -> None:
        own = str(self.setup.broker_id)
        try:
            self.broker_config = resolve_dynamic_config(
                self.setup.static, self.state.broker_configs, own
            )
        except ConfigError as error:
            # As in Kafka: an operator must be able to correct the configs through this controller.
            self.broker_config = resolve_broker(self.setup.static)
            if is_reported:
                self.setup.logger.warning(
                    "configs_invalid",
                    f"broker {own} ignores all dynamic configs, because they do not fit its file: "
                    f"{'; '.join(error.problems)}; alter or delete them",
                )
        self.config = ControllerConfig.from_broker(self.broker_config)


def _after_all(
    results: Sequence[object], deliveries: Sequence[Delivery]
) -> dict[int, Sequence[Delivery]]:
    """Every successful result waits for all deliveries."""
    return {
        index: deliveries
        for index, result in enumerate(results)
        if not isinstance(result, ApiError)
    }


def _describe_brokers(before: ClusterState, after: ClusterState) -> str:
    left = sorted(before.brokers.keys() - after.brokers.keys())
    if left:
        return f"broker {', '.join(map(str, left))} left"
    new = (broker for broker, node in after.brokers.items() if before.brokers.get(broker) != node)
    return f"broker {', '.join(map(str, sorted(new)))} registered"


def _is_leaderless(topic: TopicState) -> bool:
    return any(partition.leader < 0 for partition in topic.partitions)


def _complete_after(
    deliveries: Sequence[Delivery], futures: Sequence[asyncio.Future[bool]]
) -> None:
    """Complete once all deliveries are done, applied or not: no broker serves old metadata then."""
    remaining = len(deliveries)

    def count(_: object) -> None:
        nonlocal remaining
        remaining -= 1
        if remaining <= 0:
            for future in futures:
                if not future.done():
                    future.set_result(True)

    for delivery in deliveries:
        delivery.add_done_callback(count)
    if not deliveries:
        count(None)
