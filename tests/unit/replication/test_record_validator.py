"""Which records of a client's batch the leader refuses, with which error code and message."""

import pytest
from tests.unit.replication.harness import P0, P1, WALL_MS, ReplicationHarness
from tests.unit.storage.engine.cases import claiming

from penstock.model.errors import ErrorCode
from penstock.protocol.batch import HEADER, compute_crc, is_crc_valid, read_header
from penstock.protocol.compression import Codec, compress
from penstock.protocol.records import Record, build_batch
from penstock.protocol.varint import MAX_INT64, encode_varint, encode_varlong
from penstock.replication.delayed_produce import PartitionAppended
from penstock.storage.engine import AppendOrigin

MIB = 1024 * 1024
HOUR_MS = 3_600_000


def batch_of(*records: tuple[bytes | None, int], codec: Codec = Codec.NONE) -> bytearray:
    """Build a batch with these keys and timestamps."""
    return build_batch(
        [Record(index, time_ms, key, b"v") for index, (key, time_ms) in enumerate(records)],
        codec=codec,
    )


def leading(**configs: str) -> ReplicationHarness:
    harness = ReplicationHarness()
    harness.update_topic("orders", 3, **configs)
    harness.leader_and_isr(P0, P1)
    return harness


def append_result(batch: bytearray, **configs: str) -> PartitionAppended:
    """Return the result of an append; a refused batch must not change the log."""
    harness = leading(**configs)
    [answer] = harness.append(P0, batch=batch).answer
    assert (harness.partition().log_end_offset > 0) == (answer.code is ErrorCode.NONE)
    return answer


def with_payload(payload: bytes, count: int = 1, codec: Codec = Codec.NONE) -> bytearray:
    return claiming(count, payload if codec is Codec.NONE else compress(codec, payload), codec)


@pytest.mark.parametrize("codec", Codec)
def test_invalid_records_with_a_valid_header_and_crc_are_refused(codec: Codec) -> None:
    answer = append_result(with_payload(b"\xff" * 60, codec=codec))
    assert answer.code is ErrorCode.INVALID_RECORD
    assert [index for index, _ in answer.record_errors] == [0]
    assert "orders-0: record 0 is malformed" in (answer.message or "")


@pytest.mark.parametrize("codec", list(Codec)[1:])
def test_bytes_that_do_not_decompress_are_refused(codec: Codec) -> None:
    answer = append_result(claiming(1, b"\x01" * 60, codec))
    assert (answer.code, answer.record_errors) == (ErrorCode.INVALID_RECORD, ())


@pytest.mark.parametrize("codec", list(Codec)[1:])
def test_batches_that_share_a_buffer_are_judged_by_their_own_bytes(codec: Codec) -> None:
    harness = leading()
    long = batch_of(*[(b"k" * 50, WALL_MS)] * 200, codec=codec)
    cut = bytes(batch_of(*[(b"k" * 50, WALL_MS)] * 200)[61:-10])
    codes = [
        harness.append(P0, batch=batch).answer[0].code
        for batch in (
            long,
            with_payload(cut, 200, codec),  # the buffer still holds the ten bytes it lacks
            batch_of((b"k", WALL_MS), codec=codec),
            long,
        )
    ]
    none, invalid = ErrorCode.NONE, ErrorCode.INVALID_RECORD
    assert codes == [none, invalid, none, none]


def test_an_offset_delta_that_makes_readers_skip_records_is_refused() -> None:
    answer = append_result(with_payload(b"\x0c\x00\x00\x12\x01\x01\x00"))
    assert answer.code is ErrorCode.INVALID_RECORD
    assert answer.record_errors == (
        (0, "record 0 is malformed: its offset delta is not its index"),
    )


def test_more_records_than_the_header_counts_are_refused() -> None:
    two = bytes(batch_of((b"k", WALL_MS), (b"k", WALL_MS))[61:])
    answer = append_result(with_payload(two))
    assert (answer.code, answer.record_errors) == (ErrorCode.INVALID_RECORD, ())
    assert "bytes follow the 1 records" in (answer.message or "")


