"""`penstock cluster reassign`: partitions to brokers, by name or by a plan in Kafka's format."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.balance_command import AtOnceOption, ThrottleOption, make_plan
from penstock.cli.connect import (
    BootstrapOption,
    JsonOption,
    ask_cluster,
    fail,
    get_bootstrap,
    show_json,
    wants_json,
)

if TYPE_CHECKING:
    from penstock.client.cluster import ClusterClient
    from penstock.client.reassignments import ReassignmentResult
    from penstock.controller.balancing.layout import ClusterLayout
    from penstock.model.ids import TopicPartition

    Targets = dict[TopicPartition, tuple[int, ...]]

REASSIGN_HELP = """Reassign partitions to other brokers, or list ongoing reassignments.

The first broker named is the preferred leader. Records are copied in the background; all that
clients notice is the new leader. Without arguments, lists the ongoing reassignments.

Plans are JSON as kafka-reassign-partitions has it. --generate prints one instead of reassigning:
with --to for the partitions named; with --brokers one that spreads the topics and partitions named
(or all) over these brokers; without either, what `penstock cluster balance` would do.

\b
Examples:
  penstock cluster reassign orders-0 orders-1 --to 2,3,4
  penstock cluster reassign orders-0 --to 2,3,4 --throttle 10000000    (then: unthrottle)
  penstock cluster reassign orders --brokers 4,5,6 --generate > plan.json
  penstock cluster reassign --plan plan.json --throttle 10000000 --wait
  penstock cluster reassign
  penstock cluster reassign orders-0 --cancel
