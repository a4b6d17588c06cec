"""Produce on half topics: only halves of bound groups, from whoever may write to their topic."""

import pytest
from tests.unit.apis.harness import NOW_MS, ApiHarness

from penstock.model.cluster import INTERNAL_TOPICS
from penstock.model.errors import ErrorCode
from penstock.protocol.api_keys import ApiKey
from penstock.protocol.records import Record, RecordHeaders, build_batch
from penstock.security.authorizer import AclOperation, ResourceType

GROUPS = {"penstock.half.groups": "shop"}
OF_SHOP: RecordHeaders = (("penstock-half-id", b"a"), ("penstock-half-group", b"shop"))


@pytest.fixture(name="harness")
def _harness(harness: ApiHarness) -> ApiHarness:
    harness.make_topic("orders", configs={})
    harness.make_topic("orders.half", configs=GROUPS)
    harness.make_topic("orders.half.decisions", configs=GROUPS)
    return harness


def produce(harness: ApiHarness, *batches: tuple[str, Record]) -> list[tuple[int, str | None]]:
    """Error codes and messages."""
    sent = harness.send(
        ApiKey.PRODUCE,
        9,
        acks=-1,
        timeout_ms=1000,
        topic_data=[
            {
                "name": topic,
                "partition_data": [{"index": 0, "records": build_batch([record])}],
            }
            for topic, record in batches
        ],
    )
    return [
        (int(partition.error_code), partition.error_message)
        for topic in sent.reply.responses
        for partition in topic.partition_responses
    ]


def half(headers: RecordHeaders) -> Record:
    return Record(0, NOW_MS, b"k", b"v", headers)


def test_halves_and_decisions_are_appended(harness: ApiHarness) -> None:
    decision = Record(0, NOW_MS, b"a", b"commit")
    codes = produce(
        harness,
        ("orders", half(())),
        ("orders.half", half(OF_SHOP)),
        ("orders.half.decisions", decision),
    )
    assert [code for code, _ in codes] == [0, 0, 0]


def test_each_refusal_has_its_place_and_its_reason(harness: ApiHarness) -> None:
    strangers: RecordHeaders = (OF_SHOP[0], ("penstock-half-group", b"x"))
    codes = produce(
        harness,
        ("orders.half", half(strangers)),
        ("orders", half(())),
        ("orders.half.decisions", half(())),
    )
    invalid = int(ErrorCode.INVALID_RECORD)
    assert [code for code, _ in codes] == [invalid, 0, invalid]
    assert "'x' is not bound" in (codes[0][1] or "")
    assert "commit, rollback" in (codes[2][1] or "")


def test_a_group_with_as_many_halves_as_allowed_is_refused_more(harness: ApiHarness) -> None:
    harness.make_topic("orders.half", configs={"penstock.half.groups": "shop,web"}, epoch=1)
    of_web: RecordHeaders = (OF_SHOP[0], ("penstock-half-group", b"web"))
    harness.full_half_groups.add("shop")
    ((code, text),) = produce(harness, ("orders.half", half(OF_SHOP)))
    assert code == ErrorCode.POLICY_VIOLATION
    assert "penstock.half.max.pending" in (text or "")
    decision = Record(0, NOW_MS, b"a", b"commit")
    taken = produce(harness, ("orders.half", half(of_web)), ("orders.half.decisions", decision))
    assert [code for code, _ in taken] == [0, 0]
    harness.full_half_groups.clear()
    assert produce(harness, ("orders.half", half(OF_SHOP)))[0][0] == 0


def test_a_half_needs_write_on_its_topic(harness: ApiHarness) -> None:
    harness.guard.deny(AclOperation.WRITE, ResourceType.TOPIC, "orders")
    ((code, message),) = produce(harness, ("orders.half", half(OF_SHOP)))
    assert code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert "WRITE on topic 'orders'" in (message or "")


def test_a_half_of_a_topic_that_does_not_exist_is_refused(harness: ApiHarness) -> None:
    harness.make_topic("lost.half", configs=GROUPS)
    ((code, message),) = produce(harness, ("lost.half", half(OF_SHOP)))
    assert code == ErrorCode.INVALID_RECORD
    assert "'lost'" in (message or "")


@pytest.mark.parametrize("topic", sorted(INTERNAL_TOPICS))
def test_an_internal_topic_takes_no_halves(harness: ApiHarness, topic: str) -> None:
    """Their commit would be appended in a broker's name."""
    harness.make_topic(topic, configs={})
    harness.make_topic(f"{topic}.half", configs=GROUPS)
    ((code, _),) = produce(harness, (f"{topic}.half", half(OF_SHOP)))
    assert code == ErrorCode.INVALID_TOPIC_EXCEPTION
