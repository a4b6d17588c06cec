"""The records of `__consumer_offsets`, byte by byte as in Kafka's definitions."""

from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.coordinators.group.records import (
    ClassicMembership,
    ConsumerGroupKey,
    ConsumerGroupValue,
    ConsumerMemberKey,
    ConsumerMemberValue,
    ConsumerTopicsKey,
    ConsumerTopicsValue,
    CurrentMemberKey,
    CurrentMemberValue,
    GroupKey,
    GroupRecord,
    GroupValue,
    MemberValue,
    OffsetKey,
    OffsetValue,
    TargetEpochKey,
    TargetEpochValue,
    TargetMemberKey,
    TargetMemberValue,
    TopicPartitions,
    decode_record,
    encode_record,
)
from penstock.model.ids import TopicId
from penstock.protocol.coordinator_values import MalformedRecord, UnknownKey

TOPIC_ID = TopicId(UUID("00112233-4455-6677-8899-aabbccddeeff"))
ID_HEX = "00112233445566778899aabbccddeeff"

OFFSET_KEY = OffsetKey("g", "orders", 3)
OFFSET_KEY_HEX = "000100016700066f726465727300000003"

MEMBER = MemberValue(
    member="m",
    instance="i",
    client_id="c",
    client_host="h",
    rebalance_timeout_ms=60_000,
    session_timeout_ms=10_000,
    subscription=b"\x01\x02",
    assignment=b"",
)
GROUP = GroupValue(
    protocol_type="consumer",
    generation=7,
    protocol="range",
    leader="m",
    state_since_ms=0x0102030405060708,
    members=(MEMBER,),
)

# name, record, key, value: worked out by hand from the definitions in Kafka's sources.
WRITTEN = [
    (
        "an offset",
        GroupRecord(OFFSET_KEY, OffsetValue(5, 2, "note", 9)),
        OFFSET_KEY_HEX,
        "000300000000000000050000000200046e6f74650000000000000009",
    ),
    (
        "an offset with a time of expiry, which version 1 alone has",
        GroupRecord(OFFSET_KEY, OffsetValue(5, -1, "", 9, 11)),
        OFFSET_KEY_HEX,
        "0001000000000000000500000000000000000009000000000000000b",
    ),
    (
        "a classic group",
        GroupRecord(GroupKey("g"), GROUP),
        "0002000167",
        (
            "0003 0008636f6e73756d6572 00000007 000572616e6765 00016d 0102030405060708 "
            "00000001 00016d 000169 000163 000168 0000ea60 00002710 000000020102 00000000"
        ),
    ),
    (
        "a classic group without members",
        GroupRecord(
            GroupKey("g"),
            GroupValue(
                protocol_type="consumer",
                generation=8,
                protocol=None,
                leader=None,
                state_since_ms=1,
            ),
        ),
        "0002000167",
        "00030008636f6e73756d657200000008ffffffff000000000000000100000000",
    ),
    (
        "a consumer group",
        GroupRecord(ConsumerGroupKey("g"), ConsumerGroupValue(7)),
        "0003000167",
        "00000000000700",
    ),
    (
        "a member of a consumer group",
        GroupRecord(
            ConsumerMemberKey("g", "m"),
            ConsumerMemberValue(
                instance=None,
                rack="r",
                client_id="c",
                client_host="h",
                topics=("a", "bc"),
                topic_regex=None,
                rebalance_timeout_ms=-1,
                assignor="uniform",
            ),
        ),
        "000500016700016d",
        "00000002720263026803026103626300ffffffff08756e69666f726d00",
    ),
    (
        "a member of it that speaks the classic protocol",
        GroupRecord(
            ConsumerMemberKey("g", "m"),
            ConsumerMemberValue(
                instance="i",
                rack=None,
                client_id="c",
                client_host="h",
                topics=(),
                topic_regex="a.*",
                rebalance_timeout_ms=5,
                assignor=None,
                classic=ClassicMembership(10_000, (("range", b"\x09"),)),
            ),
        ),
        "000500016700016d",
        (
            "0000 0269 00 0263 0268 01 04612e2a 00000005 00 "
            # one tagged field, tag 0, 16 bytes: present, timeout, one protocol, no more tags
            "01 00 10 01 00002710 02 0672616e6765 0209 00 00"
        ),
    ),
    (
        "the epoch of a target assignment",
        GroupRecord(TargetEpochKey("g"), TargetEpochValue(3)),
        "0006000167",
        "00000000000300",
    ),
    (
        "a member's target",
        GroupRecord(
            TargetMemberKey("g", "m"), TargetMemberValue((TopicPartitions(TOPIC_ID, (0, 2)),))
        ),
        "000700016700016d",
        "000002" + ID_HEX + "0300000000000000020000",
    ),
    (
        "what a member has",
        GroupRecord(
            CurrentMemberKey("g", "m"),
            CurrentMemberValue(4, 3, 1, (TopicPartitions(TOPIC_ID, (1,)),), ()),
        ),
        "000800016700016d",
        "000000000004000000030102" + ID_HEX + "0200000001000100",
    ),
]


