"""Produce on topics with delayed messages: what is deferred, appended and answered, in order."""

import asyncio
from datetime import timedelta

import pytest
from tests.unit.apis.harness import NOW_MS, ApiHarness, Sent

from penstock.apis.data.divided_produce import CANCELS_AT_ONCE
from penstock.coordinators.deferred.cancel import CancelReply
from penstock.coordinators.deferred.defer import DeferReply
from penstock.coordinators.deferred.values import (
    DelayKey,
    InTransaction,
    SequenceRange,
    Target,
)
from penstock.coordinators.runtime.pending_replies import Failed
from penstock.model.errors import ErrorCode, get_error
from penstock.model.ids import TopicPartition
from penstock.model.producer_ids import FIRST_DELIVERER_ID
from penstock.network.receive_memory import ReceiveMemory
from penstock.protocol.api_keys import ApiKey
from penstock.protocol.batch import BatchHeader, iter_headers
from penstock.protocol.compression import Codec
from penstock.protocol.records import Record, RecordHeaders, build_batch, iter_records
from penstock.security.authorizer import AclOperation, ResourceType

P0 = TopicPartition("reminders", 0)
DELAYED = {"penstock.delayed.messages": "true"}
LATER: RecordHeaders = (("penstock-delay-ms", b"5000"), ("trace", b"t"))
CANCEL_X: RecordHeaders = (("penstock-delay-cancel", b"x"),)
PRODUCER = 7


def with_id(delay_id: bytes) -> RecordHeaders:
    return (("penstock-delay-ms", b"5000"), ("penstock-delay-id", delay_id))


@pytest.fixture(name="harness")
def _harness(harness: ApiHarness) -> ApiHarness:
    harness.make_topic("reminders", configs=DELAYED)
    return harness


def build(
    *headers: RecordHeaders, sequence: int | None = None, codec: Codec = Codec.NONE
) -> bytearray:
    records = [
        Record(index, NOW_MS + index, b"k", b"value %d" % index, given)
        for index, given in enumerate(headers)
    ]
    if sequence is None:
        return build_batch(records, codec=codec)
    return build_batch(
        records, codec=codec, producer_id=PRODUCER, producer_epoch=0, base_sequence=sequence
    )


def send(
    harness: ApiHarness, *batches: bytearray, topic: str = "reminders", acks: int = -1
) -> Sent:
    return harness.send(
        ApiKey.PRODUCE,
        9,
        acks=acks,
        timeout=timedelta(seconds=2),
        topic_data=[
            {
                "name": topic,
                "partition_data": [
                    {"index": index, "records": records} for index, records in enumerate(batches)
                ],
            }
        ],
    )


def result(sent: Sent) -> tuple[ErrorCode, int]:
    ((response,),) = (topic.partition_responses for topic in sent.reply.responses)
    return get_error(response.error_code), response.base_offset


def message_of(sent: Sent) -> str:
    ((response,),) = (topic.partition_responses for topic in sent.reply.responses)
    return response.error_message or ""


def stored(harness: ApiHarness, tp: TopicPartition = P0) -> list[tuple[BatchHeader, bytes]]:
    log = harness.replicas.get(tp).log
    read = log.read(
        log.log_start_offset, below=log.log_end_offset, max_bytes=1_000_000, at_least_one=True
    )
    try:
        import os

        data = b"".join(os.pread(part.fd, part.length, part.position) for part in read.slices)
    finally:
        read.lease.release()
    return [(header, data[at : at + header.size]) for at, header in iter_headers(data)]


def values(harness: ApiHarness) -> list[tuple[int, bytes | None]]:
    return [
        (record.offset, record.value)
        for header, batch in stored(harness)
        if not header.is_control
        for record in iter_records(batch)
    ]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.ZSTD])
def test_what_waits_is_deferred_and_the_rest_keeps_its_offsets(
    harness: ApiHarness, codec: Codec
) -> None:
    sent = send(harness, build((), LATER, (), codec=codec))
    assert result(sent) == (ErrorCode.NONE, 0)
    assert values(harness) == [(0, b"value 0"), (2, b"value 2")]
    ((message, sent_by),) = harness.deferred.deferred
    assert sent_by is None
    assert message.value == b"value 1"
    assert message.due_ms == NOW_MS + 5000
    assert message.headers == (("trace", b"t"),)
    assert message.target == Target(harness.replicas.get(P0).log.topic_id, 0)


