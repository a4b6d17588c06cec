"""Records of deferred messages: what is written is read, and damage is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.coordinators.deferred.records import (
    DeferredRecord,
    DelivererRecord,
    DeliveryRecord,
    EndedRecord,
    MessageRecord,
    ProducerRecord,
    decode_record,
    encode_record,
)
from penstock.coordinators.deferred.values import (
    DeferredMessage,
    DelayKey,
    Delivery,
    EndedMessage,
    HalfKey,
    Hold,
    MessageEnd,
    ProducerBatches,
    SequenceRange,
    Target,
)
from penstock.protocol.coordinator_values import MalformedRecord, UnknownKey

int32s = st.integers(0, 2**31 - 1)
int64s = st.integers(0, 2**63 - 1)
texts = st.text(max_size=20)
optional_bytes = st.none() | st.binary(max_size=20)
targets = st.builds(Target, st.uuids(), int32s)
holds = st.builds(Hold, st.builds(HalfKey, texts, texts), texts, int64s)
plain_messages = st.builds(
    DeferredMessage,
    due_ms=int64s,
    target=targets,
    delay_id=st.none() | texts,
    timestamp_ms=int64s,
    key=optional_bytes,
    value=optional_bytes,
    headers=st.lists(st.tuples(texts, optional_bytes), max_size=3).map(tuple),
    hold=st.none(),
    commit_delay_ms=st.none(),
)
messages = st.one_of(  # a half is of no transaction
    plain_messages,
    st.builds(lambda message, hold: message._replace(hold=hold), plain_messages, holds),
    st.builds(
        lambda message, delay_ms: message._replace(commit_delay_ms=delay_ms), plain_messages, int64s
    ),
)
ranges = st.lists(st.builds(SequenceRange, int32s, int32s), max_size=5).map(tuple)
batches = st.builds(ProducerBatches, st.integers(0, 2**15 - 1), ranges, int64s)
deliveries = st.builds(Delivery, int32s, st.lists(int64s, max_size=5).map(tuple))
ended = st.builds(EndedMessage, st.sampled_from(MessageEnd), int64s)
records: st.SearchStrategy[DeferredRecord] = st.one_of(
    st.builds(MessageRecord, int64s, st.none() | messages),
    st.builds(ProducerRecord, targets, int64s, st.none() | batches),
    st.builds(DeliveryRecord, targets, st.none() | deliveries),
    st.builds(EndedRecord, st.builds(DelayKey, st.uuids(), texts), st.none() | ended),
    st.builds(DelivererRecord, int64s, st.integers(0, 2**15 - 1)),
)


@given(records)
def test_a_record_is_read_as_it_was_written(record: DeferredRecord) -> None:
    assert decode_record(*encode_record(record)) == record


@given(records, st.data())
def test_a_record_that_ends_early_is_refused(record: DeferredRecord, data: st.DataObject) -> None:
    key, value = encode_record(record)
    if value is None:
        key = key[:-1]
    else:
        value = value[: data.draw(st.integers(0, len(value) - 1))]
    with pytest.raises(MalformedRecord):
        decode_record(key, value)


def test_an_unknown_kind_or_version_is_named() -> None:
    with pytest.raises(UnknownKey, match="kind 9"):
        decode_record(b"\0\x09", b"")
    key, value = encode_record(DelivererRecord(7, 0))
    assert value is not None
    with pytest.raises(MalformedRecord, match="version 1"):
        decode_record(key, b"\0\x01" + value[2:])
    with pytest.raises(MalformedRecord, match="cannot be removed"):
        decode_record(key, None)
