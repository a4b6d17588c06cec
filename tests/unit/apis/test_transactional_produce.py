"""Produce in a transaction: who is asked, what is written, and what a late answer is worth."""

from datetime import timedelta

import pytest
from tests.unit.apis.workbench import (
    ME,
    NOW_MS,
    OTHER,
    Connection,
    Sent,
    Workbench,
    batch,
)

from penstock.model.cluster import OFFSETS_TOPIC
from penstock.model.errors import ErrorCode, get_error
from penstock.model.ids import TopicPartition
from penstock.network.receive_memory import ReceiveMemory
from penstock.protocol.api_keys import ApiKey
from penstock.protocol.control import build_end_marker_batch
from penstock.storage.engine import AppendOrigin

KEY = ApiKey.PRODUCE
P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
PRODUCER = 5
Records = bytes | bytearray | None


@pytest.fixture(name="bench")
def _bench(bench: Workbench) -> Workbench:
    bench.make_topic("orders", 2)
    return bench


def transactional(
    sequence: int = 0, *, producer: int = PRODUCER, epoch: int = 0, value: bytes = b"v"
) -> bytearray:
    return batch(
        value,
        producer_id=producer,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=True,
    )


def send(
    bench: Workbench,
    entries: dict[int, Records],
    *,
    version: int = 12,
    topic: str = "orders",
    connection: Connection | None = None,
) -> Sent:
    partitions = [{"index": index, "records": each} for index, each in entries.items()]
    return bench.send(
        KEY,
        version,
        acks=-1,
        timeout=timedelta(seconds=1),
        transactional_id="mine",
        topic_data=[{"name": topic, "partition_data": partitions}],
        connection=connection,
    )


def codes(sent: Sent) -> list[ErrorCode]:
    return [
        get_error(response.error_code)
        for topic in sent.reply.responses
        for response in topic.partition_responses
    ]


def mark(bench: Workbench, *, epoch: int = 0, commit: bool = True) -> None:
    """As a marker that is written to the first partition."""
    partition = bench.replicas.get(P0)
    assert partition.leadership is not None
    partition.leadership.verifications.on_marker(PRODUCER, epoch)
    marker = build_end_marker_batch(
        commit=commit,
        coordinator_epoch=0,
        producer_id=PRODUCER,
        producer_epoch=epoch,
        timestamp_ms=NOW_MS,
    )
    bench.replicas.append(
        [(P0, memoryview(marker))],
        acks=-1,
        timeout_ms=0,
        origin=AppendOrigin.COORDINATOR,
        done=lambda answers: None,
    )


@pytest.mark.parametrize("version", range(3, 13))
def test_the_first_batch_of_a_transaction_asks_and_the_next_ones_do_not(
    bench: Workbench, version: int
) -> None:
    assert codes(send(bench, {0: transactional(), 1: transactional()}, version=version)) == [
        ErrorCode.NONE,
        ErrorCode.NONE,
    ]
    assert codes(send(bench, {0: transactional(1)}, version=version)) == [ErrorCode.NONE]
    (asked,) = bench.verifier.asked
    assert asked[:4] == ("mine", PRODUCER, 0, (P0, P1))
    assert asked.adds is (version >= 12)
    log = bench.replicas.get(P0).log
    assert (log.log_end_offset, log.last_stable_offset) == (2, 0)


def test_after_its_end_the_next_transaction_asks_again(bench: Workbench) -> None:
    send(bench, {0: transactional()})
    mark(bench)
    assert codes(send(bench, {0: transactional(1)})) == [ErrorCode.NONE]
    assert len(bench.verifier.asked) == 2


def test_an_epoch_that_the_log_has_not_seen_in_the_transaction_asks_again(
    bench: Workbench,
) -> None:
    send(bench, {0: transactional()})
    assert codes(send(bench, {0: transactional(epoch=1)})) == [ErrorCode.NONE]
    assert [each.producer_epoch for each in bench.verifier.asked] == [0, 1]


def test_plain_batches_of_the_same_request_are_written_without_a_question(
    bench: Workbench,
) -> None:
    bench.verifier.codes[P0] = ErrorCode.TRANSACTION_ABORTABLE
    sent = send(bench, {0: transactional(), 1: batch(b"plain")})
    assert codes(sent) == [ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.NONE]
    assert bench.verifier.asked[0].partitions == (P0,)
    assert bench.replicas.get(P0).log_end_offset == 0


# -- what a coordinator says, and what clients of each age are told -------------------------

RETRY = ErrorCode.NOT_ENOUGH_REPLICAS
NOT_PART_OF_IT = ErrorCode.TRANSACTION_ABORTABLE