def test_a_batch_that_waits_as_a_whole_leaves_its_sequences_in_the_log(harness: ApiHarness) -> None:
    assert result(send(harness, build(LATER, LATER, sequence=0))) == (ErrorCode.NONE, -1)
    ((header, _),) = stored(harness)
    assert header.is_control
    assert not header.is_marker
    assert (header.base_sequence, header.last_sequence, header.last_offset) == (0, 1, 1)
    (_, sent_by), _ = harness.deferred.deferred
    assert sent_by is not None
    assert sent_by.sequences == SequenceRange(0, 1)
    assert result(send(harness, build((), sequence=2))) == (ErrorCode.NONE, 2)


def test_nothing_is_appended_for_a_plain_batch_that_waits_as_a_whole(harness: ApiHarness) -> None:
    assert result(send(harness, build(LATER))) == (ErrorCode.NONE, -1)
    assert stored(harness) == []
    assert len(harness.deferred.deferred) == 1


def test_a_repeated_batch_is_not_deferred_again(harness: ApiHarness) -> None:
    for batch, offset in ((build((), LATER, sequence=0), 0), (build(LATER, sequence=2), -1)):
        assert result(send(harness, bytearray(batch))) == (ErrorCode.NONE, offset)
        assert result(send(harness, batch)) == (ErrorCode.NONE, offset)
    assert len(harness.deferred.deferred) == 2
    assert len(stored(harness)) == 2


def test_sequences_are_checked_before_anything_is_deferred(harness: ApiHarness) -> None:
    assert result(send(harness, build((), sequence=0))) == (ErrorCode.NONE, 0)
    sent = send(harness, build(LATER, sequence=5))
    assert result(sent)[0] is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert harness.deferred.deferred == []


def test_nothing_is_appended_until_what_waits_is_durable(harness: ApiHarness) -> None:
    harness.runs_at_once = False
    sent = send(harness, build((), LATER, sequence=0))
    assert not sent.is_answered
    assert stored(harness) == []
    assert harness.connection.may_start_next == 0, "the next batch would overtake this one"
    harness.run_tasks()
    assert result(sent) == (ErrorCode.NONE, 0)
    assert harness.deferred.steps == ["defer"]


def test_nothing_is_appended_if_what_waits_is_refused(harness: ApiHarness) -> None:
    for code, expected in (
        (ErrorCode.NOT_COORDINATOR, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.NETWORK_EXCEPTION, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.POLICY_VIOLATION, ErrorCode.POLICY_VIOLATION),
        (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_EPOCH),
    ):
        harness.deferred.reply = DeferReply(code, "because of the test")
        sent = send(harness, build((), LATER, sequence=0))
        assert result(sent) == (expected, -1)
        assert "because of the test" in message_of(sent)
    assert stored(harness) == []


def test_headers_mean_nothing_on_other_topics(harness: ApiHarness) -> None:
    harness.make_topic("plain")
    assert result(send(harness, build(LATER), topic="plain")) == (ErrorCode.NONE, 0)
    assert harness.deferred.deferred == []
    ((_, batch),) = stored(harness, TopicPartition("plain", 0))
    (record,) = iter_records(batch)
    assert record.headers == LATER


def test_the_setting_can_be_taken_back(harness: ApiHarness) -> None:
    harness.make_topic("reminders", configs={}, epoch=1)
    assert result(send(harness, build(LATER))) == (ErrorCode.NONE, 0)
    assert harness.replicas.delayed_topics == harness.replicas.looked_into == set()


@pytest.mark.parametrize(
    ("headers", "text"),
    [
        ((("penstock-delay-ms", b"soon"),), "it takes milliseconds"),
        ((("penstock-delay-id", b"x"),), "needs penstock-deliver-at"),
        ((("penstock-deliver-at", None),), "is null"),
    ],
)
def test_a_header_that_cannot_be_understood_refuses_its_record(
    harness: ApiHarness, headers: RecordHeaders, text: str
) -> None:
    sent = send(harness, build((), headers, LATER))
    assert result(sent) == (ErrorCode.INVALID_RECORD, -1)
    ((response,),) = (topic.partition_responses for topic in sent.reply.responses)
    (error,) = response.record_errors
    assert error.batch_index == 1
    assert text in error.batch_index_error_message
    assert (stored(harness), harness.deferred.deferred) == ([], [])


