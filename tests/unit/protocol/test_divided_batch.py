"""Batches with records that wait: what is left reads as the same batch without them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.protocol.batch import is_crc_valid, read_header
from penstock.protocol.compression import Codec
from penstock.protocol.delay_headers import (
    DELAY_CANCEL,
    DELAY_ID,
    DELAY_MS,
    CancelRequest,
    DelayRequest,
)
from penstock.protocol.divided_batch import InvalidDelayedRecord, divide_batch
from penstock.protocol.records import Record, RecordHeaders, build_batch, iter_records

NOW_MS = 1_700_000_000_000
LATER: RecordHeaders = ((DELAY_MS, b"1000"), (DELAY_ID, b"x"))
PAST: RecordHeaders = ((DELAY_MS, b"0"),)
CANCEL: RecordHeaders = ((DELAY_CANCEL, b"x"),)


def build(kinds: list[RecordHeaders], codec: Codec = Codec.NONE) -> bytearray:
    records = [
        Record(offset, NOW_MS + offset, b"key", b"%d" % offset, headers)
        for offset, headers in enumerate(kinds)
    ]
    return build_batch(records, codec=codec, producer_id=7, producer_epoch=1, base_sequence=40)


@given(
    st.lists(st.sampled_from([(), (("trace", b"1"),), PAST, LATER, CANCEL]), min_size=1),
    st.sampled_from(Codec),
)
def test_every_record_is_left_waits_or_cancels(kinds: list[RecordHeaders], codec: Codec) -> None:
    batch = build(kinds, codec)
    records = list(iter_records(batch))
    divided = divide_batch(batch, now_ms=NOW_MS)
    waiting = [record for record in records if record.headers == LATER]
    cancels = [record for record in records if record.headers == CANCEL]
    if divided is None:
        assert not waiting
        assert not cancels
        return
    assert [record for record, _ in divided.delayed] == waiting
    later = DelayRequest(NOW_MS + 1000, "x", delay_ms=1000)
    assert {wanted for _, wanted in divided.delayed} <= {later}
    assert divided.cancels == [CancelRequest("x", None)] * len(cancels)
    left = [record for record in records if record.headers not in (LATER, CANCEL)]
    if divided.left is None:
        assert not left
        return
    assert list(iter_records(divided.left)) == left
    before, after = read_header(batch), read_header(divided.left)
    assert is_crc_valid(divided.left, 0, after.size)
    changed = before._replace(
        batch_length=after.batch_length,
        crc=after.crc,
        record_count=len(left),
        max_timestamp=left[-1].timestamp_ms,
    )
    assert after == changed, "offsets, sequences and producer stay"


def test_the_record_that_cannot_be_followed_is_named() -> None:
    with pytest.raises(InvalidDelayedRecord, match=DELAY_MS) as refused:
        divide_batch(build([(), LATER, ((DELAY_MS, b"soon"),)]), now_ms=NOW_MS)
    assert refused.value.index == 2
