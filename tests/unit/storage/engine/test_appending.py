"""Leader appends: which batches are stored, and which are rejected."""

import gc

import pytest
from tests.unit.storage.engine.cases import NOW_MS, Case, batch_of, claiming

from penstock.config.log_config import LogConfig
from penstock.model.ids import LeaderEpoch, Offset, TimestampMs
from penstock.protocol.batch import read_header
from penstock.protocol.compression import Codec, compress
from penstock.protocol.control import build_end_marker_batch
from penstock.storage.engine import AppendItem, AppendOrigin, Engine, LogAppendInfo
from penstock.storage.errors import (
    CorruptRecords,
    InvalidRecords,
    InvalidTimestamp,
    RecordTooLarge,
    StorageError,
)


def test_offsets_count_records_from_zero(case: Case) -> None:
    assert case.append(batch_of(3)) == (0, 3, -1, False)
    assert case.append(batch_of(2)) == (3, 5, -1, False)
    assert case.log.log_end_offset == 5


def test_stored_batches_have_their_offset_and_the_leader_epoch(case: Case) -> None:
    case.fill(3)
    batch = bytearray(batch_of(2))
    item = AppendItem(case.log, memoryview(batch), LeaderEpoch(9), AppendOrigin.CLIENT)
    case.engine.append([item], NOW_MS)
    header = read_header(batch)
    assert (header.base_offset, header.leader_epoch) == (3, 9)
    assert case.log.latest_epoch == 9


def test_an_invalid_item_does_not_affect_the_others_of_its_request(case: Case) -> None:
    damaged = batch_of(1)
    damaged[-1] ^= 1
    items = [
        AppendItem(case.log, memoryview(bytearray(batch)), LeaderEpoch(4))
        for batch in (batch_of(2), damaged, batch_of(1))
    ]
    first, bad, last = case.engine.append(items, NOW_MS)
    assert isinstance(bad, CorruptRecords)
    assert (first, last) == (
        LogAppendInfo(Offset(0), Offset(2), TimestampMs(-1), False),
        (2, 3, -1, 0),
    )


@pytest.mark.parametrize("is_damaged", [True, False])
def test_a_kept_error_does_not_keep_its_request_alive(case: Case, is_damaged: bool) -> None:
    """Not even until the next garbage collection: its buffer could not be reused until then."""
    request = batch_of(1) + (b"" if is_damaged else batch_of(1))
    request[-1] ^= is_damaged
    collects = gc.isenabled()
    gc.disable()
    try:
        item = AppendItem(case.log, memoryview(request), LeaderEpoch(4))
        kept = case.engine.append([item], NOW_MS)
        del item
        assert isinstance(kept[0], CorruptRecords if is_damaged else InvalidRecords)
        request.clear()  # raises BufferError while a view exists
    finally:
        if collects:
            gc.enable()


def test_a_rejected_batch_changes_nothing(case: Case) -> None:
    case.fill(2)
    control = build_end_marker_batch(
        commit=True, coordinator_epoch=1, producer_id=7, producer_epoch=0, timestamp_ms=NOW_MS
    )
    refused: list[tuple[bytes | bytearray, type[StorageError]]] = [
        (b"short", CorruptRecords),
        (control, InvalidRecords),
        (batch_of(1) + batch_of(1), InvalidRecords),
        (batch_of(1, times=[NOW_MS + 10**9]), InvalidTimestamp),
        (batch_of(200), StorageError),
    ]
    for batch, error in refused:
        assert isinstance(case.try_append(batch), error)
    assert case.read_all() == [(0, 1)]


def test_batches_above_the_topics_limit_are_too_large(engine: Engine) -> None:
    case = Case(engine, LogConfig(max_message_bytes=100))
    assert isinstance(case.try_append(batch_of(9)), RecordTooLarge)


def test_log_append_time_is_set_in_the_batch_and_the_result(engine: Engine) -> None:
    case = Case(engine, LogConfig(message_timestamp_type="LogAppendTime"))
    assert case.append(batch_of(1, times=[5])).append_time_ms == NOW_MS
    assert case.log.find_max_timestamp() == (0, NOW_MS, 4)


@pytest.mark.parametrize("codec", Codec)
def test_a_batch_cannot_claim_more_records_than_its_bytes_can_hold(
    case: Case, codec: Codec
) -> None:
    payload = b"" if codec is Codec.NONE else compress(codec, bytes(100))
    claims = claiming(2**31 - 1, payload, codec)
    assert isinstance(case.try_append(claims), InvalidRecords)
    assert isinstance(case.try_append(claims, AppendOrigin.COORDINATOR), InvalidRecords)
    assert case.read_all() == []


def test_a_record_takes_at_least_a_few_bytes(case: Case) -> None:
    assert isinstance(case.try_append(claiming(1, b"")), InvalidRecords)
    assert isinstance(case.try_append(claiming(3, bytes(20))), InvalidRecords)
    case.append(claiming(3, bytes(21)))


@pytest.mark.parametrize("codec", [codec for codec in Codec if codec is not Codec.NONE])
def test_compressed_batches_may_have_more_records_than_bytes(case: Case, codec: Codec) -> None:
    batch = claiming(300, compress(codec, bytes(7 * 300)), codec)
    assert len(batch) < 300
    case.append(batch)
    assert case.read_all() == [(0, 299)]
