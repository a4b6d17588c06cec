"""`penstock transaction`: list, describe and end transactions; find who holds back consumers."""

import re
import time
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
    from penstock.cli.holding_transactions import HoldingTransaction
    from penstock.cli.transaction_search import TransactionReport
    from penstock.client.cluster import ClusterClient
    from penstock.client.transaction_values import ListedTransaction, OpenTransaction
    from penstock.spark.sink.exactly_once.commit_coordinator import RecoveredTransactions

app = command_group("List, describe and end transactions; find out which hold back consumers.")

DEFAULT_HANGING_AGE = "15m"  # the default maximum of a transaction's timeout

IdArgument = Annotated[str, typer.Argument(metavar="ID", help="The transactional id.")]

_LIST_HELP = """List transactional ids with their states.

\b
Examples:
  penstock transaction list
  penstock transaction list --state Ongoing --older-than 10m
  penstock transaction list --pattern 'billing-.*' --json
"""

_DESCRIBE_HELP = """Show the state of a transactional id, and its transaction: age and partitions.

A transaction with two-phase commit never times out: it stays open until it is committed or aborted,
and read_committed consumers wait for it.

\b
Examples:
  penstock transaction describe billing-1
  penstock transaction describe billing-1 --json | jq .age_ms
"""

_ABORT_HELP = """Abort the open transaction of a transactional id, prepared or not.

A Spark query may have decided to commit its own (penstock-spark:...): use end-query for those.

For a hanging transaction, which no coordinator knows any more, name the partition and the start
offset that find-hanging shows.

\b
Examples:
  penstock transaction abort billing-1
  penstock transaction abort --topic orders --partition 3 --start-offset 1042
"""

_HANGING_HELP = """Find hanging transactions: open in a partition, but unknown to every coordinator.

Nothing ends them but `penstock transaction abort`.

\b
Examples:
  penstock transaction find-hanging
  penstock transaction find-hanging --topic orders --older-than 1h
"""

_HOLDING_HELP = """Show which open transactions hold back read_committed consumers, and whose.

Consumers of a partition see nothing from the start offset on until the transaction has ended.

\b
Examples:
  penstock transaction holding
  penstock transaction holding --topic orders --json
"""

_END_QUERY_HELP = """End what an exactly-once Spark query has left undecided, as its driver would.

The query's driver is fenced; what it had decided to commit is committed, the rest is aborted. The
brokers do this by themselves once the query has shown no sign of life for a while (the sink's
option abandonedAfter). If the query is alive after all, its current batch fails and must be run
again.

\b
Examples:
  penstock transaction holding --topic orders
  penstock transaction end-query 0a3d5b4e-2f3c-4d56-9a41-5f0c0d3a7e11
"""


@app.command("list", help=_LIST_HELP)
def list_transactions(
    ctx: typer.Context,
    state: Annotated[
        list[str] | None,
        typer.Option(
            "--state", help="Only transactions in this state (Kafka's names). Repeatable."
        ),
    ] = None,
    older_than: Annotated[
        str | None,
        typer.Option(
            "--older-than",
            metavar="SPAN",
            help="Only transactions open for longer than this: 90m, PT2H.",
        ),
    ] = None,
    pattern: Annotated[
        str | None,
        typer.Option(
            "--pattern",
            metavar="REGEX",
            help="Only transactional ids that match this pattern entirely.",
        ),
    ] = None,
    bootstrap: BootstrapOption = None,
    as_json: JsonOption = False,
) -> None:
    from penstock.cli.tables import show_table

    min_duration_ms = -1 if older_than is None else _parse_span("--older-than", older_than)
    wanted = _parse_pattern(pattern)

    async def work(client: "ClusterClient") -> "list[ListedTransaction]":
        listed = await client.transactions.list_transactions(
            states=state or (), min_duration_ms=min_duration_ms
        )
        return [
            transaction for transaction in listed if wanted.fullmatch(transaction.transactional_id)
        ]

    transactions = ask_cluster(get_bootstrap(ctx, bootstrap), work)
    if wants_json(ctx, as_json):
        show_json([transaction._asdict() for transaction in transactions])
    elif transactions:
        columns = ("transactional id", "producer id", "state", "coordinator")
        show_table(columns, [list(transaction) for transaction in transactions])
    else:
        typer.echo("there are no such transactional ids", err=True)


