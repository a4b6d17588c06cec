"""Requests about halves to the brokers that know: shards, leaders of half topics, coordinators.

Implements the deferred coordinator's `HalfCluster`. Keeps nothing, and repeats nothing: whoever
asks asks again after a Refusal.
"""

from collections.abc import Callable, Collection, Mapping, Sequence

from penstock.client.errors import ClientError
from penstock.client.group_calls import fetch_offsets_call, read_offsets
from penstock.coordinators.deferred.coordinator import DeferredCoordinator
from penstock.coordinators.deferred.half_values import HalfIntake, IntakeReply, ReadUpTo
from penstock.coordinators.deferred.values import Target
from penstock.coordinators.group.coordinator import GroupCoordinator
from penstock.coordinators.group.requests import FetchOffsets
from penstock.coordinators.runtime.key_hash import partition_for
from penstock.inter_broker.broker_connections import PrivateCalls
from penstock.inter_broker.config import InterBrokerConfig
from penstock.inter_broker.deferred_appends import DeferredAppends
from penstock.inter_broker.half_topics import HalfSource, HalfTopics
from penstock.inter_broker.messages.half import (
    HALF_VERSIONS,
    HalfEndsRequest,
    decode_offsets,
    encode_half_ends,
    encode_half_intake,
    read_intake_reply,
)
from penstock.model.cluster import DEFERRED_TOPIC, OFFSETS_TOPIC, BrokerId, BrokerNode
from penstock.model.errors import ErrorCode, Refusal
from penstock.model.ids import TopicPartition
from penstock.protocol.half_headers import CHECKS_SUFFIX, EXPIRED_SUFFIX
from penstock.protocol.private_keys import PrivateKey
from penstock.protocol.private_response import PrivateResponse
from penstock.replication.metadata_cache import MetadataCache