def test_fewer_records_than_the_header_counts_name_the_missing_one() -> None:
    two = bytes(batch_of((b"k", WALL_MS), (b"k" * 90, WALL_MS))[61:])
    answer = append_result(with_payload(two, count=3))
    assert answer.code is ErrorCode.INVALID_RECORD
    assert [index for index, _ in answer.record_errors] == [2]


@pytest.mark.parametrize("codec", Codec)
def test_records_without_a_key_are_named_on_a_compacted_topic(codec: Codec) -> None:
    keys = [b"a", None, b"", None]
    batch = batch_of(*((key, WALL_MS) for key in keys), codec=codec)
    answer = append_result(batch, cleanup_policy="compact")
    assert answer.code is ErrorCode.INVALID_RECORD
    assert [index for index, _ in answer.record_errors] == [1, 3]
    assert "compacted" in answer.record_errors[0][1]
    assert append_result(batch).code is ErrorCode.NONE


def test_records_with_a_timestamp_out_of_range_are_named_and_keep_their_own_error() -> None:
    late = WALL_MS + HOUR_MS + 1
    batch = batch_of((b"k", WALL_MS), (b"k", late), (b"k", -1), (b"k", late - 1))
    answer = append_result(batch)
    assert answer.code is ErrorCode.INVALID_TIMESTAMP
    assert [index for index, _ in answer.record_errors] == [1]
    early = batch_of((b"k", WALL_MS), (b"k", WALL_MS - 6), (b"k", -1), (b"k", WALL_MS - 5))
    answer = append_result(early, message_timestamp_before_max_ms="5")
    assert answer.code is ErrorCode.INVALID_TIMESTAMP
    assert [index for index, _ in answer.record_errors] == [1]
    assert append_result(early).code is ErrorCode.NONE


@pytest.mark.parametrize("base_ms", [-1, 0, WALL_MS, MAX_INT64])
@pytest.mark.parametrize("delta", [-MAX_INT64 - 1, -MAX_INT64, 0, MAX_INT64 - 1, MAX_INT64])
def test_the_widest_range_accepts_every_timestamp_of_64_bits(base_ms: int, delta: int) -> None:
    record = b"\0" + encode_varlong(delta) + b"\0\1\0\0"
    batch = with_payload(encode_varint(len(record)) + record)
    times = read_header(batch)._replace(base_timestamp=base_ms, max_timestamp=base_ms)
    HEADER.pack_into(batch, 0, *times)
    HEADER.pack_into(batch, 0, *times._replace(crc=compute_crc(batch)))
    widest = {
        "message_timestamp_before_max_ms": str(MAX_INT64),
        "message_timestamp_after_max_ms": str(MAX_INT64),
    }
    is_valid = -1 <= base_ms + delta <= MAX_INT64
    code = ErrorCode.NONE if is_valid else ErrorCode.INVALID_TIMESTAMP
    assert append_result(batch, **widest).code is code


def test_an_invalid_timestamp_determines_the_code_and_every_bad_record_is_named_once() -> None:
    late = WALL_MS + 2 * HOUR_MS
    batch = batch_of((None, late), (b"k", late), (b"k", WALL_MS))
    answer = append_result(batch, cleanup_policy="compact")
    assert answer.code is ErrorCode.INVALID_TIMESTAMP
    assert [index for index, _ in answer.record_errors] == [0, 1]
    assert "compacted" in answer.record_errors[0][1]
    only_keys = append_result(
        batch_of((None, late)), cleanup_policy="compact", message_timestamp_type="LogAppendTime"
    )
    assert only_keys.code is ErrorCode.INVALID_RECORD


def test_damage_in_transit_gets_a_retriable_error() -> None:
    batch = with_payload(b"\xff" * 60)
    batch[-1] ^= 1
    answer = append_result(batch)
    assert (answer.code, answer.record_errors) == (ErrorCode.CORRUPT_MESSAGE, ())


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD])
def test_a_decompression_bomb_is_refused(codec: Codec) -> None:
    bomb = claiming(1, compress(codec, bytes(4 * MIB)) * 9, codec)
    assert len(bomb) < MIB
    answer = append_result(bomb)
    assert answer.code is ErrorCode.INVALID_RECORD
    assert f"more than the {32 * MIB} allowed" in (answer.message or "")