def test_a_batch_that_would_be_refused_without_delays_is_refused_before(
    harness: ApiHarness,
) -> None:
    harness.make_topic(
        "small", configs=DELAYED | {"max.message.bytes": "200", "cleanup.policy": "compact"}
    )
    large = build_batch([Record(0, NOW_MS, b"k", bytes(500), LATER)])
    assert result(send(harness, large, topic="small"))[0] is ErrorCode.MESSAGE_TOO_LARGE
    without_key = build_batch([Record(0, NOW_MS, None, b"v", LATER)])
    assert result(send(harness, without_key, topic="small"))[0] is ErrorCode.INVALID_RECORD
    future = build_batch([Record(0, NOW_MS + 86_400_000, b"k", b"v", LATER)])
    assert result(send(harness, future, topic="small"))[0] is ErrorCode.INVALID_TIMESTAMP
    damaged = build(LATER)
    damaged[-1] ^= 1
    assert result(send(harness, damaged))[0] is ErrorCode.CORRUPT_MESSAGE
    assert harness.deferred.deferred == []


# -- transactions ------------------------------------------------------------------------------


def send_in_transaction(
    harness: ApiHarness, *headers: RecordHeaders, sequence: int = 0, version: int = 9
) -> Sent:
    batch = build_batch(
        [Record(index, NOW_MS, b"k", b"v", given) for index, given in enumerate(headers)],
        producer_id=PRODUCER,
        producer_epoch=0,
        base_sequence=sequence,
        transactional=True,
    )
    return harness.send(
        ApiKey.PRODUCE,
        version,
        acks=-1,
        timeout=timedelta(seconds=2),
        transactional_id="mine",
        topic_data=[{"name": "reminders", "partition_data": [{"index": 0, "records": batch}]}],
    )


def write_marker(harness: ApiHarness) -> None:
    """As `replication.marker_append` does, on the leader of the target."""
    leadership = harness.replicas.get(P0).leadership
    assert leadership is not None
    leadership.verifications.on_marker(PRODUCER, 0)


@pytest.mark.parametrize(("version", "is_added"), [(9, False), (12, True)])
def test_records_of_a_transaction_wait_for_its_commit(
    harness: ApiHarness, version: int, is_added: bool
) -> None:
    at: RecordHeaders = (("penstock-deliver-at", b"%d" % (NOW_MS + 9)),)
    sent = send_in_transaction(harness, LATER, at, version=version)
    assert result(sent) == (ErrorCode.NONE, -1)
    assert harness.deferred.transactions == [InTransaction("mine", is_added)]
    delayed, timed = (message for message, _ in harness.deferred.deferred)
    assert (delayed.due_ms, delayed.commit_delay_ms) == (0, 5_000)
    assert (timed.due_ms, timed.commit_delay_ms) == (NOW_MS + 9, 0)
    ((header, _),) = stored(harness)
    assert (header.is_control, header.is_transactional) == (True, True)
    assert harness.replicas.get(P0).log.producers.has_transaction(PRODUCER, 0)


def test_a_batch_of_a_transaction_that_ends_meanwhile_is_not_appended(harness: ApiHarness) -> None:
    """It would open a transaction that nobody ends."""

    async def end() -> None:
        write_marker(harness)

    harness.deferred.before_reply = end
    for headers in ((LATER,), ((), LATER)):
        sent = send_in_transaction(harness, *headers, version=11)
        assert result(sent)[0] is ErrorCode.TRANSACTION_ABORTABLE
    older = send_in_transaction(harness, LATER, version=9)
    assert result(older)[0] is ErrorCode.INVALID_TXN_STATE
    assert stored(harness) == []
    leadership = harness.replicas.get(P0).leadership
    assert leadership is not None
    assert len(leadership.verifications) == 0


def test_a_shard_that_cannot_join_the_transaction_refuses_the_batch(harness: ApiHarness) -> None:
    harness.deferred.reply = DeferReply(ErrorCode.CONCURRENT_TRANSACTIONS)
    assert result(send_in_transaction(harness, LATER))[0] is ErrorCode.NOT_ENOUGH_REPLICAS
    harness.deferred.reply = DeferReply(ErrorCode.INVALID_PRODUCER_EPOCH)
    assert result(send_in_transaction(harness, LATER))[0] is ErrorCode.INVALID_PRODUCER_EPOCH
    assert stored(harness) == []