@app.command(help=_DESCRIBE_HELP)
def describe(
    ctx: typer.Context,
    transactional_id: IdArgument,
    bootstrap: BootstrapOption = None,
    as_json: JsonOption = False,
) -> None:
    async def work(client: "ClusterClient") -> "TransactionReport":
        from penstock.cli.transaction_search import TransactionReport

        description = await client.transactions.describe(transactional_id)
        return TransactionReport(description=description, now_ms=_now_ms())

    report = ask_cluster(get_bootstrap(ctx, bootstrap), work)
    if wants_json(ctx, as_json):
        show_json(report.as_json())
    else:
        _show_report(report)


def _show_report(report: "TransactionReport") -> None:
    from penstock.cli.tables import show_table

    description = report.description
    timeout = (
        "never (two-phase commit)" if report.is_two_phase else _show_span(description.timeout_ms)
    )
    print(f"transactional id {description.transactional_id}")
    print(f"state            {description.state}")
    print(f"coordinator      {description.coordinator.id} ({description.coordinator.address})")
    print(f"producer         {description.producer_id}, epoch {description.producer_epoch}")
    print(f"times out after  {timeout}")
    if report.age_ms is not None:
        print(f"open for         {_show_span(report.age_ms)}")
    if description.partitions:
        print()
        show_table(
            ("topic", "partition"), [list(partition) for partition in description.partitions]
        )


@app.command(help=_ABORT_HELP)
def abort(
    ctx: typer.Context,
    transactional_id: Annotated[
        str | None, typer.Argument(metavar="[ID]", help="The transactional id.")
    ] = None,
    topic: Annotated[
        str | None, typer.Option("--topic", help="The partition of the hanging transaction.")
    ] = None,
    partition: Annotated[int | None, typer.Option("--partition", min=0)] = None,
    start_offset: Annotated[
        int | None,
        typer.Option("--start-offset", min=0, help="Start offset of the hanging transaction."),
    ] = None,
    bootstrap: BootstrapOption = None,
    as_json: JsonOption = False,
) -> None:
    open_since = (topic, partition, start_offset)
    if (transactional_id is None) == (open_since == (None, None, None)):
        fail("name either a transactional id, or --topic, --partition and --start-offset", 2)
    if transactional_id is not None:
        _abort_id(ctx, transactional_id, get_bootstrap(ctx, bootstrap), as_json)
    elif topic is None or partition is None or start_offset is None:
        fail("a hanging transaction needs all of --topic, --partition and --start-offset", 2)
    else:
        _abort_in_partition(
            ctx, topic, partition, start_offset, get_bootstrap(ctx, bootstrap), as_json
        )


def _abort_id(ctx: typer.Context, transactional_id: str, bootstrap: str, as_json: bool) -> None:
    from penstock.cli.transaction_search import abort_by_id

    description = ask_cluster(bootstrap, lambda client: abort_by_id(client, transactional_id))
    if wants_json(ctx, as_json):
        show_json({"transactional_id": transactional_id, "partitions": len(description.partitions)})
    else:
        print(f"aborted {transactional_id} in {len(description.partitions)} partitions")


def _abort_in_partition(
    ctx: typer.Context,
    topic: str,
    partition: int,
    start_offset: int,
    bootstrap: str,
    as_json: bool,
) -> None:
    async def work(client: "ClusterClient") -> "OpenTransaction":
        from penstock.cli.transaction_search import abort_in_partition
        from penstock.model.ids import TopicPartition

        return await abort_in_partition(client, TopicPartition(topic, partition), start_offset)

    aborted = ask_cluster(bootstrap, work)
    if wants_json(ctx, as_json):
        show_json(_open_json(aborted))
    else:
        print(f"aborted producer {aborted.producer_id} in {aborted.tp}")


@app.command("find-hanging", help=_HANGING_HELP)
def find_hanging(
    ctx: typer.Context,
    topic: Annotated[
        list[str] | None, typer.Option("--topic", help="Only search this topic. Repeatable.")
    ] = None,
    older_than: Annotated[
        str,
        typer.Option(
            "--older-than", metavar="SPAN", help="Only transactions without a write for this long."
        ),
    ] = DEFAULT_HANGING_AGE,
    bootstrap: BootstrapOption = None,
    as_json: JsonOption = False,
) -> None:
    from penstock.cli.tables import show_table

    min_age_ms = _parse_span("--older-than", older_than)

    async def work(client: "ClusterClient") -> "list[OpenTransaction]":
        from penstock.cli import transaction_search

        return await transaction_search.find_hanging(
            client, topic, min_age_ms=min_age_ms, now_ms=_now_ms()
        )

    transactions = ask_cluster(get_bootstrap(ctx, bootstrap), work)
    if wants_json(ctx, as_json):
        show_json([_open_json(transaction) for transaction in transactions])
    elif transactions:
        columns = ("topic", "partition", "producer id", "epoch", "start offset", "last written")
        show_table(columns, [_open_row(transaction) for transaction in transactions])
    else:
        typer.echo("there are no hanging transactions", err=True)


