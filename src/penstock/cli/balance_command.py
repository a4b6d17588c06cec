"""`penstock cluster balance`: plans and runs the reassignments that even out the brokers."""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

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
    from penstock.cli.balance_layout import CurrentLayout
    from penstock.controller.balancing.layout import BalanceGoals, BalancePlan

BALANCE_HELP = """Even out the brokers: racks, replicas, bytes on disk, leaders.

Replicas of a partition are on as many racks as possible; every broker has as many replicas and
preferred leaders as the others, and as many bytes give or take --tolerance. As few bytes as
possible are copied, and no partition ever has fewer replicas than before.

The plan is shown first. Ctrl-C cancels what is under way and keeps what is done; the same command
continues. --cancel does the same to reassignments that something else runs.

\b
Examples:
  penstock cluster balance --dry-run
  penstock cluster balance --throttle 10000000
  penstock cluster balance --remove-broker 3 --yes    (it keeps no replica, and can be stopped)
  penstock cluster balance --add-broker 4             (only broker 4 gets replicas)
  penstock cluster balance --dry-run --json | jq .bytes_to_copy
"""

ThrottleOption = Annotated[
    int | None,
    typer.Option(
        "--throttle",
        metavar="BYTES",
        min=1,
        help="Copy at most this many bytes per second to and from a broker.",
    ),
]
AtOnceOption = Annotated[
    int,
    typer.Option("--at-once", metavar="N", min=1, help="Partitions that are reassigned at once."),
]


def parse_broker_ids(option: str, texts: list[str] | None) -> frozenset[int]:
    """Repeated, or separated by commas."""
    ids = [text.strip() for given in texts or () for text in given.split(",")]
    for broker_id in ids:
        if not broker_id.isdecimal():
            fail(f"{option} {broker_id!r}: a broker id is a number, for example 3", 2)
    return frozenset(map(int, ids))


def make_plan(current: "CurrentLayout", goals: "BalanceGoals") -> "BalancePlan":
    from penstock.controller.balancing.layout import CannotBalance
    from penstock.controller.balancing.planner import plan_balance

    try:
        return plan_balance(current.layout, goals)
    except CannotBalance as error:
        fail(str(error), 1)


def balance(
    ctx: typer.Context,
    remove_broker: Annotated[
        list[str] | None,
        typer.Option(
            "--remove-broker",
            metavar="ID",
            help="Leave this broker without replicas, alive or not. Repeatable.",
        ),
    ] = None,
    add_broker: Annotated[
        list[str] | None,
        typer.Option(
            "--add-broker",
            metavar="ID",
            help="Copy replicas to this broker alone. Repeatable.",
        ),
    ] = None,
    exclude_broker: Annotated[
        list[str] | None,
        typer.Option(
            "--exclude-broker",
            metavar="ID",
            help="Leave the replicas of this broker as they are. Repeatable.",
        ),
    ] = None,
    tolerance: Annotated[
        int,
        typer.Option(
            "--tolerance",
            metavar="PERCENT",
            min=0,
            max=100,
            help="How far a broker's bytes may be from the mean.",
        ),
    ] = 10,
    throttle: ThrottleOption = None,
    at_once: AtOnceOption = 10,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show the plan.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    cancel: Annotated[
        bool,
        typer.Option("--cancel", help="Cancel all ongoing reassignments, and end the throttle."),
    ] = False,
    show_all: Annotated[bool, typer.Option("--all", help="Show every reassignment.")] = False,
    bootstrap: BootstrapOption = None,
    as_json: JsonOption = False,
) -> None:
    where, is_json = get_bootstrap(ctx, bootstrap), wants_json(ctx, as_json)
    if cancel:
        _cancel(where, as_json=is_json)
        return
    goals = _make_goals(remove_broker, add_broker, exclude_broker, tolerance)
    is_asking = not (dry_run or yes)
    if is_asking and (is_json or not sys.stdin.isatty()):
        fail("there is nobody to ask: add --yes to run the plan, or --dry-run to see it", 2)
    from penstock.cli.balance_layout import read_layout

    current = ask_cluster(where, read_layout)
    plan = make_plan(current, goals)
    _show(current, plan, whole=show_all, as_json=is_json)
    if dry_run or not plan.reassignments:
        return
    if is_asking and not typer.confirm("Reassign them?"):
        raise typer.Exit(1)
    from penstock.cli.reassignment_progress import run_and_show

    run_and_show(where, plan.reassignments, at_once=at_once, throttle=throttle, as_json=is_json)


def _make_goals(
    removed: list[str] | None, added: list[str] | None, excluded: list[str] | None, tolerance: int
) -> "BalanceGoals":
    from penstock.controller.balancing.layout import BalanceGoals
    from penstock.model.cluster import BrokerId

    return BalanceGoals(
        removed=frozenset(map(BrokerId, parse_broker_ids("--remove-broker", removed))),
        added=frozenset(map(BrokerId, parse_broker_ids("--add-broker", added))),
        excluded=frozenset(map(BrokerId, parse_broker_ids("--exclude-broker", excluded))),
        disk_tolerance_percent=tolerance,
    )


def _show(current: "CurrentLayout", plan: "BalancePlan", *, whole: bool, as_json: bool) -> None:
    from penstock.cli.balance_view import plan_as_json, show_plan

    racks = current.layout.racks
    if as_json:
        show_json({"type": "plan", **plan_as_json(plan, racks)})
        return
    show_plan(plan, racks, whole=whole)
    if current.ongoing:
        print(f"{len(current.ongoing)} partitions are being reassigned already; they count as done")


def _cancel(where: str, *, as_json: bool) -> None:
    from penstock.cli.reassignment_run import cancel_all

    cancelled = ask_cluster(where, cancel_all)
    if as_json:
        show_json({"type": "cancelled", "partitions": [str(tp) for tp in cancelled]})
    elif cancelled:
        print(
            f"cancelled {len(cancelled)} reassignments; their partitions have their replicas of "
            "before"
        )
    else:
        print("no reassignment was in progress")
