"""What is read from half topics and decisions, and how it travels between brokers."""

from uuid import UUID

import pytest

from penstock.coordinators.deferred.half_values import (
    HalfDecision,
    HalfIntake,
    HalfWord,
    IntakeReply,
    ReadUpTo,
)
from penstock.coordinators.deferred.values import DeferredMessage, HalfKey, Hold, Target
from penstock.inter_broker.half_reading import (
    AbortedRange,
    HalfContext,
    SourceChunk,
    read_decisions_of,
    read_messages_of,
)
from penstock.inter_broker.half_topics import HalfTopics
from penstock.inter_broker.messages.deferred import decode_base_offset, encode_base_offset
from penstock.inter_broker.messages.half import (
    HalfEndsRequest,
    decode_half_ends,
    decode_half_intake,
    decode_offsets,
    encode_half_ends,
    encode_half_intake,
    encode_intake_reply,
    encode_offsets,
    read_intake_reply,
)
from penstock.model.cluster import (
    AUDIT_TOPIC,
    BrokerId,
    ControllerEpoch,
    PartitionState,
    TopicState,
    UpdateMetadataRequest,
)
from penstock.model.errors import ErrorCode
from penstock.model.ids import LeaderEpoch, TopicId, TopicPartition
from penstock.protocol.half_headers import InvalidHalf, read_decision, read_half
from penstock.protocol.records import Record, RecordHeaders, build_batch
from penstock.replication.metadata_cache import MetadataCache

TARGET = Target(TopicId(UUID(int=1)), 2)
SHOP = HalfContext("shop", ("shop", "web"), "orders", TARGET)
WEB = SHOP._replace(group="web")
AWAY = ErrorCode.NETWORK_EXCEPTION
OF_SHOP: RecordHeaders = (("penstock-half-id", b"a"), ("penstock-half-group", b"shop"))


def chunk(*records: Record) -> SourceChunk:
    return SourceChunk(bytes(build_batch(list(records))), len(records), 0, ())


def half(headers: RecordHeaders, value: bytes = b"v") -> Record:
    return Record(0, 5, b"k", value, headers)


def test_a_half_is_held_for_its_id_and_loses_its_headers() -> None:
    headers = (*OF_SHOP, ("penstock-delay-ms", b"50"), ("trace", b"t"))
    (message,) = read_messages_of(chunk(half(headers)), SHOP, pytest.fail)
    hold = Hold(HalfKey("shop", "a"), "orders", 50)
    assert message == DeferredMessage(0, TARGET, None, 5, b"k", b"v", (("trace", b"t"),), hold)


def test_a_time_to_deliver_at_is_kept() -> None:
    headers = (*OF_SHOP, ("penstock-deliver-at", b"70"))
    (message,) = read_messages_of(chunk(half(headers)), SHOP, pytest.fail)
    assert message.due_ms == 70
    assert message.hold is not None
    assert message.hold.delay_ms == 0


def test_each_group_reads_its_own_halves() -> None:
    assert read_messages_of(chunk(half(OF_SHOP)), WEB, pytest.fail) == []


def test_what_is_no_half_can_be_seen_and_is_reported_by_one_group() -> None:
    strangers: RecordHeaders = (("penstock-half-id", b"a"), ("penstock-half-group", b"x"))
    data = chunk(half(strangers))
    (message,) = read_messages_of(data, SHOP, pytest.fail)
    assert message.hold is None
    assert b"not bound" in (dict(message.headers)["penstock-half-reason"] or b"")
    assert read_messages_of(data, WEB, pytest.fail) == []


def test_what_was_aborted_is_left_out() -> None:
    batch = build_batch(
        [half(OF_SHOP)], producer_id=7, producer_epoch=0, base_sequence=0, transactional=True
    )
    data = SourceChunk(bytes(batch), 1, 0, ())
    assert len(read_messages_of(data, SHOP, pytest.fail)) == 1
    aborted = data._replace(aborted=(AbortedRange(7, 0, 1),))
    assert read_messages_of(aborted, SHOP, pytest.fail) == []
    other = data._replace(aborted=(AbortedRange(8, 0, 1), AbortedRange(7, 1, 2)))
    assert len(read_messages_of(other, SHOP, pytest.fail)) == 1


def test_decisions_are_read_in_order_and_unreadable_ones_reported() -> None:
    reports: list[str] = []
    data = chunk(
        Record(0, 5, b"a", b"commit"),
        Record(1, 5, b"b", b"perhaps"),
        Record(2, 5, b"c", b"rollback", (("penstock-half-group", b"web"),)),
        Record(3, 5, b"d", b"revive", (("penstock-half-group", b"shop"),)),
    )
    assert read_decisions_of(data, SHOP, reports.append) == [
        HalfDecision("a", HalfWord.COMMIT),
        HalfDecision("d", HalfWord.REVIVE),
    ]
    assert len(reports) == 1
    assert "offset 1" in reports[0]


