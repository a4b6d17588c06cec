"""What `penstock cluster balance` shows of a plan."""

import json

import pytest
from typer.testing import CliRunner

from penstock.cli.balance_view import as_kafka_plan, format_bytes, plan_as_json, show_plan
from penstock.cli.main import app
from penstock.controller.balancing.layout import (
    BalanceGoals,
    BalancePlan,
    ClusterLayout,
    LayoutPartition,
)
from penstock.controller.balancing.planner import plan_balance
from penstock.model.cluster import BrokerId
from penstock.model.ids import TopicPartition

ONE, TWO, THREE = map(BrokerId, (1, 2, 3))
MIB = 1 << 20
RACKS = {ONE: "a", TWO: "b", THREE: "c"}


def plan_of_a_new_broker() -> BalancePlan:
    """Six partitions on two of three brokers."""
    partitions = tuple(
        LayoutPartition(TopicPartition("orders", number), (ONE, TWO), 10 * MIB)
        for number in range(6)
    )
    return plan_balance(ClusterLayout(racks=RACKS, partitions=partitions))


def test_a_plan_shows_reassignments_bytes_and_each_broker_before_and_after(
    capsys: pytest.CaptureFixture[str],
) -> None:
    show_plan(plan_of_a_new_broker(), RACKS, whole=True)
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    copied = [line for line in lines if line[-2:] == ["10.0", "MiB"] and "orders" in line[0]]
    assert len(copied) == 4
    assert ["3", "c", "0", "->", "4", "0", "->", "2", "0", "B", "->", "40.0", "MiB"] in lines
    assert " ".join(lines[-1]).startswith(
        "6 partitions to reassign: 4 replicas and 40.0 MiB to copy; 2 only get another preferred"
    )


def test_a_long_plan_is_cut_and_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    partitions = tuple(
        LayoutPartition(TopicPartition("orders", number), (ONE,), MIB) for number in range(100)
    )
    plan = plan_balance(ClusterLayout(racks=RACKS, partitions=partitions))
    show_plan(plan, RACKS, whole=False)
    assert "and 46 more (--all shows them)" in capsys.readouterr().out


def test_a_plan_for_programs_counts_what_it_lists() -> None:
    document = json.loads(json.dumps(plan_as_json(plan_of_a_new_broker(), RACKS)))
    assert document["bytes_to_copy"] == sum(row["bytes"] for row in document["reassignments"])
    assert document["replicas_to_copy"] == 4
    [third] = [row for row in document["brokers"] if row["broker"] == 3]
    assert third["before"]["replicas"] == 0
    assert third["after"] == {"replicas": 4, "leaders": 2, "size_bytes": 40 * MIB}


def test_a_removed_broker_without_a_leader_to_copy_from_is_named(
    capsys: pytest.CaptureFixture[str],
) -> None:
    offline = LayoutPartition(TopicPartition("orders", 0), (THREE,), MIB, is_fixed=True)
    layout = ClusterLayout(racks={ONE: None}, partitions=(offline,))
    plan = plan_balance(layout, BalanceGoals(removed=frozenset([THREE])))
    show_plan(plan, layout.racks, whole=True)
    shown = capsys.readouterr().out
    assert "orders-0 stays on broker 3: it has no leader" in shown
    assert shown.endswith("nothing to reassign\n")


def test_a_plan_in_kafkas_format_names_topic_partition_and_replicas() -> None:
    assert as_kafka_plan([(TopicPartition("orders", 4), (TWO, ONE))]) == {
        "version": 1,
        "partitions": [{"topic": "orders", "partition": 4, "replicas": [2, 1]}],
    }


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (5 << 30, "5.0 GiB"),
        (1 << 60, "1048576.0 TiB"),
    ],
)
def test_bytes_are_shown_in_the_unit_that_fits(count: int, text: str) -> None:
    assert format_bytes(count) == text


@pytest.mark.parametrize("option", ["--remove-broker", "--add-broker", "--exclude-broker"])
def test_a_broker_that_is_no_number_is_wrong_usage(option: str) -> None:
    result = CliRunner().invoke(app, ["cluster", "balance", option, "1,x"])
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == f"penstock: {option} 'x': a broker id is a number, for example 3\n"
