"""The records of `__transaction_state`, byte by byte as in Kafka, and malformed ones."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.coordinators.transaction.records import (
    State,
    Transaction,
    TransactionRecord,
    decode_record,
    encode_record,
)
from penstock.model.ids import TopicPartition
from penstock.protocol.coordinator_values import MalformedRecord, UnknownKey

KEY = bytes.fromhex("0000 0001 74")  # version, length, "t"
OPEN = Transaction(
    producer_id=5,
    producer_epoch=3,
    timeout_ms=60_000,
    state=State.ONGOING,
    partitions=frozenset({TopicPartition("a", 1), TopicPartition("a", 0), TopicPartition("b", 2)}),
    updated_ms=2,
    started_ms=1,
)
# By the fields of Kafka's TransactionLogValue.
OPEN_V0 = bytes.fromhex(
    "0000"  # version
    "0000000000000005 0003 0000ea60 01"  # id, epoch, timeout, state
    "00000002 0001 61 00000002 00000000 00000001 0001 62 00000001 00000002"  # partitions
    "0000000000000002 0000000000000001"  # updated, started
)
OPEN_V1 = bytes.fromhex(
    "0001"
    "0000000000000005 0003 0000ea60 01"
    "03 02 61 03 00000000 00000001 00 02 62 02 00000002 00"
    "0000000000000002 0000000000000001"
)
NO_TAGS = b"\0"


def test_a_record_has_kafkas_bytes() -> None:
    assert encode_record(TransactionRecord("t", OPEN)) == (KEY, OPEN_V1 + NO_TAGS)


@pytest.mark.parametrize("value", [OPEN_V0, OPEN_V1 + NO_TAGS])
def test_both_value_versions_are_read(value: bytes) -> None:
    assert decode_record(KEY, value) == TransactionRecord("t", OPEN)


def test_tagged_fields_have_kafkas_numbers() -> None:
    tagged = replace(
        OPEN,
        previous_producer_id=4,
        next_producer_id=6,
        next_producer_epoch=7,
        client_version=2,
    )
    tags = bytes.fromhex("04 0008 0000000000000004 0108 0000000000000006 0202 0002 0302 0007")
    assert encode_record(TransactionRecord("t", tagged))[1] == OPEN_V1 + tags
    assert decode_record(KEY, OPEN_V1 + tags).value == tagged


def test_the_next_producer_epoch_defaults_to_0() -> None:
    tags = bytes.fromhex("01 0108 0000000000000006")
    decoded = decode_record(KEY, OPEN_V1 + tags).value
    assert decoded is not None
    assert decoded.owner == (6, 0)
    assert encode_record(TransactionRecord("t", decoded))[1] == OPEN_V1 + tags


def test_unknown_tags_are_ignored() -> None:
    assert decode_record(KEY, OPEN_V1 + bytes.fromhex("01 6302 ffff")).value == OPEN


def test_a_tombstone_has_no_value() -> None:
    gone = TransactionRecord("t", None)
    assert encode_record(gone) == (KEY, None)
    assert decode_record(KEY, None) == gone


@pytest.mark.parametrize(("version", "null"), [("0000", "ffffffff"), ("0001", "00")])
def test_a_null_partition_list_is_empty(version: str, null: str) -> None:
    """Kafka writes null while no transaction is open."""
    tags = "" if version == "0000" else "00"
    value = bytes.fromhex(
        f"{version} 0000000000000005 0003 0000ea60 00 {null} "
        f"0000000000000002 ffffffffffffffff {tags}"
    )
    empty = Transaction(producer_id=5, producer_epoch=3, timeout_ms=60_000, updated_ms=2)
    assert decode_record(KEY, value).value == empty
    assert version == "0000" or encode_record(TransactionRecord("t", empty))[1] == value


def test_unknown_keys_are_distinguished_from_damage() -> None:
    with pytest.raises(UnknownKey, match="version 1"):
        decode_record(b"\0\1\0\1t", None)


@pytest.mark.parametrize("size", range(len(OPEN_V1) + 1))
def test_a_truncated_value_is_malformed(size: int) -> None:
    with pytest.raises(MalformedRecord):
        decode_record(KEY, OPEN_V1[:size])


@pytest.mark.parametrize(
    ("index", "byte", "words"),
    [
        (1, 2, "version 2"),
        (16, 6, "6 is not a transaction state"),
        (16, 255, "-1 is not a transaction state"),
    ],
)
def test_impossible_values_are_malformed(index: int, byte: int, words: str) -> None:
    value = bytearray(OPEN_V1 + NO_TAGS)
    value[index] = byte
    with pytest.raises(MalformedRecord, match=words):
        decode_record(KEY, bytes(value))


def test_a_tag_of_the_wrong_size_is_malformed() -> None:
    with pytest.raises(MalformedRecord, match="tagged field 1 has 2 bytes"):
        decode_record(KEY, OPEN_V1 + bytes.fromhex("01 0102 0006"))


epochs = st.sampled_from([0, 1, 32_766, 32_767]) | st.integers(0, 32_767)
ids = st.sampled_from([0, 1, 2**63 - 1]) | st.integers(0, 2**63 - 1)
names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=30)
transactions = st.builds(
    Transaction,
    producer_id=ids,
    producer_epoch=epochs,
    previous_producer_id=st.just(-1) | ids,
    last_producer_epoch=st.just(-1) | epochs,
    timeout_ms=st.integers(1, 2**31 - 1),
    state=st.sampled_from(State),
    partitions=st.frozensets(st.builds(TopicPartition, names, st.integers(0, 2**31 - 1))),
    updated_ms=st.integers(0, 2**62),
    started_ms=st.just(-1) | st.integers(0, 2**62),
    client_version=st.sampled_from([0, 1, 2]),
)


@given(names, transactions, st.none() | st.tuples(ids, epochs))
def test_records_survive_a_round_trip(
    name: str, value: Transaction, following: tuple[int, int] | None
) -> None:
    if value.state is State.EMPTY:
        value = replace(value, partitions=frozenset())
    if following is not None:
        value = replace(value, next_producer_id=following[0], next_producer_epoch=following[1])
    record = TransactionRecord(name, value)
    assert decode_record(*encode_record(record)) == record
