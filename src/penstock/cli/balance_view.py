"""Shows a balance plan: what goes where, its bytes, and every broker before and after.

Text for people, one JSON object for programs; and reassignments in the format of Kafka's
kafka-reassign-partitions.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from penstock.controller.balancing.layout import BalancePlan, BrokerShare, PlannedReassignment
from penstock.model.cluster import BrokerId
from penstock.model.ids import TopicPartition

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")
SHOWN = 20  # reassignments listed by name; beyond that only their number is shown


def format_bytes(count: float) -> str:
    for unit in _UNITS[:-1]:
        if abs(count) < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} {_UNITS[-1]}"


def broker_rows(plan: BalancePlan, racks: Mapping[BrokerId, str | None]) -> list[list[object]]:
    nothing = BrokerShare(0, 0, 0)
    rows: list[list[object]] = []
    for broker in sorted(plan.before.keys() | plan.after.keys()):
        before, after = plan.before.get(broker, nothing), plan.after.get(broker, nothing)
        rows.append(
            [
                broker,
                racks.get(broker),
                _change(before.replicas, after.replicas),
                _change(before.leaders, after.leaders),
                _change(format_bytes(before.size_bytes), format_bytes(after.size_bytes)),
                "" if broker in racks else "MISSING",
            ]
        )
    return rows


def _change(before: object, after: object) -> str:
    return str(before) if before == after else f"{before} -> {after}"


def reassignment_rows(reassignments: Sequence[PlannedReassignment]) -> list[list[object]]:
    return [
        [
            str(planned.tp),
            ",".join(map(str, planned.before)),
            ",".join(map(str, planned.after)),
            format_bytes(planned.copied_bytes) if planned.adding else "-",
        ]
        for planned in reassignments
    ]


def show_plan(plan: BalancePlan, racks: Mapping[BrokerId, str | None], *, whole: bool) -> None:
    """`whole`: every reassignment by name."""
    from penstock.cli.tables import show_table

    shown = plan.reassignments if whole else plan.reassignments[:SHOWN]
    if shown:
        columns = ("partition", "replicas", "becomes", "to copy")
        show_table(columns, reassignment_rows(shown))
        if len(plan.reassignments) > len(shown):
            print(f"and {len(plan.reassignments) - len(shown)} more (--all shows them)")
        print()
    show_table(("broker", "rack", "replicas", "leaders", "bytes", ""), broker_rows(plan, racks))
    print()
    for problem in plan.stays:
        print(problem)
    print(summary(plan))


def summary(plan: BalancePlan) -> str:
    if not plan.reassignments:
        return "nothing to reassign"
    orders = sum(not planned.adding for planned in plan.reassignments)
    text = (
        f"{len(plan.reassignments)} partitions to reassign: {plan.copied_replicas} replicas and "
        f"{format_bytes(plan.copied_bytes)} to copy"
    )
    return f"{text}; {orders} only get another preferred leader" if orders else text


def plan_as_json(plan: BalancePlan, racks: Mapping[BrokerId, str | None]) -> dict[str, Any]:
    return {
        "reassignments": [
            {
                "topic": planned.tp.topic,
                "partition": planned.tp.partition,
                "before": list(planned.before),
                "after": list(planned.after),
                "bytes": planned.copied_bytes,
            }
            for planned in plan.reassignments
        ],
        "replicas_to_copy": plan.copied_replicas,
        "bytes_to_copy": plan.copied_bytes,
        "brokers": [
            {
                "broker": broker,
                "rack": racks.get(broker),
                "before": plan.before.get(broker, BrokerShare(0, 0, 0))._asdict(),
                "after": plan.after.get(broker, BrokerShare(0, 0, 0))._asdict(),
            }
            for broker in sorted(plan.before.keys() | plan.after.keys())
        ],
        "stays": list(plan.stays),
    }


def as_kafka_plan(
    assignments: Iterable[tuple[TopicPartition, Sequence[BrokerId]]],
) -> dict[str, Any]:
    """As kafka-reassign-partitions writes and reads it."""
    return {
        "version": 1,
        "partitions": [
            {"topic": tp.topic, "partition": tp.partition, "replicas": list(replicas)}
            for tp, replicas in assignments
        ],
    }
