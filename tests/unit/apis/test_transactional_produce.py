"""Produce in a transaction: verification, appends, and late verifications."""

from datetime import timedelta

import pytest
from tests.unit.apis.harness import (
    ME,
    NOW_MS,
    OTHER,
    ApiHarness,
    FakeConnection,
    Sent,
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


@pytest.fixture(name="harness")
def _harness(harness: ApiHarness) -> ApiHarness:
    harness.make_topic("orders", 2)
    return harness


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
    harness: ApiHarness,
    entries: dict[int, Records],
    *,
    version: int = 12,
    topic: str = "orders",
    connection: FakeConnection | None = None,
) -> Sent:
    partitions = [{"index": index, "records": entry} for index, entry in entries.items()]
    return harness.send(
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


def mark(harness: ApiHarness, *, epoch: int = 0, commit: bool = True) -> None:
    """Write a marker to the first partition."""
    partition = harness.replicas.get(P0)
    assert partition.leadership is not None
    partition.leadership.verifications.on_marker(PRODUCER, epoch)
    marker = build_end_marker_batch(
        commit=commit,
        coordinator_epoch=0,
        producer_id=PRODUCER,
        producer_epoch=epoch,
        timestamp_ms=NOW_MS,
    )
    harness.replicas.append(
        [(P0, memoryview(marker))],
        acks=-1,
        timeout_ms=0,
        origin=AppendOrigin.COORDINATOR,
        done=lambda answers: None,
    )


@pytest.mark.parametrize("version", range(3, 13))
def test_only_the_first_batch_of_a_transaction_is_verified(
    harness: ApiHarness, version: int
) -> None:
    assert codes(send(harness, {0: transactional(), 1: transactional()}, version=version)) == [
        ErrorCode.NONE,
        ErrorCode.NONE,
    ]
    assert codes(send(harness, {0: transactional(1)}, version=version)) == [ErrorCode.NONE]
    (requests,) = harness.verifier.requests
    assert requests[:4] == ("mine", PRODUCER, 0, (P0, P1))
    assert requests.adds is (version >= 12)
    log = harness.replicas.get(P0).log
    assert (log.log_end_offset, log.last_stable_offset) == (2, 0)


def test_the_next_transaction_is_verified_again(harness: ApiHarness) -> None:
    send(harness, {0: transactional()})
    mark(harness)
    assert codes(send(harness, {0: transactional(1)})) == [ErrorCode.NONE]
    assert len(harness.verifier.requests) == 2


def test_a_new_producer_epoch_is_verified_again(
    harness: ApiHarness,
) -> None:
    send(harness, {0: transactional()})
    assert codes(send(harness, {0: transactional(epoch=1)})) == [ErrorCode.NONE]
    assert [item.producer_epoch for item in harness.verifier.requests] == [0, 1]


def test_plain_batches_of_the_same_request_need_no_verification(
    harness: ApiHarness,
) -> None:
    harness.verifier.codes[P0] = ErrorCode.TRANSACTION_ABORTABLE
    sent = send(harness, {0: transactional(), 1: batch(b"plain")})
    assert codes(sent) == [ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.NONE]
    assert harness.verifier.requests[0].partitions == (P0,)
    assert harness.replicas.get(P0).log_end_offset == 0


# -- errors of the coordinator, by version --------------------------------------------------

RETRY = ErrorCode.NOT_ENOUGH_REPLICAS
NOT_PART_OF_IT = ErrorCode.TRANSACTION_ABORTABLE


@pytest.mark.parametrize(
    ("said", "version", "expected"),
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
def test_coordinator_errors_are_mapped_to_codes_that_the_client_knows(
    harness: ApiHarness, said: ErrorCode, version: int, expected: ErrorCode
) -> None:
    harness.verifier.codes[P1] = said
    sent = send(harness, {1: transactional(), 0: transactional()}, version=version)
    assert codes(sent) == [expected, ErrorCode.NONE]
    assert [harness.replicas.get(tp).log_end_offset for tp in (P0, P1)] == [1, 0]


def test_without_verification_only_transactions_v2_are_verified(harness: ApiHarness) -> None:
    harness.set_settings({"transaction.partition.verification.enable": "false"})
    assert codes(send(harness, {0: transactional()}, version=11)) == [ErrorCode.NONE]
    assert harness.verifier.requests == []
    assert codes(send(harness, {1: transactional()}, version=12)) == [ErrorCode.NONE]
    assert len(harness.verifier.requests) == 1


def test_a_fenced_producer_is_refused_without_verification(harness: ApiHarness) -> None:
    send(harness, {0: transactional(epoch=3)})
    assert codes(send(harness, {0: transactional(epoch=2)})) == [ErrorCode.INVALID_PRODUCER_EPOCH]
    assert len(harness.verifier.requests) == 1


# -- pending verifications ------------------------------------------------------------------


def test_the_next_request_waits_during_verification(harness: ApiHarness) -> None:
    harness.verifier.answers_at_once = False
    connection = FakeConnection()
    sent = send(harness, {0: transactional(value=b"kept"), 1: batch()}, connection=connection)
    assert not sent.is_answered
    assert connection.may_start_next == 0
    assert harness.replicas.get(P1).log_end_offset == 0
    harness.verifier.answer(0)
    assert codes(sent) == [ErrorCode.NONE, ErrorCode.NONE]
    assert harness.replicas.get(P0).log.producers.first_unstable_offset == 0


@pytest.mark.parametrize(
    ("version", "code"),
    [(10, ErrorCode.INVALID_TXN_STATE), (12, ErrorCode.TRANSACTION_ABORTABLE)],
)
def test_a_verification_from_before_a_marker_is_invalid(
    harness: ApiHarness, version: int, code: ErrorCode
) -> None:
    """Otherwise a late batch opens a transaction that never ends (KAFKA-14402)."""
    harness.verifier.answers_at_once = False
    sent = send(harness, {0: transactional()}, version=version)
    mark(harness)
    harness.verifier.answer(0)
    assert codes(sent) == [code]
    partition = harness.replicas.get(P0)
    assert partition.last_stable_offset == partition.high_watermark == 1


def test_a_marker_of_a_later_epoch_fences_a_pending_verification(harness: ApiHarness) -> None:
    harness.verifier.answers_at_once = False
    sent = send(harness, {0: transactional()})
    mark(harness, epoch=1, commit=False)
    harness.verifier.answer(0)
    assert codes(sent) == [ErrorCode.INVALID_PRODUCER_EPOCH]


def test_a_verification_from_an_earlier_leadership_is_invalid(harness: ApiHarness) -> None:
    harness.verifier.answers_at_once = False
    sent = send(harness, {0: transactional()})
    harness.make_topic("orders", 2, epoch=1, replicas=(ME, OTHER), leader=OTHER)
    harness.make_topic("orders", 2, epoch=2)
    harness.verifier.answer(0)
    assert codes(sent) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert harness.replicas.get(P0).log_end_offset == 0


def test_a_partition_that_became_leader_after_the_request_is_not_appended_unverified(
    harness: ApiHarness,
) -> None:
    harness.verifier.answers_at_once = False
    harness.make_topic("others", 2, replicas=(ME, OTHER), leader=OTHER)
    partitions = [
        {"name": name, "partition_data": [{"index": 0, "records": transactional()}]}
        for name in ("others", "orders")
    ]
    sent = harness.send(
        KEY,
        12,
        acks=-1,
        timeout=timedelta(seconds=1),
        transactional_id="mine",
        topic_data=partitions,
    )
    harness.make_topic("others", 2, epoch=1)
    harness.verifier.answer(0)
    assert codes(sent) == [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NONE]


def test_a_batch_under_verification_does_not_join_the_next_transaction(
    harness: ApiHarness,
) -> None:
    harness.verifier.answers_at_once = False
    late = send(harness, {0: transactional(0)}, version=11, connection=FakeConnection())
    mark(harness)
    following = send(harness, {0: transactional(0)}, version=11, connection=FakeConnection())
    harness.verifier.answer(1)
    harness.verifier.answer(0)
    assert codes(following) == [ErrorCode.NONE]
    assert codes(late) == [ErrorCode.TRANSACTION_ABORTABLE]


def test_a_connection_closed_during_verification_leaks_nothing(harness: ApiHarness) -> None:
    harness.verifier.answers_at_once = False
    connection = FakeConnection()
    send(harness, {0: transactional()}, connection=connection)
    connection.close("gone")
    assert connection.memory.held_bytes > 0  # the verification is still pending
    harness.verifier.answer(0)
    assert harness.replicas.get(P0).log_end_offset == 1
    assert connection.memory.held_bytes == 0


def test_batches_under_verification_count_as_receive_memory(harness: ApiHarness) -> None:
    memory = harness.connection.memory
    batches = [transactional(value=bytes(size)) for size in (1000, 3000)]
    send(harness, {0: transactional(producer=PRODUCER + 1)})
    assert memory.held_bytes == 0  # the verification completed at once
    harness.verifier.answers_at_once = False
    sent = send(harness, dict(enumerate(batches)))
    assert memory.held_bytes == len(batches[0]) + len(batches[1])
    harness.verifier.answer(-1)
    assert codes(sent) == [ErrorCode.NONE, ErrorCode.NONE]
    assert memory.held_bytes == 0


def test_without_memory_a_request_is_retriable_and_one_always_succeeds(
    harness: ApiHarness,
) -> None:
    harness.verifier.answers_at_once = False
    harness.connection.memory = ReceiveMemory(total_bytes=0, max_request_bytes=2_000_000)
    large = bytes(900_000)
    first = send(harness, {0: transactional(value=large)})
    second = send(harness, {0: transactional(value=large, producer=PRODUCER + 1), 1: batch()})
    assert codes(second) == [ErrorCode.NOT_ENOUGH_REPLICAS] * 2
    for position in (0, 1):
        harness.verifier.answer(position)
    assert codes(first) == [ErrorCode.NONE]
    assert [harness.replicas.get(tp).log_end_offset for tp in (P0, P1)] == [1, 0]
    again = send(harness, {0: transactional(value=large, producer=PRODUCER + 1)})
    harness.verifier.answer(-1)
    assert codes(again) == [ErrorCode.NONE]


# -- without verification -------------------------------------------------------------------


def test_a_corrupt_batch_is_retriable_whatever_producer_it_names(
    harness: ApiHarness,
) -> None:
    damaged = transactional()
    damaged[45] ^= 0xFF  # a byte of the producer id
    assert codes(send(harness, {0: damaged, 1: transactional()})) == [
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.NONE,
    ]
    assert [item.producer_id for item in harness.verifier.requests] == [PRODUCER]


def test_a_batch_that_claims_too_many_bytes_is_corrupt(harness: ApiHarness) -> None:
    torn = transactional(value=b"v" * 50)[:-10]
    assert codes(send(harness, {0: torn})) == [ErrorCode.CORRUPT_MESSAGE]


def test_one_request_has_one_producer(harness: ApiHarness) -> None:
    sent = send(harness, {0: transactional(), 1: transactional(producer=6)})
    assert codes(sent) == [ErrorCode.INVALID_PRODUCER_ID_MAPPING] * 2
    assert harness.verifier.requests == []


def test_without_a_producer_id_there_is_no_transaction(harness: ApiHarness) -> None:
    nobodys = batch(b"v", transactional=True)
    assert codes(send(harness, {0: nobodys})) == [ErrorCode.INVALID_RECORD]
    assert harness.verifier.requests == []


def test_producing_does_not_add_internal_topics_to_a_transaction(harness: ApiHarness) -> None:
    harness.make_topic(OFFSETS_TOPIC, 1)
    sent = send(harness, {0: transactional()}, topic=OFFSETS_TOPIC)
    assert codes(sent) == [ErrorCode.INVALID_TOPIC_EXCEPTION]
    assert harness.verifier.requests == []