@pytest.mark.parametrize(
    ("said", "version", "told"),
    [
        (NOT_PART_OF_IT, 10, ErrorCode.INVALID_TXN_STATE),
        (NOT_PART_OF_IT, 11, NOT_PART_OF_IT),
        (NOT_PART_OF_IT, 12, NOT_PART_OF_IT),
        (ErrorCode.INVALID_TXN_STATE, 12, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.INVALID_PRODUCER_EPOCH, 9, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, 9, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        *(
            (said, version, RETRY)
            for said in (
                ErrorCode.CONCURRENT_TRANSACTIONS,
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
                ErrorCode.COORDINATOR_NOT_AVAILABLE,
                ErrorCode.NETWORK_EXCEPTION,
                ErrorCode.NOT_COORDINATOR,
                ErrorCode.REQUEST_TIMED_OUT,
            )
            for version in (9, 12)
        ),
    ],
)
def test_what_the_coordinator_says_reaches_the_client_in_words_it_knows(
    bench: Workbench, said: ErrorCode, version: int, told: ErrorCode
) -> None:
    bench.verifier.codes[P1] = said
    sent = send(bench, {1: transactional(), 0: transactional()}, version=version)
    assert codes(sent) == [told, ErrorCode.NONE]
    assert [bench.replicas.get(each).log_end_offset for each in (P0, P1)] == [1, 0]


def test_without_verification_only_version_2_asks(bench: Workbench) -> None:
    bench.set_settings({"transaction.partition.verification.enable": "false"})
    assert codes(send(bench, {0: transactional()}, version=11)) == [ErrorCode.NONE]
    assert bench.verifier.asked == []
    assert codes(send(bench, {1: transactional()}, version=12)) == [ErrorCode.NONE]
    assert len(bench.verifier.asked) == 1


def test_a_fenced_producer_learns_so_without_a_question(bench: Workbench) -> None:
    send(bench, {0: transactional(epoch=3)})
    assert codes(send(bench, {0: transactional(epoch=2)})) == [ErrorCode.INVALID_PRODUCER_EPOCH]
    assert len(bench.verifier.asked) == 1


# -- answers that take their time ----------------------------------------------------------


def test_the_next_request_waits_while_the_coordinator_is_asked(bench: Workbench) -> None:
    bench.verifier.answers_at_once = False
    connection = Connection()
    sent = send(bench, {0: transactional(value=b"kept"), 1: batch()}, connection=connection)
    assert not sent.is_answered
    assert connection.may_start_next == 0
    assert bench.replicas.get(P1).log_end_offset == 0
    bench.verifier.answer(0)
    assert codes(sent) == [ErrorCode.NONE, ErrorCode.NONE]
    assert bench.replicas.get(P0).log.producers.first_unstable_offset == 0


@pytest.mark.parametrize(
    ("version", "code"),
    [(10, ErrorCode.INVALID_TXN_STATE), (12, ErrorCode.TRANSACTION_ABORTABLE)],
)
def test_an_answer_from_before_a_marker_is_worth_nothing(
    bench: Workbench, version: int, code: ErrorCode
) -> None:
    """Else a late batch opens a transaction that nobody ends (KAFKA-14402)."""
    bench.verifier.answers_at_once = False
    sent = send(bench, {0: transactional()}, version=version)
    mark(bench)
    bench.verifier.answer(0)
    assert codes(sent) == [code]
    partition = bench.replicas.get(P0)
    assert partition.last_stable_offset == partition.high_watermark == 1


def test_a_marker_of_a_later_epoch_fences_what_was_asked_about(bench: Workbench) -> None:
    bench.verifier.answers_at_once = False
    sent = send(bench, {0: transactional()})
    mark(bench, epoch=1, commit=False)
    bench.verifier.answer(0)
    assert codes(sent) == [ErrorCode.INVALID_PRODUCER_EPOCH]


def test_an_answer_to_an_earlier_leadership_is_worth_nothing(bench: Workbench) -> None:
    bench.verifier.answers_at_once = False
    sent = send(bench, {0: transactional()})
    bench.make_topic("orders", 2, epoch=1, replicas=(ME, OTHER), leader=OTHER)
    bench.make_topic("orders", 2, epoch=2)
    bench.verifier.answer(0)
    assert codes(sent) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert bench.replicas.get(P0).log_end_offset == 0


def test_a_partition_led_only_since_the_question_is_not_written_to_unasked(
    bench: Workbench,
) -> None:
    bench.verifier.answers_at_once = False
    bench.make_topic("others", 2, replicas=(ME, OTHER), leader=OTHER)
    partitions = [
        {"name": name, "partition_data": [{"index": 0, "records": transactional()}]}
        for name in ("others", "orders")
    ]
    sent = bench.send(
        KEY,
        12,
        acks=-1,
        timeout=timedelta(seconds=1),
        transactional_id="mine",
        topic_data=partitions,
    )
    bench.make_topic("others", 2, epoch=1)
    bench.verifier.answer(0)
    assert codes(sent) == [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NONE]


def test_a_batch_that_was_asked_about_does_not_slip_into_the_next_transaction(
    bench: Workbench,
) -> None:
    bench.verifier.answers_at_once = False
    late = send(bench, {0: transactional(0)}, version=11, connection=Connection())
    mark(bench)
    following = send(bench, {0: transactional(0)}, version=11, connection=Connection())
    bench.verifier.answer(1)
    bench.verifier.answer(0)
    assert codes(following) == [ErrorCode.NONE]
    assert codes(late) == [ErrorCode.TRANSACTION_ABORTABLE]


def test_a_client_that_left_meanwhile_costs_nothing(bench: Workbench) -> None:
    bench.verifier.answers_at_once = False
    connection = Connection()
    send(bench, {0: transactional()}, connection=connection)
    connection.close("gone")
    assert connection.memory.held_bytes > 0  # it still waits
    bench.verifier.answer(0)
    assert bench.replicas.get(P0).log_end_offset == 1
    assert connection.memory.held_bytes == 0


def test_what_waits_for_its_coordinator_counts_as_received(bench: Workbench) -> None:
    memory = bench.connection.memory
    batches = [transactional(value=bytes(size)) for size in (1000, 3000)]
    send(bench, {0: transactional(producer=PRODUCER + 1)})
    assert memory.held_bytes == 0  # it was known at once
    bench.verifier.answers_at_once = False
    sent = send(bench, dict(enumerate(batches)))
    assert memory.held_bytes == len(batches[0]) + len(batches[1])
    bench.verifier.answer(-1)
    assert codes(sent) == [ErrorCode.NONE, ErrorCode.NONE]
    assert memory.held_bytes == 0


def test_where_no_room_is_left_the_client_is_to_try_again_and_one_at_least_gets_through(
    bench: Workbench,
) -> None:
    bench.verifier.answers_at_once = False
    bench.connection.memory = ReceiveMemory(total_bytes=0, max_request_bytes=2_000_000)
    large = bytes(900_000)
    first = send(bench, {0: transactional(value=large)})
    second = send(bench, {0: transactional(value=large, producer=PRODUCER + 1), 1: batch()})
    assert codes(second) == [ErrorCode.NOT_ENOUGH_REPLICAS] * 2
    for place in (0, 1):
        bench.verifier.answer(place)
    assert codes(first) == [ErrorCode.NONE]
    assert [bench.replicas.get(each).log_end_offset for each in (P0, P1)] == [1, 0]
    again = send(bench, {0: transactional(value=large, producer=PRODUCER + 1)})
    bench.verifier.answer(-1)
    assert codes(again) == [ErrorCode.NONE]


# -- what nobody is asked about --------------------------------------------------------------


def test_a_damaged_batch_is_to_be_sent_again_whatever_producer_it_names(
    bench: Workbench,
) -> None:
    damaged = transactional()
    damaged[45] ^= 0xFF  # in the producer's id
    assert codes(send(bench, {0: damaged, 1: transactional()})) == [
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.NONE,
    ]
    assert [each.producer_id for each in bench.verifier.asked] == [PRODUCER]


def test_a_batch_that_claims_more_bytes_than_there_are_is_damaged(bench: Workbench) -> None:
    torn = transactional(value=b"v" * 50)[:-10]
    assert codes(send(bench, {0: torn})) == [ErrorCode.CORRUPT_MESSAGE]


def test_one_request_has_one_producer(bench: Workbench) -> None:
    sent = send(bench, {0: transactional(), 1: transactional(producer=6)})
    assert codes(sent) == [ErrorCode.INVALID_PRODUCER_ID_MAPPING] * 2
    assert bench.verifier.asked == []


def test_without_a_producer_id_there_is_no_transaction(bench: Workbench) -> None:
    nobodys = batch(b"v", transactional=True)
    assert codes(send(bench, {0: nobodys})) == [ErrorCode.INVALID_RECORD]
    assert bench.verifier.asked == []


def test_internal_topics_are_not_added_to_a_transaction_by_a_write(bench: Workbench) -> None:
    bench.make_topic(OFFSETS_TOPIC, 1)
    sent = send(bench, {0: transactional()}, topic=OFFSETS_TOPIC)
    assert codes(sent) == [ErrorCode.INVALID_TOPIC_EXCEPTION]
    assert bench.verifier.asked == []
