"""`penstock transaction`, as far as it needs no broker: usage, ages, hanging transactions."""

from __future__ import annotations

from dataclasses import replace

import pytest
from typer.testing import CliRunner

from penstock.cli.holding_transactions import describe_holding
from penstock.cli.main import app
from penstock.cli.transaction_search import TransactionReport, unknown_to
from penstock.client.address import Address
from penstock.client.metadata import BrokerMetadata
from penstock.client.transaction_values import NEVER_MS, OpenTransaction, TransactionDescription
from penstock.model.cluster import BrokerId
from penstock.model.ids import TopicPartition

NOBODY = {"PENSTOCK_BOOTSTRAP": "127.0.0.1:1"}
P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--help"], ["list", "describe", "abort", "find-hanging"]),
        (["list", "-h"], ["Examples:", "--older-than", "--json"]),
        (["describe", "-h"], ["Examples:", "two-phase"]),
        (["abort", "-h"], ["Examples:", "--start-offset"]),
        (["find-hanging", "-h"], ["Examples:", "coordinator"]),
        (["holding", "-h"], ["Examples:", "--topic", "read_committed"]),
        (["end-query", "-h"], ["Examples:", "fenced", "abandonedAfter"]),
    ],
)
def test_help_explains_itself_with_examples(arguments: list[str], words: list[str]) -> None:
    result = CliRunner().invoke(app, ["transaction", *arguments])
    assert result.exit_code == 0
    for word in words:
        assert word in result.stdout


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["abort"], "either a transactional id"),
        (["abort", "x", "--topic", "t"], "either a transactional id"),
        (["abort", "--topic", "t", "--partition", "0"], "--start-offset"),
        (["list", "--older-than", "long"], "--older-than"),
        (["list", "--pattern", "("], "--pattern"),
        (["find-hanging", "--older-than", ""], "--older-than"),
    ],
)
def test_wrong_usage_exits_2_before_contacting_a_broker(
    arguments: list[str], complaint: str
) -> None:
    result = CliRunner().invoke(app, ["transaction", *arguments], env=NOBODY)
    assert (result.exit_code, result.stdout) == (2, "")
    assert complaint in result.stderr


def described(
    *partitions: TopicPartition, state: str = "Ongoing", timeout_ms: int = 60_000
) -> TransactionDescription:
    return TransactionDescription(
        transactional_id="x",
        coordinator=BrokerMetadata(BrokerId(1), Address("127.0.0.1", 1)),
        state=state,
        producer_id=7,
        producer_epoch=3,
        timeout_ms=timeout_ms,
        start_ms=1_000,
        partitions=partitions,
    )


def open_in(
    partition: TopicPartition, producer_id: int = 7, producer_epoch: int = 3
) -> OpenTransaction:
    return OpenTransaction(partition, producer_id, producer_epoch, -1, 5, 1_000)


def test_a_transaction_hangs_if_no_coordinator_knows_it() -> None:
    transactions = [open_in(P0), open_in(P1), open_in(P0, producer_id=8)]
    assert unknown_to(transactions, [described(P0)]) == transactions[1:]
    assert (
        unknown_to(transactions, [described(P0, P1, state="CompleteAbort")]) == transactions
    )  # completed at its coordinator


def test_a_transaction_hangs_if_its_coordinator_has_only_an_earlier_one() -> None:
    transactions = [open_in(P0, producer_epoch=epoch) for epoch in (2, 3, 4)]
    assert unknown_to(transactions, [described(P0, state="PrepareAbort")]) == transactions[2:]


def test_a_report_has_the_age_and_two_phase_flag() -> None:
    report = TransactionReport(description=described(P0, timeout_ms=NEVER_MS), now_ms=61_000)
    assert report.as_json()["age_ms"] == 60_000
    assert report.as_json()["timeout_ms"] is None
    assert report.is_two_phase
    over = TransactionReport(description=described(state="CompleteCommit"), now_ms=61_000)
    assert (over.age_ms, over.is_two_phase) == (None, False)


@pytest.mark.parametrize(
    ("transactional_id", "timeout_ms", "holder"),
    [
        ("penstock-spark:q1:p:3:60000", NEVER_MS, "Spark query q1"),
        ("billing", NEVER_MS, "two-phase commit"),
        ("billing", 60_000, "producer"),
    ],
)
def test_holder_of_a_partition_is_named(
    transactional_id: str, timeout_ms: int, holder: str
) -> None:
    description = replace(described(P0, timeout_ms=timeout_ms), transactional_id=transactional_id)
    (holding,) = describe_holding([open_in(P0)], {7: description})
    assert holding.holder == holder
    assert holding.as_json(now_ms=61_000)["age_ms"] == 60_000


def test_transaction_that_no_coordinator_knows_holds_too_and_an_ended_one_does_not() -> None:
    unknown, ended = open_in(P0, producer_id=8), open_in(P1)
    (holding,) = describe_holding([unknown, ended], {7: described(P1, state="CompleteAbort")})
    assert (holding.tp, holding.transactional_id) == (P0, None)
    assert "find-hanging" in holding.holder