def test_a_cancel_cannot_be_part_of_a_transaction(harness: ApiHarness) -> None:
    sent = send_in_transaction(harness, CANCEL_X)
    assert result(sent)[0] is ErrorCode.INVALID_RECORD
    assert "outside of the transaction" in message_of(sent)


# -- requests with more, or without answers ----------------------------------------------------


def test_other_partitions_of_the_request_are_appended_and_all_are_answered(
    harness: ApiHarness,
) -> None:
    harness.make_topic("two", 3, configs=DELAYED)
    harness.runs_at_once = False
    wrong = build((("penstock-delay-ms", b"?"),))
    sent = send(harness, build(()), build((), LATER), wrong, topic="two")
    assert not sent.is_answered
    harness.run_tasks()
    (topic,) = sent.reply.responses
    codes = [get_error(response.error_code) for response in topic.partition_responses]
    assert codes == [ErrorCode.NONE, ErrorCode.NONE, ErrorCode.INVALID_RECORD]
    assert len(stored(harness, TopicPartition("two", 0))) == 1
    assert len(stored(harness, TopicPartition("two", 1))) == 1


def test_acks_0_is_not_answered_and_an_error_closes_the_connection(harness: ApiHarness) -> None:
    sent = send(harness, build((), LATER), acks=0)
    assert sent.is_answered
    assert sent.bytes == b""
    send(harness, build((("penstock-delay-ms", b"?"),)), acks=0)
    assert harness.connection.is_closed


def test_a_batch_without_memory_for_it_is_to_be_repeated(harness: ApiHarness) -> None:
    harness.connection.memory = ReceiveMemory(total_bytes=0, max_request_bytes=2_000_000)
    harness.runs_at_once = False
    large = [build_batch([Record(0, NOW_MS, b"k", bytes(900_000), LATER)]) for _ in range(2)]
    first, second = (send(harness, batch) for batch in large)
    assert result(second)[0] is ErrorCode.NOT_ENOUGH_REPLICAS
    assert not first.is_answered
    harness.run_tasks()
    assert result(first)[0] is ErrorCode.NONE


def test_an_unexpected_error_closes_only_this_connection(harness: ApiHarness) -> None:
    harness.deferred.reply = None  # type: ignore[assignment]
    send(harness, build(LATER))
    assert harness.connection.is_closed
    assert len(harness.connection.unexpected_errors) == 1


# -- cancels -----------------------------------------------------------------------------------


def test_a_cancel_is_not_stored_and_is_answered_to_its_reply_topic(harness: ApiHarness) -> None:
    replies = harness.make_topic("replies", 4)
    for word in CancelReply:
        harness.deferred.end_reply = word
        harness.deferred.appended.clear()
        sent = send(harness, build((*CANCEL_X, ("penstock-reply-topic", b"replies")), ()))
        assert result(sent)[0] is ErrorCode.NONE
        ((target, batch),) = harness.deferred.appended
        assert target.topic_id == replies.topic_id
        (record,) = iter_records(batch)
        assert (record.key, record.value) == (b"x", word.value.encode())
        assert dict(record.headers)["penstock-topic"] == b"reminders"
    key = DelayKey(harness.replicas.get(P0).log.topic_id, "x")
    assert harness.deferred.cancelled == [(key,)] * 3
    assert [value for _, value in values(harness)] == [b"value 1"] * 3


def test_a_cancel_takes_effect_in_its_place_among_the_messages(harness: ApiHarness) -> None:
    x, y = with_id(b"x"), with_id(b"y")
    assert result(send(harness, build(x, y, CANCEL_X, x, LATER, sequence=0)))[0] is ErrorCode.NONE
    assert harness.deferred.steps == ["defer", "cancel", "defer"]
    ends = [sent_by.sequences for _, sent_by in harness.deferred.deferred if sent_by is not None]
    assert ends == [SequenceRange(0, 1)] * 2 + [SequenceRange(0, 4)] * 2