def one_record(value_bytes: int) -> bytes:
    head = b"\0\0\0\2k" + encode_varint(value_bytes)
    return encode_varint(len(head) + value_bytes + 1) + head + bytes(value_bytes + 1)


def test_a_valid_batch_may_expand_ten_thousand_times() -> None:
    batch = with_payload(one_record(10 * MIB), codec=Codec.ZSTD)
    assert len(batch) * 10_000 < 10 * MIB
    assert append_result(batch).code is ErrorCode.NONE


def test_a_topic_may_change_the_decompression_limit() -> None:
    batch = with_payload(one_record(20 * MIB), codec=Codec.ZSTD)
    small = {"max_message_bytes": "100000"}
    less = append_result(batch, penstock_max_decompressed_bytes="1", **small)
    assert less.code is ErrorCode.INVALID_RECORD
    assert f"more than the {16 * 100_000} allowed" in (less.message or "")
    more = append_result(batch, penstock_max_decompressed_bytes=str(21 * MIB), **small)
    assert more.code is ErrorCode.NONE


def test_a_batch_above_max_message_bytes_gets_message_too_large() -> None:
    answer = append_result(with_payload(b"\xff" * 2000), max_message_bytes="1000")
    assert answer.code is ErrorCode.MESSAGE_TOO_LARGE


def test_a_wrong_maximum_timestamp_in_the_header_is_corrected() -> None:
    harness = leading()
    batch = batch_of((b"k", WALL_MS), (b"k", WALL_MS - 7))
    HEADER.pack_into(batch, 0, *read_header(batch)._replace(max_timestamp=WALL_MS + 9 * HOUR_MS))
    HEADER.pack_into(batch, 0, *read_header(batch)._replace(crc=compute_crc(batch)))
    answers: list[PartitionAppended] = []
    harness.replicas.append([(P0, memoryview(batch))], acks=1, timeout_ms=1, done=answers.extend)
    assert answers[0].code is ErrorCode.NONE
    assert read_header(batch).max_timestamp == WALL_MS
    assert is_crc_valid(batch, 0, len(batch))


def test_a_topic_may_disable_validation() -> None:
    garbage = with_payload(b"\xff" * 60)
    assert append_result(garbage, penstock_validate_records="false").code is ErrorCode.NONE


def test_only_batches_of_clients_are_validated() -> None:
    harness = leading()
    garbage = with_payload(b"\xff" * 60)
    sent = harness.append(P0, batch=garbage, origin=AppendOrigin.COORDINATOR)
    assert sent.codes == [ErrorCode.NONE]


def test_other_partitions_of_the_request_are_appended() -> None:
    harness = leading()
    batches = [(P0, with_payload(b"\xff" * 60)), (P1, batch_of((b"k", WALL_MS)))]
    answers: list[PartitionAppended] = []
    harness.replicas.append(
        [(tp, memoryview(batch)) for tp, batch in batches],
        acks=-1,
        timeout_ms=1,
        done=answers.extend,
    )
    assert [answer.code for answer in answers] == [ErrorCode.INVALID_RECORD, ErrorCode.NONE]
    assert answers[0].log_start_offset == 0


def test_a_request_is_decompressed_up_to_a_bound_and_the_rest_can_be_sent_again() -> None:
    """Else 32 KB with 30 batches would keep the broker from other clients for seconds."""
    harness = leading()
    large = bytes(with_payload(one_record(30 * MIB), codec=Codec.ZSTD))
    bomb = bytes(claiming(1, compress(Codec.ZSTD, bytes(4 * MIB)) * 9, Codec.ZSTD))
    plain = bytes(batch_of((b"k", WALL_MS)))
    answers: list[PartitionAppended] = []
    harness.replicas.append(
        [(P0, memoryview(bytearray(batch))) for batch in (large, bomb, large, large, plain)],
        acks=-1,
        timeout_ms=1,
        done=answers.extend,
    )
    assert [answer.code for answer in answers] == [
        ErrorCode.NONE,
        ErrorCode.INVALID_RECORD,
        ErrorCode.NONE,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NONE,
    ]
    assert answers[3].code.is_retriable
    assert harness.append(P0, batch=bytearray(large)).codes == [ErrorCode.NONE]
