"""Arguments of `penstock cluster`: partitions and brokers, and how invalid ones are refused."""

import pytest
from typer.testing import CliRunner

from penstock.cli.main import app
from penstock.cli.reassign_command import parse_brokers, parse_partition
from penstock.model.ids import TopicPartition


@pytest.mark.parametrize(
    ("text", "topic", "number"),
    [
        ("orders-0", "orders", 0),
        ("orders-12", "orders", 12),
        ("orders-by-day-3", "orders-by-day", 3),
        ("2024-01-7", "2024-01", 7),
        ("a.b_c--1", "a.b_c-", 1),
    ],
)
def test_the_last_dash_separates_topic_and_partition(text: str, topic: str, number: int) -> None:
    assert parse_partition(text) == TopicPartition(topic, number)


@pytest.mark.parametrize(
    ("text", "brokers"),
    [("2", [2]), ("2,3,4", [2, 3, 4]), ("3, 1", [3, 1])],
)
def test_brokers_keep_their_order(text: str, brokers: list[int]) -> None:
    assert parse_brokers(text) == brokers


@pytest.mark.parametrize(
    "text", ["orders", "orders-", "-0", "orders-x", "orders--", "orders-1.5", ""]
)
def test_an_invalid_partition_is_rejected_with_an_example(text: str) -> None:
    result = CliRunner().invoke(app, ["cluster", "reassign", "--to", "1", "--", text])
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == (
        f"penstock: {text!r}: a partition is written TOPIC-N, for example orders-0\n"
    )


@pytest.mark.parametrize("text", ["", "one", "1,,2", "1;2", "1,-2", "1,2,"])
def test_invalid_brokers_are_rejected_with_an_example(text: str) -> None:
    result = CliRunner().invoke(app, ["cluster", "reassign", "orders-0", "--to", text])
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == (
        f"penstock: --to {text!r}: write broker ids separated by commas, for example 1,2,3\n"
    )


@pytest.mark.parametrize(
    ("arguments", "advice"),
    [
        (["reassign", "--to", "1,2"], "name the partition to reassign"),
        (["reassign", "--cancel"], "name the partition to reassign"),
        (["reassign", "orders-0"], "name the new replicas of orders-0"),
        (["reassign", "orders-0", "--to", "1", "--cancel"], "name the new replicas of orders-0"),
        (["elect-leaders", "--unclean"], "--unclean loses records: name the partitions"),
        (["elect-leaders", "orders"], "a partition is written TOPIC-N"),
    ],
)
def test_a_missing_argument_is_named(arguments: list[str], advice: str) -> None:
    result = CliRunner().invoke(app, ["cluster", *arguments])
    assert (result.exit_code, result.stdout) == (2, "")
    assert advice in result.stderr


def test_an_unreachable_cluster_is_one_clear_line() -> None:
    result = CliRunner().invoke(app, ["cluster", "status", "--bootstrap", "127.0.0.1:1"])
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("penstock: cannot reach a broker at 127.0.0.1:1")
    assert result.stderr.count("\n") == 1