def test_the_cancels_of_a_batch_are_asked_and_answered_together(harness: ApiHarness) -> None:
    """One after the other, a large batch would take longer than its producer waits."""
    count = CANCELS_AT_ONCE + 1
    for topic, partitions in (("replies", 2), ("others", 1)):
        harness.make_topic(topic, partitions)
    cancels: list[RecordHeaders] = [
        (
            ("penstock-delay-cancel", b"%d" % number),
            ("penstock-reply-topic", b"replies" if number % 3 else b"others"),
        )
        for number in range(count)
    ]
    assert result(send(harness, build(*cancels)))[0] is ErrorCode.NONE
    assert [len(keys) for keys in harness.deferred.cancelled] == [CANCELS_AT_ONCE, 1]
    assert len(harness.deferred.appended) == 4, "a batch for each partition, then the last one"
    answered = [
        record.key for _, batch in harness.deferred.appended for record in iter_records(batch)
    ]
    assert {key for key in answered if key} == {b"%d" % number for number in range(count)}
    assert len(answered) == count


def test_a_reply_topic_of_small_batches_gets_every_answer(harness: ApiHarness) -> None:
    harness.make_topic("replies")
    harness.deferred.max_answers = 3
    cancels: list[RecordHeaders] = [
        (("penstock-delay-cancel", b"%d" % number), ("penstock-reply-topic", b"replies"))
        for number in range(10)
    ]
    assert result(send(harness, build(*cancels)))[0] is ErrorCode.NONE
    batches = [list(iter_records(batch)) for _, batch in harness.deferred.appended]
    assert [record.key for records in batches for record in records] == [
        b"%d" % number for number in range(10)
    ]
    for records in batches:
        assert [record.offset for record in records] == list(range(len(records)))
    harness.deferred.max_answers = 0
    assert result(send(harness, build(*cancels)))[0] is ErrorCode.MESSAGE_TOO_LARGE


def test_a_repeated_cancel_does_not_cancel_what_came_later(harness: ApiHarness) -> None:
    batch = build(CANCEL_X, sequence=0)
    assert result(send(harness, bytearray(batch))) == (ErrorCode.NONE, -1)
    assert result(send(harness, build(with_id(b"x"), sequence=1))) == (ErrorCode.NONE, -1)
    assert result(send(harness, batch)) == (ErrorCode.NONE, -1)
    assert len(harness.deferred.cancelled) == 1


def test_a_reply_topic_must_exist_and_be_allowed(harness: ApiHarness) -> None:
    headers = (*CANCEL_X, ("penstock-reply-topic", b"replies"))
    sent = send(harness, build(headers))
    assert result(sent)[0] is ErrorCode.INVALID_RECORD
    assert "does not exist" in message_of(sent)
    harness.make_topic("replies")
    harness.guard.deny(AclOperation.WRITE, ResourceType.TOPIC, "replies")
    sent = send(harness, build(headers))
    assert result(sent)[0] is ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert harness.deferred.cancelled == []


def test_a_cancel_that_finds_no_shard_is_to_be_repeated(harness: ApiHarness) -> None:
    harness.deferred.end_reply = Failed(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert result(send(harness, build(CANCEL_X, ())))[0] is ErrorCode.NOT_ENOUGH_REPLICAS
    assert stored(harness) == []


# -- what brokers deliver ----------------------------------------------------------------------


def test_clients_may_not_use_the_ids_of_delivering_brokers(harness: ApiHarness) -> None:
    batch = build_batch(
        [Record(0, NOW_MS, b"k", b"v")],
        producer_id=FIRST_DELIVERER_ID,
        producer_epoch=0,
        base_sequence=0,
    )
    assert result(send(harness, batch))[0] is ErrorCode.INVALID_RECORD


def test_a_producer_that_went_on_elsewhere_is_not_followed_late(harness: ApiHarness) -> None:
    """A batch waited for its shard while its producer sent it again, over another connection."""
    harness.runs_at_once = False
    batch = build(with_id(b"x"), CANCEL_X, sequence=0)
    late = send(harness, bytearray(batch))
    second = send(harness, batch)
    asyncio.run(harness.tasks.pop())
    assert result(second) == (ErrorCode.NONE, -1)
    steps = list(harness.deferred.steps)
    harness.run_tasks()
    assert result(late) == (ErrorCode.NONE, -1)
    assert harness.deferred.steps == steps
    outdated = send(harness, build((), LATER, sequence=2))
    send(harness, build((), sequence=2))
    send(harness, build((), (), sequence=3))
    harness.run_tasks()
    assert result(outdated)[0] is not ErrorCode.NONE
    assert harness.deferred.steps == steps
