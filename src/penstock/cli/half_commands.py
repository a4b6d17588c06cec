"""`penstock half`: list half messages, decide about one, have its producers asked, or revive it."""

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
    from penstock.cli.half_search import FoundHalf
    from penstock.client.cluster import ClusterClient

app = command_group("List half messages, decide about one, or revive one.")

_LIST_HELP = """List the half ids that wait for a decision, the oldest first.

It reads the topic that keeps them, which takes a while where millions wait.

\b
Examples:
  penstock half list
  penstock half list --status expired --topic orders
  penstock half list --status all --json | jq '.[].half_id'
"""

_COMMIT_HELP = """Commit a half id: consumers see its messages.

The first decision counts. Exit code 1 if the id is not known, or another decision came first.

\b
Examples:
  penstock half commit orders 6f2c
"""

_ROLLBACK_HELP = """Roll a half id back: nobody ever sees its messages.

The first decision counts. Exit code 1 if the id is not known, or another decision came first.

\b
Examples:
  penstock half rollback orders 6f2c
"""

_CHECK_HELP = """Have the producers of a half asked now.

\b
Examples:
  penstock half check orders 6f2c
"""

_REVIVE_HELP = """Let an expired half wait for a decision again; its producers are asked at once.

\b
Examples:
  penstock half revive orders 6f2c
"""

_WAIT_S = 30.0
_PAUSE_S = 0.2

TopicArgument = Annotated[str, typer.Argument(metavar="TOPIC", help="The half's topic.")]
IdArgument = Annotated[str, typer.Argument(metavar="ID", help="The half id.")]


@app.command("list", help=_LIST_HELP)
def list_halves(
    ctx: typer.Context,
    topic: Annotated[str | None, typer.Option("--topic", help="Only halves of this topic.")] = None,
    status: Annotated[
        str,
        typer.Option("--status", help="pending, expired, committed, 'rolled back', or all."),
    ] = "pending",
    bootstrap: BootstrapOption = None,
    as_json: JsonOption = False,
) -> None:
    from penstock.cli.tables import show_table
    from penstock.coordinators.deferred.half_values import HalfStatus

    if status not in ("all", *(one.value for one in HalfStatus)):
        fail(f"--status {status!r} does not exist", 2)
    halves = [
        half
        for half in _find_all(get_bootstrap(ctx, bootstrap))
        if status in ("all", half.status.value) and (topic is None or topic in half.topics)
    ]
    if wants_json(ctx, as_json):
        show_json([_document(half) for half in halves])
        return
    now_ms = time.time_ns() // 1_000_000
    rows: list[list[object]] = [
        [
            ",".join(half.topics) or "-",
            half.group,
            half.half_id,
            half.status.value,
            f"{max(0, now_ms - half.since_ms) / 1000:.0f} s",
            half.checks,
            half.messages,
        ]
        for half in halves
    ]
    show_table(["TOPICS", "GROUP", "HALF ID", "STATUS", "FOR", "CHECKS", "MESSAGES"], rows)


@app.command(help=_COMMIT_HELP)
def commit(
    ctx: typer.Context,
    topic: TopicArgument,
    half_id: IdArgument,
    bootstrap: BootstrapOption = None,
    as_json: JsonOption = False,
) -> None:
    _decide(ctx, bootstrap, as_json, topic, half_id, "commit", "committed")


@app.command(help=_ROLLBACK_HELP)
def rollback(
    ctx: typer.Context,
    topic: TopicArgument,
    half_id: IdArgument,
    bootstrap: BootstrapOption = None,
    as_json: JsonOption = False,
) -> None:
    _decide(ctx, bootstrap, as_json, topic, half_id, "rollback", "rolled back")


@app.command(help=_CHECK_HELP)
def check(
    ctx: typer.Context,
    topic: TopicArgument,
    half_id: IdArgument,
    bootstrap: BootstrapOption = None,
    as_json: JsonOption = False,
) -> None:
    address = get_bootstrap(ctx, bootstrap)
    half = _get(address, topic, half_id)
    if half.status.value != "pending":
        fail(f"half {half_id!r} of topic {topic!r} is {half.status.value}, not pending", 1)
    _produce(address, topic, half_id, "check")
    if wants_json(ctx, as_json):
        show_json({**_document(half), "asked": True})
    else:
        typer.echo("asked")


@app.command(help=_REVIVE_HELP)
def revive(
    ctx: typer.Context,
    topic: TopicArgument,
    half_id: IdArgument,
    bootstrap: BootstrapOption = None,
    as_json: JsonOption = False,
) -> None:
    _decide(ctx, bootstrap, as_json, topic, half_id, "revive", "pending")


def _decide(
    ctx: typer.Context,
    bootstrap: str | None,
    as_json: bool,
    topic: str,
    half_id: str,
    word: str,
    wanted: str,
) -> None:
    """Produce the word, as any client could, and wait for what the first decision was."""
    address = get_bootstrap(ctx, bootstrap)
    before = _get(address, topic, half_id)
    _produce(address, topic, half_id, word)
    changes = before.status.value == ("expired" if word == "revive" else "pending")
    half = _wait_for_change(address, topic, half_id, before) if changes else before
    if wants_json(ctx, as_json):
        show_json(_document(half))
    else:
        typer.echo(half.status.value)
    if half.status.value != wanted:
        fail(f"half {half_id!r} of topic {topic!r} is {half.status.value}, not {wanted}", 1)


def _wait_for_change(address: str, topic: str, half_id: str, before: "FoundHalf") -> "FoundHalf":
    deadline = time.monotonic() + _WAIT_S
    while True:
        half = _get(address, topic, half_id)
        if half.status is not before.status or time.monotonic() > deadline:
            return half
        time.sleep(_PAUSE_S)


def _get(address: str, topic: str, half_id: str) -> "FoundHalf":
    """Of a decided one, the topics may not be known any more."""
    for half in _find_all(address):
        if half.half_id == half_id and (topic in half.topics or not half.topics):
            return half
    return fail(f"no half {half_id!r} of topic {topic!r} is known", 1)


def _find_all(address: str) -> "list[FoundHalf]":
    async def work(client: "ClusterClient") -> "list[FoundHalf]":
        from penstock.cli.half_search import find_halves

        return await find_halves(client)

    return ask_cluster(address, work)


def _produce(address: str, topic: str, half_id: str, word: str) -> None:
    from penstock.client.errors import ClientError
    from penstock.client.producer import Producer
    from penstock.protocol.half_headers import DECISIONS_SUFFIX

    try:
        with Producer(address) as producer:
            producer.send_and_wait(topic + DECISIONS_SUFFIX, word, key=half_id, timeout_s=_WAIT_S)
    except ClientError as error:
        fail(f"the decision is not stored: {error}", 1)


def _document(half: "FoundHalf") -> dict[str, object]:
    return {
        "group": half.group,
        "half_id": half.half_id,
        "status": half.status.value,
        "since_ms": half.since_ms,
        "checks": half.checks,
        "topics": list(half.topics),
        "messages": half.messages,
    }