@pytest.mark.parametrize(
    ("record", "key", "value"), [row[1:] for row in WRITTEN], ids=[row[0] for row in WRITTEN]
)
def test_a_record_has_kafkas_bytes(record: GroupRecord, key: str, value: str) -> None:
    assert encode_record(record) == (bytes.fromhex(key), bytes.fromhex(value))
    assert decode_record(bytes.fromhex(key), bytes.fromhex(value)) == record
    assert decode_record(bytes.fromhex(key), None) == GroupRecord(record.key, None)


# Versions that older Kafka wrote, and that newer Kafka may write.
READ = [
    (
        "an offset of Kafka 0.8",
        "000000016700066f726465727300000003",
        "0000000000000000000500016e0000000000000009",
        GroupRecord(OFFSET_KEY, OffsetValue(5, -1, "n", 9)),
    ),
    (
        "an offset of version 2",
        OFFSET_KEY_HEX,
        "0002000000000000000500016e0000000000000009",
        GroupRecord(OFFSET_KEY, OffsetValue(5, -1, "n", 9)),
    ),
    (
        "an offset of the flexible version, with a field of the future",
        OFFSET_KEY_HEX,
        "0004000000000000000500000002026e0000000000000009010702abcd",
        GroupRecord(OFFSET_KEY, OffsetValue(5, 2, "n", 9)),
    ),
    (
        "a group before rebalance time-outs: they were the session's",
        "0002000167",
        "00000000000000070000ffff0000000100016d0001630001680000271000000001aa00000001bb",
        GroupRecord(
            GroupKey("g"),
            GroupValue(
                protocol_type="",
                generation=7,
                protocol="",
                leader=None,
                state_since_ms=-1,
                members=(
                    MemberValue(
                        member="m",
                        instance=None,
                        client_id="c",
                        client_host="h",
                        rebalance_timeout_ms=10_000,
                        session_timeout_ms=10_000,
                        subscription=b"\xaa",
                        assignment=b"\xbb",
                    ),
                ),
            ),
        ),
    ),
    (
        "a group of version 2: a time, no instance ids",
        "0002000167",
        (
            "0002 0000 00000007 0000 ffff 0000000000000001 00000001 00016d 000163 000168 "
            "0000ea60 00002710 00000000 00000000"
        ),
        GroupRecord(
            GroupKey("g"),
            GroupValue(
                protocol_type="",
                generation=7,
                protocol="",
                leader=None,
                state_since_ms=1,
                members=(
                    MemberValue(
                        member="m",
                        instance=None,
                        client_id="c",
                        client_host="h",
                        rebalance_timeout_ms=60_000,
                        session_timeout_ms=10_000,
                        subscription=b"",
                        assignment=b"",
                    ),
                ),
            ),
        ),
    ),
    (
        "a group of the flexible version",
        "0002000167",
        (
            "0004 09636f6e73756d6572 00000007 0672616e6765 026d 0102030405060708 02 026d "
            "0269 0263 0268 0000ea60 00002710 030102 01 00 00"
        ),
        GroupRecord(GroupKey("g"), GROUP),
    ),
    (
        "a member that says, as Kafka 4.3 has it, that it does not speak the classic protocol",
        "0005000167 00016d",
        "0000 00 00 0263 0268 01 01 00000005 00 01000100",
        GroupRecord(
            ConsumerMemberKey("g", "m"),
            ConsumerMemberValue(
                instance=None,
                rack=None,
                client_id="c",
                client_host="h",
                topics=(),
                topic_regex="",
                rebalance_timeout_ms=5,
                assignor=None,
            ),
        ),
    ),
    (
        "what Kafka 3.x kept of a group's topics, which nobody needs any more",
        "0004000167",
        "0000ffee",
        GroupRecord(ConsumerTopicsKey("g"), ConsumerTopicsValue()),
    ),
]


@pytest.mark.parametrize(
    ("key", "value", "record"), [row[1:] for row in READ], ids=[row[0] for row in READ]
)
def test_other_versions_are_read(key: str, value: str, record: GroupRecord) -> None:
    assert decode_record(bytes.fromhex(key), bytes.fromhex(value)) == record


def test_subscription_metadata_is_written_as_a_tombstone_only() -> None:
    record = GroupRecord(ConsumerTopicsKey("g"), None)
    assert encode_record(record) == (bytes.fromhex("0004000167"), None)


