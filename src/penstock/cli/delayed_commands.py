"""`penstock delayed`: list the messages that wait, cancel one, or deliver one now."""

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
    from penstock.cli.delayed_search import DelayedMessage

app = command_group("List delayed messages, cancel one, or deliver one now.")

_LIST_HELP = """List the messages that wait, the next one first.

It reads the topic that keeps them, which takes a while where millions wait.

\b
Examples:
  penstock delayed list
  penstock delayed list --topic reminders --limit 20
  penstock delayed list --json | jq '.[].delay_id'
"""

_CANCEL_HELP = """Cancel the message of a delay id: it is never delivered.

The answer is one word: cancelled, delivered (it was, or is on its way) or unknown.
Exit code 1 if it is not cancelled.

\b
Examples:
  penstock delayed cancel reminders invoice-17
"""

_DELIVER_HELP = """Deliver the message of a delay id now, whenever it was due.

The answer is one word: delivered (it was, or is on its way), cancelled or unknown.
Exit code 1 if it is not delivered.

\b
Examples:
  penstock delayed deliver-now reminders invoice-17
"""

TopicArgument = Annotated[str, typer.Argument(metavar="TOPIC", help="The message's topic.")]
IdArgument = Annotated[str, typer.Argument(metavar="ID", help="The delay id.")]


@app.command("list", help=_LIST_HELP)
def list_delayed(
    ctx: typer.Context,
    topic: Annotated[
        str | None, typer.Option("--topic", help="Only messages for this topic.")
    ] = None,
    limit: Annotated[
        int | None, typer.Option("--limit", min=1, help="Only so many, those that are due first.")
    ] = None,
    bootstrap: BootstrapOption = None,
    as_json: JsonOption = False,
) -> None:
    from penstock.cli.delayed_search import find_delayed
    from penstock.cli.tables import show_table

    messages = ask_cluster(
        get_bootstrap(ctx, bootstrap), lambda client: find_delayed(client, topic)
    )[:limit]
    if wants_json(ctx, as_json):
        show_json([_document(message) for message in messages])
        return
    now_ms = time.time_ns() // 1_000_000
    rows: list[list[object]] = [
        [
            message.topic or "(deleted)",
            message.partition,
            _describe_due(message.due_ms, now_ms),
            message.delay_id or "-",
            "-" if message.key is None else message.key.decode(errors="backslashreplace"),
            message.size_bytes,
        ]
        for message in messages
    ]
    show_table(["TOPIC", "PARTITION", "DUE IN", "DELAY ID", "KEY", "BYTES"], rows)


@app.command(help=_CANCEL_HELP)
def cancel(
    ctx: typer.Context,
    topic: TopicArgument,
    delay_id: IdArgument,
    bootstrap: BootstrapOption = None,
    as_json: JsonOption = False,
) -> None:
    answer = ask_cluster(
        get_bootstrap(ctx, bootstrap), lambda client: client.delayed.cancel(topic, delay_id)
    )
    _show_answer(topic, delay_id, answer, "cancelled", is_json=wants_json(ctx, as_json))


@app.command("deliver-now", help=_DELIVER_HELP)
def deliver_now(
    ctx: typer.Context,
    topic: TopicArgument,
    delay_id: IdArgument,
    bootstrap: BootstrapOption = None,
    as_json: JsonOption = False,
) -> None:
    answer = ask_cluster(
        get_bootstrap(ctx, bootstrap), lambda client: client.delayed.deliver_now(topic, delay_id)
    )
    _show_answer(topic, delay_id, answer, "delivered", is_json=wants_json(ctx, as_json))


def _show_answer(topic: str, delay_id: str, answer: str, wanted: str, *, is_json: bool) -> None:
    if is_json:
        show_json({"topic": topic, "delay_id": delay_id, "answer": answer})
    else:
        typer.echo(answer)
    if answer != wanted:
        fail(f"message {delay_id!r} of topic {topic!r} is {answer}, not {wanted}", 1)


def _describe_due(due_ms: int, now_ms: int) -> str:
    left_s = (due_ms - now_ms) / 1000
    if left_s <= 0:
        return "due"
    if left_s < 120:
        return f"{left_s:.1f} s"
    if left_s < 7200:
        return f"{left_s / 60:.0f} min"
    return f"{left_s / 3600:.1f} h" if left_s < 172_800 else f"{left_s / 86_400:.1f} days"


def _document(message: "DelayedMessage") -> dict[str, object]:
    return {
        "topic": message.topic,
        "partition": message.partition,
        "delay_id": message.delay_id,
        "due_ms": message.due_ms,
        "key": None if message.key is None else message.key.decode(errors="backslashreplace"),
        "bytes": message.size_bytes,
    }