@app.command(help=_HOLDING_HELP)
def holding(
    ctx: typer.Context,
    topic: Annotated[
        list[str] | None, typer.Option("--topic", help="Only this topic. Repeatable.")
    ] = None,
    bootstrap: BootstrapOption = None,
    as_json: JsonOption = False,
) -> None:
    from penstock.cli.tables import show_table

    async def work(client: "ClusterClient") -> "list[HoldingTransaction]":
        from penstock.cli.holding_transactions import find_holding

        return await find_holding(client, topic)

    transactions = ask_cluster(get_bootstrap(ctx, bootstrap), work)
    if wants_json(ctx, as_json):
        show_json([transaction.as_json(_now_ms()) for transaction in transactions])
    elif transactions:
        columns = ("topic", "partition", "start offset", "held by", "open for", "transactional id")
        show_table(columns, [_holding_row(transaction) for transaction in transactions])
    else:
        typer.echo("no transaction is open: consumers can read everything", err=True)


def _holding_row(transaction: "HoldingTransaction") -> list[object]:
    age_ms = transaction.age_ms(_now_ms())
    return [
        transaction.tp.topic,
        transaction.tp.partition,
        transaction.start_offset,
        transaction.holder,
        "" if age_ms is None else _show_span(age_ms),
        transaction.transactional_id or "",
    ]


@app.command("end-query", help=_END_QUERY_HELP)
def end_query(
    ctx: typer.Context,
    query: Annotated[str, typer.Argument(metavar="QUERY", help="The query's id in Spark.")],
    bootstrap: BootstrapOption = None,
    as_json: JsonOption = False,
) -> None:
    from penstock.spark.errors import SparkSourceError

    async def work(client: "ClusterClient") -> "RecoveredTransactions":
        from penstock.cli.holding_transactions import end_spark_query

        return await end_spark_query(client, query)

    try:
        ended = ask_cluster(get_bootstrap(ctx, bootstrap), work)
    except SparkSourceError as error:
        fail(str(error), 1)
    if wants_json(ctx, as_json):
        show_json({"query": query, **ended._asdict()})
    else:
        print(f"committed {ended.committed} and aborted {ended.aborted} transactions of {query}")


def _open_row(transaction: "OpenTransaction") -> list[object]:
    age_ms = max(0, _now_ms() - transaction.last_timestamp_ms)
    return [
        transaction.tp.topic,
        transaction.tp.partition,
        transaction.producer_id,
        transaction.producer_epoch,
        transaction.start_offset,
        f"{_show_span(age_ms)} ago",
    ]


def _open_json(transaction: "OpenTransaction") -> dict[str, object]:
    return {
        "topic": transaction.tp.topic,
        "partition": transaction.tp.partition,
        "producer_id": transaction.producer_id,
        "producer_epoch": transaction.producer_epoch,
        "start_offset": transaction.start_offset,
        "last_timestamp_ms": transaction.last_timestamp_ms,
    }


def _parse_span(option: str, text: str) -> int:
    from penstock.client.offset_reset import InvalidReset, parse_duration_ms

    try:
        return parse_duration_ms(text)
    except InvalidReset as error:
        fail(f"{option} {error}", 2)


def _parse_pattern(text: str | None) -> re.Pattern[str]:
    try:
        return re.compile(".*" if text is None else text, re.DOTALL if text is None else 0)
    except re.error as error:
        fail(f"--pattern {text!r}: {error}", 2)


def _show_span(duration_ms: int) -> str:
    seconds = duration_ms // 1000
    days, hours, minutes = seconds // 86_400, seconds // 3600 % 24, seconds // 60 % 60
    parts = [(days, "d"), (hours, "h"), (minutes, "min")]
    shown = [f"{value} {unit}" for value, unit in parts if value]
    return " ".join([*shown, f"{seconds % 60} s"])


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