def test_a_reply_says_whether_its_shard_is_full() -> None:
    for is_full in (False, True):
        reply = IntakeReply(ErrorCode.NONE, 7, is_full=is_full)
        assert read_intake_reply(ErrorCode.NONE, encode_intake_reply(reply)) == reply
    older = encode_offsets([7])
    assert read_intake_reply(ErrorCode.NONE, older) == IntakeReply(ErrorCode.NONE, 7)
    assert read_intake_reply(AWAY, b"") == IntakeReply(AWAY)


@pytest.mark.parametrize(
    ("headers", "reason"),
    [
        ((), "penstock-half-id is missing"),
        ((("penstock-half-id", b""), OF_SHOP[1]), "0 bytes"),
        ((("penstock-half-id", b"x" * 256), OF_SHOP[1]), "256 bytes"),
        ((("penstock-half-id", b"\xff"), OF_SHOP[1]), "not UTF-8"),
        ((*OF_SHOP, OF_SHOP[0]), "occurs twice"),
        ((OF_SHOP[0],), "penstock-half-group is missing"),
        ((*OF_SHOP, ("penstock-delay-ms", b"soon")), "ASCII digits"),
        ((*OF_SHOP, ("penstock-delay-ms", b"5"), ("penstock-delay-id", b"x")), "half id"),
        ((*OF_SHOP, ("penstock-delay-cancel", b"x")), "half id"),
    ],
)
def test_headers_that_make_no_half_say_why(headers: RecordHeaders, reason: str) -> None:
    with pytest.raises(InvalidHalf, match=reason):
        read_half(half(headers), ("shop",))


@pytest.mark.parametrize(
    ("key", "value"), [(None, b"commit"), (b"", b"commit"), (b"a", None), (b"\xff", b"commit")]
)
def test_what_is_no_decision_is_refused(key: bytes | None, value: bytes | None) -> None:
    with pytest.raises(InvalidHalf):
        read_decision(Record(0, 0, key, value))


def test_an_intake_arrives_as_it_was_sent() -> None:
    hold = Hold(HalfKey("shop", "a"), "orders", 50)
    held = DeferredMessage(9, TARGET, None, 5, None, b"v", (("trace", None),), hold)
    intake = HalfIntake(
        "shop",
        "orders",
        TARGET,
        3,
        7,
        1,
        TARGET,
        [held, held._replace(hold=None)],
        [HalfDecision("a", word) for word in HalfWord],
        [ReadUpTo(TARGET, 5)],
    )
    assert decode_half_intake(encode_half_intake(intake)) == intake
    assert decode_half_ends(encode_half_ends(HalfEndsRequest([TARGET]))).sources == [TARGET]
    assert decode_offsets(encode_offsets([5, 2**40])) == [5, 2**40]
    assert decode_base_offset(encode_base_offset(7)) == 7
    assert decode_base_offset(b"") == -1, "of an older broker"


# -- which topics have halves --------------------------------------------------------------


def topic(number: int, name: str, *leaders: int, groups: str = "") -> TopicState:
    return TopicState(
        name=name,
        topic_id=TopicId(UUID(int=number)),
        partitions=tuple(
            PartitionState(BrokerId(leader), LeaderEpoch(0), (), ()) for leader in leaders
        ),
        configs={"penstock.half.groups": groups} if groups else {},
    )


WHOLE = ("", ".half", ".half.decisions", ".half.expired")  # of an internal topic: without effect


def test_the_sources_of_a_group_are_known_once_its_topics_are_whole() -> None:
    metadata = MetadataCache()
    topics = HalfTopics(metadata)

    def add(*states: TopicState) -> None:
        metadata.apply(
            UpdateMetadataRequest(
                controller_id=BrokerId(1),
                controller_epoch=ControllerEpoch(1),
                is_full=False,
                topics=states,
            )
        )

    add(topic(1, "orders", 1, 2), topic(2, "orders.half", 1, 2, groups="shop, web"))
    add(topic(3, "orders.half.decisions", 2), topic(9, "plain.half", 1))
    add(*(topic(n, f"{AUDIT_TOPIC}{end}", 1, groups="shop") for n, end in enumerate(WHOLE, 10)))
    assert topics.sources() == []
    add(topic(4, "orders.half.expired", 1))
    shop = topics.sources_of("shop", decisions=False)
    assert [(source.tp, source.leader) for source in shop] == [
        (TopicPartition("orders.half", 0), 1),
        (TopicPartition("orders.half", 1), 2),
    ]
    (decisions,) = topics.sources_of("web", decisions=True)
    assert decisions.tp == TopicPartition("orders.half.decisions", 0)
    assert topics.groups_of("orders") == ("shop", "web")
    expired = topics.find_same_partition("orders.half.expired", 1)
    assert expired == Target(TopicId(UUID(int=4)), 0), "there are fewer of them"
    assert topics.find_partition("shop.half.checks", "a") is None