class HalfCalls:
    """Owned by the event loop."""

    def __init__(
        self,
        own_id: BrokerId,
        *,
        metadata: MetadataCache,
        topics: HalfTopics,
        get_coordinator: Callable[[], DeferredCoordinator],
        get_groups: Callable[[], GroupCoordinator],
        appends: DeferredAppends,
        brokers: PrivateCalls,
        config: Callable[[], InterBrokerConfig],
        full_groups: set[str],  # those whose shard may hold no more halves; kept up to date here
    ) -> None:
        self._own_id = own_id
        self._metadata = metadata
        self._topics = topics
        self._get_coordinator = get_coordinator
        self._get_groups = get_groups
        self._appends = appends
        self._brokers = brokers
        self._config = config
        self._full_groups = full_groups

    # -- to the shard ----------------------------------------------------------------------

    async def ensure_topic(self) -> None:
        code = await self._get_coordinator().ensure_topic()
        if code is not ErrorCode.NONE:
            raise Refusal(code, f"{DEFERRED_TOPIC} could not be created")

    async def send_intake(self, intake: HalfIntake) -> IntakeReply:
        coordinator = self._get_coordinator()
        node = self._get_leader(DEFERRED_TOPIC, coordinator.partition_of_group(intake.group))
        if node.id == self._own_id:
            reply = await coordinator.take_intake(intake)
        else:
            response = await self._ask(node, PrivateKey.HALF_INTAKE, encode_half_intake(intake))
            reply = read_intake_reply(response.code, response.payload)
        if reply.code is ErrorCode.NONE:
            (self._full_groups.add if reply.is_full else self._full_groups.discard)(intake.group)
        return reply

    def is_full(self, group: str) -> bool:
        """As its shard has said last."""
        return group in self._full_groups

    # -- to the leaders of half topics -----------------------------------------------------

    async def half_ends(self, group: str) -> list[ReadUpTo]:
        """The ends of all half topics of the group, as of now or later."""
        return await self._ends(self._topics.sources_of(group, decisions=False))

    async def decision_ends(self, group: str) -> Collection[ReadUpTo]:
        return await self._ends(self._topics.sources_of(group, decisions=True))

    async def _ends(self, sources: Sequence[HalfSource]) -> list[ReadUpTo]:
        by_leader: dict[BrokerId, list[Target]] = {}
        for source in sources:
            by_leader.setdefault(source.leader, []).append(source.target)
        ends: list[ReadUpTo] = []
        for leader, targets in by_leader.items():
            offsets = await self._ends_at(leader, targets)
            ends += map(ReadUpTo, targets, offsets)
        return ends

    async def _ends_at(self, leader: BrokerId, sources: Sequence[Target]) -> list[int]:
        if leader == self._own_id:
            return self._appends.log_ends(sources)
        node = self._metadata.brokers.get(leader)
        if node is None:
            raise Refusal(ErrorCode.LEADER_NOT_AVAILABLE, "a half topic has no leader")
        body = encode_half_ends(HalfEndsRequest(sources))
        response = await self._ask(node, PrivateKey.HALF_ENDS, body)
        if response.code is not ErrorCode.NONE:
            raise Refusal(response.code)
        return decode_offsets(response.payload)

    # -- to the group coordinator ----------------------------------------------------------

    async def committed(self, group: str, checks: Collection[Target]) -> Mapping[Target, int]:
        topic = self._metadata.find_topic(group + CHECKS_SUFFIX)
        offsets_topic = self._metadata.find_topic(OFFSETS_TOPIC)
        if topic is None or offsets_topic is None:
            return {}
        wanted = {
            TopicPartition(topic.name, target.partition): target
            for target in checks
            if target.topic_id == topic.topic_id
        }
        partition = partition_for(group, len(offsets_topic.partitions))
        node = self._get_leader(OFFSETS_TOPIC, partition)
        offsets = await self._committed_at(node, group, tuple(wanted))
        return {wanted[tp]: offset for tp, offset in offsets.items() if tp in wanted}

    async def _committed_at(
        self, node: BrokerNode, group: str, tps: tuple[TopicPartition, ...]
    ) -> dict[TopicPartition, int]:
        if node.id == self._own_id:
            fetched = await self._get_groups().fetch(
                FetchOffsets(group=group, member=None, member_epoch=-1, partitions=tps)
            )
            if fetched.error is not ErrorCode.NONE:
                raise Refusal(fetched.error)
            return {one.tp: one.offset for one in fetched.offsets if one.offset >= 0}
        call = fetch_offsets_call(group, tps)
        try:
            answer = await self._brokers.call(
                node, call, timeout_ms=self._config().request_timeout_ms
            )
            offsets = read_offsets(group, answer)
        except (ConnectionError, ClientError) as error:
            raise Refusal(ErrorCode.NETWORK_EXCEPTION, str(error)) from error
        return {tp: committed.offset for tp, committed in offsets.items()}

    # -- from the metadata -----------------------------------------------------------------

    def find_partition(self, topic: str, key: str) -> Target | None:
        return self._topics.find_partition(topic, key)

    def find_expired(self, topic: str, target: Target) -> Target | None:
        return self._topics.find_same_partition(topic + EXPIRED_SUFFIX, target.partition)

    def _get_leader(self, topic: str, partition: int) -> BrokerNode:
        state = self._metadata.find_topic(topic)
        if state is not None and partition < len(state.partitions):
            node = self._metadata.brokers.get(state.partitions[partition].leader)
            if node is not None:
                return node
        raise Refusal(ErrorCode.LEADER_NOT_AVAILABLE, f"{topic}-{partition} has no leader")

    async def _ask(self, node: BrokerNode, key: PrivateKey, body: bytes) -> PrivateResponse:
        try:
            return await self._brokers.call_private(
                node,
                key,
                HALF_VERSIONS,
                lambda version: body,
                timeout_ms=self._config().request_timeout_ms,
            )
        except ConnectionError as error:
            raise Refusal(ErrorCode.NETWORK_EXCEPTION, str(error)) from error