"""


def reassign(
    ctx: typer.Context,
    partitions: Annotated[
        list[str] | None,
        typer.Argument(metavar="[TOPIC-N]...", help="For example orders-0 orders-1."),
    ] = None,
    to: Annotated[
        str | None,
        typer.Option(
            "--to",
            metavar="ID,ID,...",
            help="Broker ids of their replicas, the preferred leader first.",
        ),
    ] = None,
    plan: Annotated[
        str | None,
        typer.Option("--plan", metavar="FILE", help="A plan in Kafka's format; - is stdin."),
    ] = None,
    generate: Annotated[
        bool, typer.Option("--generate", help="Print a plan in Kafka's format; change nothing.")
    ] = False,
    brokers: Annotated[
        str | None,
        typer.Option("--brokers", metavar="ID,ID,...", help="With --generate: spread over these."),
    ] = None,
    current: Annotated[
        bool,
        typer.Option(
            "--current", help="With --generate: the replicas as they are, to go back with later."
        ),
    ] = False,
    cancel: Annotated[
        bool, typer.Option("--cancel", help="Cancel their ongoing reassignments.")
    ] = False,
    throttle: ThrottleOption = None,
    wait: Annotated[
        bool,
        typer.Option(
            "--wait", help="Show progress until all is done, and end the throttle; Ctrl-C cancels."
        ),
    ] = False,
    at_once: AtOnceOption = 10,
    bootstrap: BootstrapOption = None,
    as_json: JsonOption = False,
) -> None:
    where, is_json = get_bootstrap(ctx, bootstrap), wants_json(ctx, as_json)
    if generate:
        if plan is not None or cancel:
            fail("--generate prints a plan: it goes without --plan and --cancel", 2)
        show_json(_generate(where, partitions or [], to, brokers, is_current=current))
        return
    if brokers is not None or current:
        fail("--brokers and --current need --generate", 2)
    if plan is not None and (partitions or to is not None):
        fail("--plan names the partitions and their replicas: name no others", 2)
    if plan is None and not partitions:
        if to is not None or cancel or throttle or wait:
            fail("name the partition to reassign, for example orders-0", 2)
        _show_reassignments(where, is_json)
        return
    if plan is None and (to is None) != cancel:
        named = ", ".join(partitions or ())
        fail(f"name the new replicas of {named} with --to 1,2,3, or use --cancel", 2)
    if cancel and (throttle is not None or wait):
        fail("--throttle and --wait need --to or --plan", 2)
    if plan is not None:
        targets = read_plan(plan)
    else:
        replicas = () if to is None else tuple(parse_brokers(to))
        targets = {parse_partition(text): replicas for text in partitions or ()}
    if wait:
        _run(where, targets, at_once=at_once, throttle=throttle, as_json=is_json)
        return
    outcomes = ask_cluster(where, lambda client: _alter(client, targets, cancel, throttle))
    show_outcomes(outcomes, "stays" if cancel else "moves", as_json=is_json)


async def _alter(
    client: "ClusterClient", targets: "Targets", cancel: bool, throttle: int | None
) -> "Mapping[TopicPartition, ReassignmentResult]":
    if cancel:
        return await client.reassignments.alter(dict.fromkeys(targets))
    if throttle is not None:
        from penstock.cli.throttled_reassignments import begin_throttle

        await begin_throttle(client, throttle)
    return await client.reassignments.alter(targets)


def _run(
    where: str, targets: "Targets", *, at_once: int, throttle: int | None, as_json: bool
) -> None:
    """Partitions that have these replicas already are left out, so that a plan can be continued."""
    from penstock.cli.balance_layout import read_layout
    from penstock.cli.reassignment_progress import run_and_show
    from penstock.controller.balancing.layout import PlannedReassignment
    from penstock.controller.balancing.planner import in_turns
    from penstock.model.cluster import BrokerId

    existing = {
        partition.tp: partition for partition in ask_cluster(where, read_layout).layout.partitions
    }
    for tp in targets:
        if tp not in existing:
            fail(f"{tp}: there is no such partition", 1)
    planned = [
        PlannedReassignment(
            tp, existing[tp].replicas, tuple(map(BrokerId, replicas)), existing[tp].size_bytes
        )
        for tp, replicas in targets.items()
        if existing[tp].replicas != replicas
    ]
    run_and_show(where, in_turns(planned), at_once=at_once, throttle=throttle, as_json=as_json)


# Plans in Kafka's format.


def read_plan(path: str) -> "Targets":
    """Ends the command if the file is not a plan."""
    import json

    from penstock.model.ids import TopicPartition

    name = "stdin" if path == "-" else path
    try:
        text = sys.stdin.read() if path == "-" else Path(path).read_text()
        document = json.loads(text)
    except (OSError, ValueError) as error:
        fail(f"--plan {name}: {error}", 2)
    targets: Targets = {}
    rows = document.get("partitions") if isinstance(document, dict) else None
    if not isinstance(rows, list) or document.get("version", 1) != 1:
        fail(f'--plan {name}: a plan is {{"version":1,"partitions":[...]}}', 2)
    for number, row in enumerate(rows):
        if not _is_row(row):
            fail(
                f"--plan {name}: partitions[{number}] is not "
                '{"topic":"orders","partition":0,"replicas":[1,2,3]}',
                2,
            )
        tp = TopicPartition(row["topic"], row["partition"])
        if tp in targets:
            fail(f"--plan {name}: {tp} is there twice", 2)
        targets[tp] = tuple(row["replicas"])
    if not targets:
        fail(f"--plan {name}: it names no partition", 2)
    return targets


def _is_row(row: object) -> bool:
    if not isinstance(row, dict):
        return False
    topic, partition, replicas = row.get("topic"), row.get("partition"), row.get("replicas")
    return (
        isinstance(topic, str)
        and _is_id(partition)
        and isinstance(replicas, list)
        and bool(replicas)
        and all(map(_is_id, replicas))
    )


def _is_id(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 31


def _generate(
    where: str, names: list[str], to: str | None, brokers: str | None, *, is_current: bool
) -> dict[str, object]:
    from penstock.cli.balance_layout import read_layout
    from penstock.cli.balance_view import as_kafka_plan
    from penstock.controller.balancing.layout import BalanceGoals
    from penstock.model.cluster import BrokerId

    if sum((to is not None, brokers is not None, is_current)) > 1:
        fail("--generate takes one of --to, --brokers and --current", 2)
    if to is not None:
        replicas = [BrokerId(broker) for broker in parse_brokers(to)]
        if not names:
            fail("name the partition to reassign, for example orders-0", 2)
        return as_kafka_plan((parse_partition(name), replicas) for name in names)
    targets = None if brokers is None else frozenset(parse_brokers(brokers, "--brokers"))
    layout = _selected(ask_cluster(where, read_layout).layout, names)
    if is_current:
        return as_kafka_plan((part.tp, part.replicas) for part in layout.partitions)
    removed: frozenset[BrokerId] = frozenset()
    if targets is not None:
        holders = {broker for part in layout.partitions for broker in part.replicas}
        absent = sorted(targets - layout.racks.keys())
        if absent:
            fail(f"--brokers: broker {absent[0]} is not alive", 1)
        removed = frozenset(holders | layout.racks.keys()) - targets
    from penstock.cli.balance_layout import CurrentLayout

    planned = make_plan(CurrentLayout(layout, {}), BalanceGoals(removed=removed))
    return as_kafka_plan((one.tp, one.after) for one in planned.reassignments)


def _selected(layout: "ClusterLayout", names: list[str]) -> "ClusterLayout":
    """The partitions of these topics, and those named themselves; all without a name."""
    from penstock.controller.balancing.layout import ClusterLayout

    if not names:
        return layout
    wanted = set(names)
    matches = {
        name
        for part in layout.partitions
        for name in (part.tp.topic, str(part.tp))
        if name in wanted
    }
    for name in names:
        if name not in matches:
            fail(f"{name}: there is no such topic or partition", 1)
    selected = [
        part for part in layout.partitions if part.tp.topic in wanted or str(part.tp) in wanted
    ]
    return ClusterLayout(racks=layout.racks, partitions=tuple(selected))


# Results.


def _show_reassignments(where: str, as_json: bool) -> None:
    from penstock.cli.tables import show_table

    ongoing = ask_cluster(where, lambda client: client.reassignments.list_ongoing())
    rows = [
        [str(name), *(",".join(map(str, brokers)) for brokers in reassignment)]
        for name, reassignment in sorted(ongoing.items())
    ]
    columns = ("partition", "replicas", "adding", "removing")
    if as_json:
        show_json([dict(zip(columns, row, strict=True)) for row in rows])
    elif rows:
        show_table(columns, rows)
    else:
        typer.echo("no reassignment is in progress", err=True)


def show_outcomes(
    outcomes: "Mapping[TopicPartition, ReassignmentResult]", done: str, *, as_json: bool
) -> None:
    """Print the result per partition; exit code 1 if any was refused."""
    from penstock.model.errors import ErrorCode

    fine = (ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED)
    if as_json:
        show_json({str(name): code.name for name, (code, _) in sorted(outcomes.items())})
    for name, (code, message) in sorted(outcomes.items()):
        if code not in fine:
            typer.echo(f"penstock: {name}: {message or code.message} ({code.name})", err=True)
        elif not as_json:
            print(f"{name} {done}" + (" already" if code is not ErrorCode.NONE else ""))
    if not outcomes and not as_json:
        print("nothing to do")
    if any(code not in fine for code, _ in outcomes.values()):
        raise typer.Exit(1)


def parse_partition(text: str) -> "TopicPartition":
    from penstock.model.ids import TopicPartition

    topic, dash, number = text.rpartition("-")
    if not (topic and dash and number.isdecimal()):
        fail(f"{text!r}: a partition is written TOPIC-N, for example orders-0", 2)
    return TopicPartition(topic, int(number))


def parse_brokers(text: str, option: str = "--to") -> list[int]:
    ids = text.split(",")
    if not all(broker_id.strip().isdecimal() for broker_id in ids):
        fail(f"{option} {text!r}: write broker ids separated by commas, for example 1,2,3", 2)
    return [int(broker_id) for broker_id in ids]