@pytest.mark.parametrize("version", [9, 16, 0x7FFF, -1])
def test_an_unknown_kind_is_distinguished_from_damage(version: int) -> None:
    key = version.to_bytes(2, "big", signed=True) + b"whatever"
    with pytest.raises(UnknownKey, match=f"version {version}"):
        decode_record(key, b"")


@pytest.mark.parametrize(("record", "key", "value"), [record[1:] for record in WRITTEN])
def test_truncated_records_and_trailing_bytes_are_malformed(
    record: GroupRecord, key: str, value: str
) -> None:
    whole_key, whole = bytes.fromhex(key), bytes.fromhex(value)
    for end in range(len(whole)):
        with pytest.raises(MalformedRecord):
            decode_record(whole_key, whole[:end])
    for end in range(2, len(whole_key)):
        with pytest.raises(MalformedRecord):
            decode_record(whole_key[:end], whole)
    with pytest.raises(MalformedRecord):
        decode_record(whole_key, whole + b"\0")
    with pytest.raises(MalformedRecord):
        decode_record(whole_key + b"\0", whole)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (OFFSET_KEY_HEX, "0005"),
        (OFFSET_KEY_HEX, "ffff"),
        ("0002000167", "0005"),
        ("0003000167", "0001"),
    ],
)
def test_an_unknown_value_version_is_malformed(key: str, value: str) -> None:
    with pytest.raises(MalformedRecord, match="version"):
        decode_record(bytes.fromhex(key), bytes.fromhex(value) + bytes(100))


@settings(deadline=None)
@given(st.binary(max_size=60), st.one_of(st.none(), st.binary(max_size=80)))
def test_any_bytes_decode_or_are_malformed(key: bytes, value: bytes | None) -> None:
    try:
        record = decode_record(key, value)
    except MalformedRecord:
        return
    assert record.key is not None


names = st.text(max_size=20)
numbers = st.integers(-(2**31), 2**31 - 1)
times = st.integers(-1, 2**63 - 1)
held = st.lists(
    st.builds(
        TopicPartitions,
        st.uuids().map(TopicId),
        st.lists(st.integers(0, 2**31 - 1), max_size=5).map(tuple),
    ),
    max_size=3,
).map(tuple)
members = st.builds(
    MemberValue,
    member=names,
    instance=st.none() | names,
    client_id=names,
    client_host=names,
    rebalance_timeout_ms=numbers,
    session_timeout_ms=numbers,
    subscription=st.binary(max_size=30),
    assignment=st.binary(max_size=30),
)
classic_members = st.builds(
    ClassicMembership,
    numbers,
    st.lists(st.tuples(names, st.binary(max_size=10)), max_size=3).map(tuple),
)
records = st.one_of(
    st.builds(
        GroupRecord,
        st.builds(OffsetKey, names, names, numbers),
        st.one_of(
            st.none(),
            st.tuples(times, numbers, names, times).map(lambda item: OffsetValue(*item)),
            st.tuples(times, st.just(-1), names, times, times).map(lambda item: OffsetValue(*item)),
        ),
    ),
    st.builds(
        GroupRecord,
        st.builds(GroupKey, names),
        st.none()
        | st.builds(
            GroupValue,
            protocol_type=names,
            generation=numbers,
            protocol=st.none() | names,
            leader=st.none() | names,
            state_since_ms=times,
            members=st.lists(members, max_size=3).map(tuple),
        ),
    ),
    st.builds(
        GroupRecord, st.builds(ConsumerGroupKey, names), st.builds(ConsumerGroupValue, numbers)
    ),
    st.builds(
        GroupRecord,
        st.builds(ConsumerMemberKey, names, names),
        st.builds(
            ConsumerMemberValue,
            instance=st.none() | names,
            rack=st.none() | names,
            client_id=names,
            client_host=names,
            topics=st.lists(names, max_size=3).map(tuple),
            topic_regex=st.none() | names,
            rebalance_timeout_ms=numbers,
            assignor=st.none() | names,
            classic=st.none() | classic_members,
        ),
    ),
    st.builds(
        GroupRecord,
        st.builds(TargetMemberKey, names, names),
        st.none() | st.builds(TargetMemberValue, held),
    ),
    st.builds(
        GroupRecord,
        st.builds(CurrentMemberKey, names, names),
        st.builds(CurrentMemberValue, numbers, numbers, st.integers(-128, 127), held, held),
    ),
)


@settings(deadline=None)
@given(records)
def test_records_survive_a_round_trip(record: GroupRecord) -> None:
    assert decode_record(*encode_record(record)) == record
