"""Messages that wait find their shards, and those that have waited their targets."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

import pytest
from tests.unit.apis.harness import ME, OTHER, ApiHarness, batch, node

from penstock.coordinators.deferred.cancel import CancelReply
from penstock.coordinators.deferred.config import DeferredConfig
from penstock.coordinators.deferred.defer import DONE, DeferReply, SentBy
from penstock.coordinators.deferred.shard import FindRefusal
from penstock.coordinators.deferred.values import (
    DeferredMessage,
    DelayKey,
    InTransaction,
    SequenceRange,
    Target,
)
from penstock.coordinators.runtime.pending_replies import Failed
from penstock.inter_broker.config import InterBrokerConfig
from penstock.inter_broker.deferred_appends import DELETED_AFTER_MS, DeferredAppends
from penstock.inter_broker.deferred_router import DeferredRouter
from penstock.inter_broker.deferred_transactions import DeferredTransactions
from penstock.inter_broker.messages.deferred import (
    MAX_CANCELS,
    AppendDeferredRequest,
    DeferMessagesRequest,
    EndDeferredRequest,
    decode_append_deferred,
    decode_defer_messages,
    decode_end_deferred,
    decode_ends,
    encode_append_deferred,
    encode_base_offset,
    encode_defer_messages,
    encode_end_deferred,
    encode_ends,
)
from penstock.model.cluster import DEFERRED_TOPIC, BrokerNode
from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicId, TopicPartition
from penstock.model.producer_ids import FIRST_DELIVERER_ID
from penstock.protocol.private_keys import PrivateKey
from penstock.protocol.private_response import PrivateResponse
from penstock.testing.manual_clock import ManualClock

TARGET = Target(TopicId(UUID(int=9)), 2)
PRODUCED = SentBy(TARGET, 7, 0, SequenceRange(0, 1))
LEADER, AWAY = ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.NETWORK_EXCEPTION


def message(partition: int = 2, delay_id: str | None = None, due_ms: int = 5) -> DeferredMessage:
    target = TARGET._replace(partition=partition)
    return DeferredMessage(due_ms, target, delay_id, 3, b"k", None, (("h", b"1"), ("n", None)))


Result = TypeVar("Result")


class FakeShards:
    """The coordinator of this broker: replies as a test says, then that all is done."""

    def __init__(self) -> None:
        self.codes: list[ErrorCode] = []
        self.deferred: list[tuple[int, tuple[DeferredMessage, ...]]] = []
        self.cancelled: list[tuple[int, int]] = []  # shards, with how many
        self.before_write: Callable[[], None] = lambda: None

    async def ensure_topic(self) -> ErrorCode:
        return ErrorCode.NONE

    def partition_of_message(self, message: DeferredMessage) -> int:
        return message.target.partition

    def partition_of_key(self, delay_key: DelayKey) -> int:
        return 2 if delay_key.delay_id == "z" else 1

    async def defer(
        self,
        partition: int,
        messages: Sequence[DeferredMessage],
        sent_by: SentBy | None,
        find_refusal: FindRefusal | None = None,
    ) -> DeferReply:
        self.before_write()
        if find_refusal is not None and (code := find_refusal()) is not ErrorCode.NONE:
            return DeferReply(code)
        self.deferred.append((partition, tuple(messages)))
        return DeferReply(self.codes.pop(0)) if self.codes else DONE

    async def cancel(
        self, partition: int, delay_keys: Sequence[DelayKey]
    ) -> tuple[CancelReply, ...] | Failed:
        self.cancelled.append((partition, len(delay_keys)))
        if self.codes:
            return Failed(self.codes.pop(0))
        replies = CancelReply.CANCELLED, CancelReply.UNKNOWN
        return tuple(replies[delay_key.delay_id == "y"] for delay_key in delay_keys)


class FakeBrokers:
    """The other brokers: their responses, and the requests to them."""

    def __init__(self) -> None:
        self.requests: list[tuple[int, PrivateKey, bytes]] = []
        self.response = PrivateResponse(ErrorCode.NONE, None, 0, 0, payload=b"delivered")
        self.failures = 0

    async def call(self, node: BrokerNode, call: Any, *, timeout_ms: int) -> Any:
        raise NotImplementedError

    async def call_private(
        self,
        node: BrokerNode,
        key: PrivateKey,
        versions: range,
        body: Callable[[int], bytes],
        *,
        timeout_ms: int,
    ) -> PrivateResponse:
        self.requests.append((node.id, key, body(versions[-1])))
        if self.failures:
            self.failures -= 1
            raise ConnectionError("the test has cut it")
        return self.response


class Harness:
    def __init__(self, api: ApiHarness) -> None:
        self.api = api
        self.clock: ManualClock = api.clock
        self.shards = FakeShards()
        self.brokers = FakeBrokers()
        self.appends = DeferredAppends(
            ME,
            metadata=api.cluster,
            replicas=api.replicas,
            brokers=self.brokers,
            now_ms=api.clock.now_ms,
        )
        self.config = DeferredConfig()
        self.router = DeferredRouter(
            ME,
            metadata=api.cluster,
            get_coordinator=lambda: self.shards,  # type: ignore[arg-type, return-value]
            brokers=self.brokers,
            appends=self.appends,
            transactions=DeferredTransactions(api.cluster, api.replicas, lambda: api.verifier),
            config=lambda: self.config,
            calls_config=InterBrokerConfig,
            timers=api.clock,
            now_ms=api.clock.now_ms,
            wall_ms=lambda: 0,
        )
        api.update_metadata(brokers=(node(ME), node(OTHER)))

    def defer(
        self,
        *messages: DeferredMessage,
        sent_by: SentBy | None = None,
        transaction: InTransaction | None = None,
    ) -> DeferReply:
        return self.run(self.router.defer(messages, sent_by, transaction, timeout_ms=1_000))

    def cancel(self, *delay_ids: str) -> dict[str, CancelReply] | Failed:
        keys = [DelayKey(TARGET.topic_id, delay_id) for delay_id in delay_ids]
        replies = self.run(self.router.cancel(keys, timeout_ms=1_000))
        if isinstance(replies, Failed):
            return replies
        return {key.delay_id: reply for key, reply in replies.items()}

    def deliver_now(self) -> CancelReply | Failed:
        key = DelayKey(TARGET.topic_id, "x")
        return self.run(self.router.deliver_now(key, timeout_ms=1_000))

    def append(self, target: Target, *, sequence: int = 0, here: bool = False) -> ErrorCode:
        data = batch(producer_id=FIRST_DELIVERER_ID, producer_epoch=0, base_sequence=sequence)
        if here:
            return self.run(self.appends.append_here(target, data, timeout_ms=100)).code
        return self.run(self.appends.append(target, data, timeout_ms=100))

    def run(self, work: Awaitable[Result]) -> Result:
        """Time passes only while everything waits for it."""

        async def run() -> Result:
            task = asyncio.ensure_future(work)
            for _ in range(1_000):
                for _ in range(20):
                    await asyncio.sleep(0)
                if task.done():
                    return task.result()
                self.clock.advance_ms(10)
            raise AssertionError("it waits for ever")

        return asyncio.run(run())


@pytest.fixture(name="harness")
def _harness(tmp_path: Path) -> Iterator[ApiHarness]:
    harness = ApiHarness(tmp_path)
    yield harness
    harness.close()


def lead_shards(harness: ApiHarness, leader: Any = ME) -> None:
    harness.make_topic(DEFERRED_TOPIC, 4, replicas=(ME, OTHER), leader=leader)


def test_messages_of_a_batch_go_to_the_shard_of_each(harness: ApiHarness) -> None:
    parts = Harness(harness)
    lead_shards(harness)
    assert parts.defer(message(0), message(1), message(0)) == DONE
    assert sorted(parts.shards.deferred) == [(0, (message(0), message(0))), (1, (message(1),))]


def test_a_shard_elsewhere_is_asked_there(harness: ApiHarness) -> None:
    parts = Harness(harness)
    lead_shards(harness, OTHER)
    assert parts.defer(message(), sent_by=PRODUCED).code is ErrorCode.NONE
    assert parts.deliver_now() is CancelReply.DELIVERED
    (first, second) = parts.brokers.requests
    assert first[:2] == (OTHER, PrivateKey.DEFER_MESSAGES)
    assert decode_defer_messages(first[2], 1) == DeferMessagesRequest(2, [message()], PRODUCED)
    assert second[1] is PrivateKey.END_DEFERRED
    assert decode_end_deferred(second[2], 0).deliver_now
    parts.brokers.response = PrivateResponse(ErrorCode.POLICY_VIOLATION, "too many", 0, 0)
    assert parts.defer(message()) == DeferReply(ErrorCode.POLICY_VIOLATION, "too many")
    assert parts.deliver_now() == Failed(ErrorCode.POLICY_VIOLATION)
    assert parts.cancel("x") == Failed(ErrorCode.POLICY_VIOLATION)


def test_messages_are_cancelled_by_one_request_for_each_shard(harness: ApiHarness) -> None:
    parts = Harness(harness)
    lead_shards(harness)
    done, unknown = CancelReply.CANCELLED, CancelReply.UNKNOWN
    expected = {"x": done, "y": unknown, "z": done}
    assert parts.cancel("z", "x", "y", "x") == expected
    assert sorted(parts.shards.cancelled) == [(1, 2), (2, 1)]
    parts.shards.codes = [ErrorCode.NOT_COORDINATOR]
    assert parts.cancel("x", "y", "z") == expected, "one shard was on its way"
    many = [str(number) for number in range(MAX_CANCELS + 1)]
    parts.shards.cancelled.clear()
    assert parts.cancel(*many) == dict.fromkeys(many, done)
    assert parts.shards.cancelled == [(1, MAX_CANCELS), (1, 1)]


def test_messages_of_a_shard_elsewhere_are_cancelled_together(harness: ApiHarness) -> None:
    parts = Harness(harness)
    lead_shards(harness, OTHER)
    replies = CancelReply.DELIVERED, CancelReply.CANCELLED
    payload = encode_ends(replies)
    parts.brokers.response = PrivateResponse(ErrorCode.NONE, None, 0, 0, payload=payload)
    assert parts.cancel("x", "y") == dict(zip("xy", replies, strict=True))
    ((_, _, body),) = parts.brokers.requests
    keys = [DelayKey(TARGET.topic_id, delay_id) for delay_id in "xy"]
    assert decode_end_deferred(body, 1) == EndDeferredRequest(1, keys, deliver_now=False)


@pytest.mark.parametrize("is_added", [False, True])
def test_a_shard_joins_the_transaction_of_its_messages(harness: ApiHarness, is_added: bool) -> None:
    """A producer that adds its partitions by itself may be late: the target is verified again."""
    parts, transaction = Harness(harness), InTransaction("mine", is_added)
    lead_shards(harness)
    harness.make_topic("orders", 3, topic_id=TARGET.topic_id)
    assert parts.defer(message(), sent_by=PRODUCED, transaction=transaction) == DONE
    verified = [(request.partitions, request.adds) for request in harness.verifier.requests]
    shard, target = TopicPartition(DEFERRED_TOPIC, 2), TopicPartition("orders", 2)
    assert verified == [((shard,), True)] + ([] if is_added else [((target,), False)])
    harness.verifier.codes[shard if is_added else target] = ErrorCode.TRANSACTION_ABORTABLE
    refused = parts.defer(message(), sent_by=PRODUCED, transaction=transaction)
    assert refused.code is ErrorCode.TRANSACTION_ABORTABLE
    assert len(parts.shards.deferred) == 1


def test_a_shard_writes_nothing_for_a_transaction_that_has_ended(harness: ApiHarness) -> None:
    parts, transaction = Harness(harness), InTransaction("mine", True)
    lead_shards(harness)
    partition = harness.replicas.get(TopicPartition(DEFERRED_TOPIC, 2))

    def end() -> None:
        assert partition.leadership is not None
        partition.leadership.verifications.on_marker(PRODUCED.producer_id, 0)

    parts.shards.before_write = end
    refused = parts.defer(message(), sent_by=PRODUCED, transaction=transaction)
    assert refused.code is ErrorCode.TRANSACTION_ABORTABLE
    assert parts.shards.deferred == []
    assert partition.leadership is not None
    assert len(partition.leadership.verifications) == 0


def test_it_is_tried_again_while_the_shard_is_on_its_way(harness: ApiHarness) -> None:
    parts = Harness(harness)
    lead_shards(harness)
    parts.shards.codes = [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
    assert parts.defer(message()) == DONE
    assert len(parts.shards.deferred) == 3
    parts.shards.codes = [ErrorCode.NOT_COORDINATOR] * 1000
    began_ms = parts.clock.now_ms()
    assert parts.defer(message()).code is ErrorCode.NOT_COORDINATOR
    assert parts.clock.now_ms() - began_ms <= 1_000


def test_what_may_be_done_is_repeated_only_if_that_is_recognised(harness: ApiHarness) -> None:
    parts = Harness(harness)
    lead_shards(harness, OTHER)
    parts.brokers.failures = 1
    assert parts.defer(message()).code is AWAY
    parts.brokers.failures = 2
    assert parts.defer(message(), sent_by=PRODUCED).code is ErrorCode.NONE
    parts.brokers.failures = 1
    assert parts.cancel("x") == {"x": CancelReply.DELIVERED}


def test_nothing_is_tried_again_by_a_broker_that_stops(harness: ApiHarness) -> None:
    parts = Harness(harness)
    lead_shards(harness)
    parts.shards.codes = [ErrorCode.NOT_COORDINATOR] * 1000

    async def stop() -> DeferReply:
        asyncio.get_running_loop().call_soon(parts.router.close)
        return await parts.router.defer([message()], None, timeout_ms=10**9)

    assert asyncio.run(stop()).code is ErrorCode.NOT_COORDINATOR


def test_a_delay_above_the_limit_reaches_no_shard(harness: ApiHarness) -> None:
    parts = Harness(harness)
    lead_shards(harness)
    parts.config = DeferredConfig(max_delay_ms=10_000)
    reply = parts.defer(message(due_ms=10_000), message(due_ms=10_001))
    assert reply.code is ErrorCode.POLICY_VIOLATION
    assert "penstock.delayed.max.ms" in (reply.message or "")
    assert parts.shards.deferred == []


def test_without_the_topic_nothing_has_ever_waited(harness: ApiHarness) -> None:
    assert Harness(harness).cancel("x") == {"x": CancelReply.UNKNOWN}
    assert Harness(harness).deliver_now() is CancelReply.UNKNOWN


def test_a_target_of_this_broker_takes_a_delivery_once(harness: ApiHarness) -> None:
    parts = Harness(harness)
    topic = harness.make_topic("orders", configs={"max.message.bytes": "60"})
    target = Target(topic.topic_id, 0)
    for sequence in (0, 0, 1, 7):  # the last has a gap: this partition has lost something
        assert parts.append(target, sequence=sequence) is ErrorCode.NONE
    assert harness.replicas.get(TopicPartition("orders", 0)).log.log_end_offset == 3


def test_a_target_elsewhere_is_asked_there(harness: ApiHarness) -> None:
    parts = Harness(harness)
    topic = harness.make_topic("orders", 3, replicas=(ME, OTHER), leader=OTHER)
    target = Target(topic.topic_id, 2)
    payload = encode_base_offset(5)
    parts.brokers.response = PrivateResponse(ErrorCode.NONE, None, 0, 0, payload=payload)
    assert parts.append(target) is ErrorCode.NONE
    ((broker, key, body),) = parts.brokers.requests
    assert (broker, key) == (OTHER, PrivateKey.APPEND_DEFERRED)
    assert decode_append_deferred(body).target == target
    parts.brokers.failures = 1
    assert parts.append(target) is AWAY
    assert parts.append(target, here=True) is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_topic_is_deleted_once_it_is_absent_for_a_while(harness: ApiHarness) -> None:
    """One that was just created may be missing, too."""
    parts = Harness(harness)
    assert parts.append(TARGET) is LEADER
    harness.clock.advance_ms(DELETED_AFTER_MS - 100)
    assert parts.append(TARGET) is LEADER
    harness.clock.advance_ms(200)
    assert parts.append(TARGET) is ErrorCode.UNKNOWN_TOPIC_ID
    harness.make_topic("orders", 3, topic_id=TARGET.topic_id)
    assert parts.append(TARGET) is ErrorCode.NONE


def test_a_topic_that_was_created_anew_is_another_target(harness: ApiHarness) -> None:
    parts = Harness(harness)
    harness.make_topic("orders", 3, topic_id=TARGET.topic_id)
    assert parts.append(TARGET, here=True) is ErrorCode.NONE
    assert parts.append(Target(TopicId(UUID(int=1)), 0), here=True) is not ErrorCode.NONE
    assert parts.append(TARGET._replace(partition=3)) is LEADER


def test_requests_between_brokers_are_read_as_they_were_written() -> None:
    key = DelayKey(TARGET.topic_id, "an id")
    defer = DeferMessagesRequest(3, [message(), message(1, "x")], None)
    now = EndDeferredRequest(4, [key], deliver_now=True)
    cancels = EndDeferredRequest(4, [key, key._replace(delay_id="y")], deliver_now=False)
    append = AppendDeferredRequest(TARGET, 1_000, b"\0\1")
    transaction = InTransaction("mine", True)
    committed = [message()._replace(commit_delay_ms=5)]
    in_transaction = DeferMessagesRequest(3, committed, PRODUCED, transaction)
    assert decode_defer_messages(encode_defer_messages(defer, 0), 0) == defer
    assert decode_defer_messages(encode_defer_messages(defer, 1), 1) == defer
    assert decode_defer_messages(encode_defer_messages(in_transaction, 1), 1) == in_transaction
    assert decode_end_deferred(encode_end_deferred(now, 0), 0) == now
    assert decode_end_deferred(encode_end_deferred(cancels, 1), 1) == cancels
    assert decode_ends(encode_ends(tuple(CancelReply))) == tuple(CancelReply)
    assert decode_append_deferred(encode_append_deferred(append)) == append
