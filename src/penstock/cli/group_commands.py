"""`penstock group`: list, describe and delete consumer groups, and reset their offsets."""

import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.connect import (
    BootstrapOption,
    JsonOption,
    ask_cluster,
    command_group,
    fail,
    get_bootstrap,
    show_json,
    wants_json,
)

if TYPE_CHECKING:
    from penstock.client.cluster import ClusterClient
    from penstock.client.group_values import GroupDescription, GroupPartition
    from penstock.client.offset_reset import PlannedReset, ResetScope, ResetTarget

app = command_group("List, describe and delete consumer groups; reset their offsets.")

GroupArgument = Annotated[str, typer.Argument(metavar="GROUP", help="The group id.")]

_LIST_HELP = """List the groups of the cluster with their states.

\b
Examples:
  penstock group list
  penstock group list --json | jq -r '.[] | select(.state == "Empty") | .group'
"""

_DESCRIBE_HELP = """Show a group's members, their partitions, committed offsets and lag.

For every partition: the committed offset (the next to read), the end offset (the high watermark),
the lag between them, and the member that reads it. The time lag is how long ago the record at the
committed offset was written, 0 if none is behind; of the group, the largest. A partition without a
committed offset has no lag: auto.offset.reset decides where its consumer starts.

\b
Examples:
  penstock group describe billing
  penstock group describe billing --json | jq .lag
  penstock group describe billing --json | jq .time_lag_ms
"""

_RESET_HELP = """Reset a group's committed offsets.

Shows the new offsets; --execute commits them. The group must have no members: stop its consumers
first. An offset outside the log becomes the nearest one inside.

\b
Examples:
  penstock group reset-offsets billing --topic orders --to-earliest
  penstock group reset-offsets billing --topic orders:0,2 --to-offset 1000 --execute
  penstock group reset-offsets billing --all-topics --to-datetime 2026-01-31T13:45:00Z --execute
  penstock group reset-offsets billing --all-topics --by-duration 2h --execute
  penstock group reset-offsets billing --all-topics --shift-by -100 --execute
"""

_DELETE_HELP = """Delete a group and its committed offsets. It must have no members.

\b
Examples:
  penstock group delete billing
  penstock group delete billing --if-exists
"""


@app.command("list", help=_LIST_HELP)
def list_groups(
    ctx: typer.Context, bootstrap: BootstrapOption = None, as_json: JsonOption = False
) -> None:
    from penstock.cli.tables import show_table

    groups = ask_cluster(get_bootstrap(ctx, bootstrap), lambda client: client.groups.list_groups())
    if wants_json(ctx, as_json):
        show_json([asdict(group) for group in groups])
    elif groups:
        show_table(("group", "kind", "state"), [[e.group, e.kind, e.state] for e in groups])
    else:
        typer.echo("there are no groups: the first consumer of a group creates it", err=True)


@app.command(help=_DESCRIBE_HELP)
def describe(
    ctx: typer.Context,
    group: GroupArgument,
    bootstrap: BootstrapOption = None,
    as_json: JsonOption = False,
) -> None:
    from penstock.client.group_descriptions import describe_group

    description = ask_cluster(
        get_bootstrap(ctx, bootstrap), lambda client: describe_group(client, group)
    )
    if wants_json(ctx, as_json):
        show_json(description.as_json())
    else:
        _show_description(description)


def _show_description(description: "GroupDescription") -> None:
    from penstock.cli.tables import show_table

    print(f"group       {description.group}")
    print(f"state       {description.state}")
    assignor = f", {description.assignor}" if description.assignor else ""
    print(f"kind        {description.kind}{assignor}")
    print(f"coordinator {description.coordinator.id} ({description.coordinator.address})")
    print(f"lag         {_lag_text(description)}")
    if description.time_lag_ms is not None:
        print(f"time lag    {_show_age(description.time_lag_ms)}")
    if description.members:
        print()
        show_table(
            ("member", "client", "host", "partitions"),
            [
                [
                    member.member,
                    member.client_id,
                    member.host.removeprefix("/"),
                    len(member.assignment),
                ]
                for member in description.members
            ],
        )
    if description.partitions:
        print()
        columns = ("topic", "partition", "committed", "end", "lag", "time lag", "member", "host")
        show_table(columns, [_partition_row(partition) for partition in description.partitions])


def _lag_text(description: "GroupDescription") -> str:
    without = description.partitions_without_lag
    total = "-" if description.lag is None else str(description.lag)
    if not description.partitions:
        return f"{total} (nothing is committed)"
    if not without:
        return total
    plural = "" if without == 1 else "s"
    return f"{total} ({without} partition{plural} without a committed or an end offset)"


def _show_age(age_ms: int) -> str:
    """Without blanks: 0, 0.3s, 41.2s, 12m5s, 3h12m, 5d3h."""
    seconds = age_ms // 1000
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86_400
    if minutes == 0:
        return f"{age_ms / 1000:.1f}s" if age_ms else "0"
    if hours == 0:
        return f"{minutes}m{seconds % 60}s"
    return f"{hours}h{minutes % 60}m" if days == 0 else f"{days}d{hours % 24}h"


def _partition_row(partition: "GroupPartition") -> list[object]:
    return [
        partition.tp.topic,
        partition.tp.partition,
        None if partition.committed is None else partition.committed.offset,
        partition.end_offset,
        partition.lag,
        None if partition.time_lag_ms is None else _show_age(partition.time_lag_ms),
        None if partition.member is None else partition.member.member,
        None if partition.member is None else partition.member.host.removeprefix("/"),
    ]


