"""`penstock cluster`: status, metrics, reassignments and leader elections."""

import os
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.balance_command import BALANCE_HELP, balance
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
from penstock.cli.reassign_command import (
    REASSIGN_HELP,
    parse_partition,
    reassign,
    show_outcomes,
)

if TYPE_CHECKING:
    from penstock.cli.cluster_health import HealthReport
    from penstock.cli.cluster_status import ClusterStatus
    from penstock.client.cluster import ClusterClient
    from penstock.client.reassignments import ReassignmentResult
    from penstock.model.ids import TopicPartition

app = command_group("Show the state of a cluster, balance it, reassign partitions, elect leaders.")
app.command(help=BALANCE_HELP)(balance)
app.command(help=REASSIGN_HELP)(reassign)

_HEALTH_COLOURS = {
    "healthy": "green",
    "degraded": "yellow",
    "under-replicated": "yellow",
    "offline": "red",
}
_SHOWN = 10  # partitions listed by name; beyond that only their number is shown

_STATUS_HELP = """Show the brokers, and the partitions that are offline or under-replicated.

The first line says healthy, under-replicated (replicas are not in sync) or offline (partitions have
no leader). A broker that has replicas but is not registered is MISSING.

\b
Examples:
  penstock cluster status
  penstock cluster status --strict || echo 'not healthy'
  penstock cluster status --json | jq .under_replicated
"""

_HEALTH_HELP = """Report whether the cluster is healthy, with an exit code for scripts.

Exit code 0 only if no partition is offline or under-replicated, and every broker answers, runs and
has no failed log directory. 1 otherwise, or if the cluster cannot be reached.

\b
Examples:
  penstock cluster health
  until penstock cluster health; do sleep 1; done
  penstock cluster health --json | jq .status
"""

_TOP_HELP = """Watch throughput, request rates, lag and the busiest partitions; Ctrl-C ends it.

Needs DESCRIBE on the cluster, for what the brokers measure.

\b
Examples:
  penstock cluster top
  penstock cluster top --interval 5
  penstock cluster top --count 1 --json
"""

_METRICS_HELP = """Show the metrics of every broker, and of the cluster.

NAMES are beginnings of metric names (docs/metrics.md); without any, a summary is shown. The value
of the cluster is the sum of the brokers', or the largest for quantiles, shares and states. Needs
DESCRIBE on the cluster, and no metrics listener.

\b
Examples:
  penstock cluster metrics
  penstock cluster metrics kafka_network_requestmetrics_requests kafka_consumergroup_lag
  penstock cluster metrics --json kafka_ penstock_
"""

_UNTHROTTLE_HELP = """Remove replication throttles from all topics and brokers.

\b
Examples:
  penstock cluster unthrottle
"""

_ELECT_HELP = """Elect preferred leaders, for example after a restart.

\b
Examples:
  penstock cluster elect-leaders
  penstock cluster elect-leaders orders-0 orders-1
  penstock cluster elect-leaders orders-0 --unclean    (records may be lost)
"""


@app.command(help=_STATUS_HELP)
def status(
    ctx: typer.Context,
    strict: Annotated[
        bool,
        typer.Option("--strict", help="Exit with 1 unless the cluster is healthy."),
    ] = False,
    bootstrap: BootstrapOption = None,
    as_json: JsonOption = False,
) -> None:
    from penstock.cli.cluster_status import ClusterHealth, find_status

    status = ask_cluster(get_bootstrap(ctx, bootstrap), find_status)
    if wants_json(ctx, as_json):
        show_json(status.as_json())
    else:
        show_status(status)
    if strict and status.health is not ClusterHealth.HEALTHY:
        raise typer.Exit(1)


@app.command(help=_HEALTH_HELP)
def health(
    ctx: typer.Context, bootstrap: BootstrapOption = None, as_json: JsonOption = False
) -> None:
    from penstock.cli.cluster_health import find_health

    report = ask_cluster(get_bootstrap(ctx, bootstrap), find_health)
    raise typer.Exit(show_health(report, as_json=wants_json(ctx, as_json)))


def show_health(report: "HealthReport", *, as_json: bool) -> int:
    """Returns the exit code."""
    if as_json:
        show_json(report.as_json())
    else:
        print(_in_colour(report.word, _HEALTH_COLOURS[report.word]))
        _show_partitions("without a leader", report.status.leaderless)
        _show_partitions("with replicas that are not in sync", report.status.under_replicated)
        for broker, problem in sorted(report.problems.items()):
            print(f"broker {broker}: {problem}")
    return 0 if report.is_healthy else 1