@app.command("reset-offsets", help=_RESET_HELP)
def reset(
    ctx: typer.Context,
    group: GroupArgument,
    topic: Annotated[
        list[str] | None,
        typer.Option(
            "--topic",
            metavar="TOPIC[:P,P..]",
            help="A topic, or some of its partitions. Repeatable.",
        ),
    ] = None,
    all_topics: Annotated[
        bool, typer.Option("--all-topics", help="Every partition with a committed offset.")
    ] = False,
    to_earliest: Annotated[
        bool, typer.Option("--to-earliest", help="To the earliest offset.")
    ] = False,
    to_latest: Annotated[
        bool, typer.Option("--to-latest", help="To the log end: only new records.")
    ] = False,
    to_offset: Annotated[int | None, typer.Option("--to-offset", min=0)] = None,
    to_datetime: Annotated[
        str | None,
        typer.Option(
            "--to-datetime",
            metavar="ISO",
            help="To the first record at or after this time; UTC unless it has a zone.",
        ),
    ] = None,
    by_duration: Annotated[
        str | None,
        typer.Option(
            "--by-duration", metavar="SPAN", help="To this long before now: PT2H30M or 90m."
        ),
    ] = None,
    shift_by: Annotated[
        int | None,
        typer.Option("--shift-by", help="Shift by this many records; negative: backward."),
    ] = None,
    execute: Annotated[
        bool,
        typer.Option("--execute", help="Commit the new offsets; without this they are only shown."),
    ] = False,
    bootstrap: BootstrapOption = None,
    as_json: JsonOption = False,
) -> None:
    scopes = _parse_scopes(topic or [], all_topics)
    target = _parse_target(to_earliest, to_latest, to_offset, to_datetime, by_duration, shift_by)

    async def work(client: "ClusterClient") -> "list[PlannedReset]":
        from penstock.client.offset_reset import reset_offsets

        return await reset_offsets(client, group, scopes, target, execute=execute)

    planned = ask_cluster(get_bootstrap(ctx, bootstrap), work)
    if wants_json(ctx, as_json):
        partitions = [reset.as_json() for reset in planned]
        show_json({"group": group, "executed": execute, "partitions": partitions})
    else:
        _show_planned(group, planned, execute)


def _parse_scopes(topics: list[str], all_topics: bool) -> "list[ResetScope] | None":
    from penstock.client.offset_reset import InvalidReset, parse_scope

    if all_topics == bool(topics):
        fail("say which partitions: either --topic TOPIC[:P,P..] or --all-topics", 2)
    try:
        return None if all_topics else [parse_scope(topic) for topic in topics]
    except InvalidReset as error:
        fail(f"--topic {error}", 2)


def _parse_target(
    to_earliest: bool,
    to_latest: bool,
    to_offset: int | None,
    to_datetime: str | None,
    by_duration: str | None,
    shift_by: int | None,
) -> "ResetTarget":
    from penstock.client.offset_reset import (
        InvalidReset,
        ResetKind,
        ResetTarget,
        parse_duration_ms,
        parse_time_ms,
    )

    targets: list[ResetTarget] = []
    try:
        if to_earliest:
            targets.append(ResetTarget(ResetKind.EARLIEST))
        if to_latest:
            targets.append(ResetTarget(ResetKind.LATEST))
        if to_offset is not None:
            targets.append(ResetTarget(ResetKind.OFFSET, to_offset))
        if to_datetime is not None:
            targets.append(ResetTarget(ResetKind.TIME, parse_time_ms(to_datetime)))
        if by_duration is not None:
            now_ms = round(time.time() * 1000)
            targets.append(ResetTarget(ResetKind.TIME, now_ms - parse_duration_ms(by_duration)))
        if shift_by is not None:
            targets.append(ResetTarget(ResetKind.SHIFT, shift_by))
    except InvalidReset as error:
        fail(str(error), 2)
    if len(targets) != 1:
        fail(
            "say where to, with one of --to-earliest, --to-latest, --to-offset, --to-datetime, "
            "--by-duration and --shift-by",
            2,
        )
    return targets[0]


def _show_planned(group: str, planned: "list[PlannedReset]", executed: bool) -> None:
    from penstock.cli.tables import show_table

    rows = [
        [reset.tp.topic, reset.tp.partition, reset.committed, reset.offset] for reset in planned
    ]
    show_table(("topic", "partition", "committed", "new"), rows)
    if executed:
        print(f"group {group} continues from the new offsets")
    else:
        typer.echo("nothing was changed: add --execute to commit these offsets", err=True)


@app.command(help=_DELETE_HELP)
def delete(
    ctx: typer.Context,
    group: GroupArgument,
    if_exists: Annotated[
        bool, typer.Option("--if-exists", help="Succeed if the group does not exist.")
    ] = False,
    bootstrap: BootstrapOption = None,
    as_json: JsonOption = False,
) -> None:
    async def work(client: "ClusterClient") -> bool:
        from penstock.client.errors import RefusedByBroker
        from penstock.model.errors import ErrorCode

        try:
            await client.groups.delete(group)
        except RefusedByBroker as error:
            if if_exists and error.code is ErrorCode.GROUP_ID_NOT_FOUND:
                return False
            raise
        return True

    was_there = ask_cluster(get_bootstrap(ctx, bootstrap), work)
    if wants_json(ctx, as_json):
        show_json({"group": group, "deleted": was_there})
    else:
        print(f"deleted group {group}" if was_there else f"group {group} does not exist")