@app.command(help=_METRICS_HELP)
def metrics(
    ctx: typer.Context,
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAMES]...", help="Beginnings of names.")
    ] = None,
    bootstrap: BootstrapOption = None,
    as_json: JsonOption = False,
) -> None:
    from penstock.cli import cluster_metrics
    from penstock.cli.tables import show_table

    described = ask_cluster(
        get_bootstrap(ctx, bootstrap),
        lambda client: cluster_metrics.find_metrics(client, names or ()),
    )
    if wants_json(ctx, as_json):
        show_json(cluster_metrics.as_json(described))
    elif described.series:
        brokers = [f"broker {broker}" for broker in sorted(described.series)]
        show_table(("metric", *brokers, "cluster"), cluster_metrics.rows(described))
    for broker in described.truncated:
        typer.echo(f"penstock: broker {broker} has more; name what you want", err=True)
    for broker, error in sorted(described.errors.items()):
        typer.echo(f"penstock: broker {broker}: {error}", err=True)
    unknown = cluster_metrics.find_unknown(described, names or ())
    for name in unknown:
        typer.echo(
            f"penstock: no series of these brokers begins with {name!r}; docs/metrics.md has them",
            err=True,
        )
    if described.errors or unknown:
        raise typer.Exit(1)


@app.command(help=_TOP_HELP)
def top(
    ctx: typer.Context,
    interval: Annotated[
        float, typer.Option(metavar="SECONDS", min=0.2, help="Time between two looks.")
    ] = 2.0,
    count: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="End after so many views.")
    ] = None,
    bootstrap: BootstrapOption = None,
    as_json: JsonOption = False,
) -> None:
    from penstock.cli.cluster_top_screen import watch

    where, is_json = get_bootstrap(ctx, bootstrap), wants_json(ctx, as_json)
    ask_cluster(where, lambda client: watch(client, interval, count, as_json=is_json))


def show_status(status: "ClusterStatus") -> None:
    from penstock.cli.tables import show_table

    health = _in_colour(status.health.value, _HEALTH_COLOURS[status.health.value])
    print(f"cluster {status.cluster_id or '-'}: {health}\n")
    columns = ("broker", "address", "rack", "leads", "replicas", "")
    show_table(columns, status.broker_rows())
    if status.missing_brokers:
        missing = ", ".join(map(str, status.missing_brokers))
        print(f"\nmissing brokers: {missing}; start them, or reassign their replicas")
    print(f"\n{len(status.partitions)} partitions")
    _show_partitions("without a leader", status.leaderless)
    _show_partitions("under-replicated", status.under_replicated)
    _show_partitions("not led by their preferred leader", status.not_preferred)
    _show_partitions("being moved", list(status.moving))
    for line in status.balancing.lines() if status.balancing else ():
        print(line)


def _in_colour(text: str, colour: str) -> str:
    """On a terminal, unless NO_COLOR is set."""
    if not sys.stdout.isatty() or os.environ.get("NO_COLOR"):
        return text
    return typer.style(text, fg=colour, bold=True)


def _show_partitions(what: str, partitions: "Sequence[TopicPartition]") -> None:
    if partitions:
        named = ", ".join(str(partition) for partition in partitions[:_SHOWN])
        more = f" and {len(partitions) - _SHOWN} more" if len(partitions) > _SHOWN else ""
        print(f"{len(partitions)} {what}: {named}{more}")


@app.command(help=_UNTHROTTLE_HELP)
def unthrottle(ctx: typer.Context, bootstrap: BootstrapOption = None) -> None:
    from penstock.cli.throttled_reassignments import end_throttles

    ask_cluster(get_bootstrap(ctx, bootstrap), end_throttles)
    print("removed all replication throttles")


@app.command("elect-leaders", help=_ELECT_HELP)
def elect_leaders(
    ctx: typer.Context,
    partitions: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[TOPIC-N]...", help="Partitions to elect leaders for.  [default: all]"
        ),
    ] = None,
    unclean: Annotated[
        bool,
        typer.Option(
            "--unclean",
            help="If no in-sync replica is alive, elect any live one. Records that it lacks are "
            "lost.",
        ),
    ] = False,
    bootstrap: BootstrapOption = None,
    as_json: JsonOption = False,
) -> None:
    if unclean and not partitions:
        fail("--unclean loses records: name the partitions that it is for", 2)
    wanted = [parse_partition(partition) for partition in partitions] if partitions else None

    async def work(client: "ClusterClient") -> "Mapping[TopicPartition, ReassignmentResult]":
        from penstock.model.admin import ElectionType

        choice = ElectionType.UNCLEAN if unclean else ElectionType.PREFERRED
        return await client.reassignments.elect_leaders(wanted, choice=choice)

    outcomes = ask_cluster(get_bootstrap(ctx, bootstrap), work)
    show_outcomes(outcomes, "has its leader", as_json=wants_json(ctx, as_json))
