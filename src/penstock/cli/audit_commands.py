"""`penstock audit tail`: prints events of the audit trail as they are written."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.client_config_option import client_settings
from penstock.cli.connect import (
    BootstrapOption,
    JsonOption,
    command_group,
    fail,
    get_bootstrap,
    wants_json,
)

if TYPE_CHECKING:
    from penstock.client.message import Message

app = command_group(
    "The audit trail: who authenticated, was denied something, or changed something."
)

_TAIL_HELP = """Print events of the audit trail, one a line, until it is interrupted.

New ones alone, or with --from-beginning all that are kept. With --json each is an object as it is
stored, in the shape of OCSF. The broker needs penstock.audit.enable, and the command Read on the
topic __penstock_audit; see docs/audit.md.

\b
Examples:
  penstock audit tail
  penstock audit tail --from-beginning --timeout-s 5 --json | jq 'select(.status_id != 1)'
"""


@app.command(help=_TAIL_HELP)
def tail(
    ctx: typer.Context,
    from_beginning: Annotated[
        bool, typer.Option("--from-beginning", help="All events that are kept, then new ones.")
    ] = False,
    max_events: Annotated[
        int | None, typer.Option("--max-events", min=1, help="Exit after this many events.")
    ] = None,
    timeout_s: Annotated[
        float | None,
        typer.Option("--timeout-s", min=0, help="Exit when no event has come for this long."),
    ] = None,
    bootstrap: BootstrapOption = None,
    as_json: JsonOption = False,
) -> None:
    from penstock.cli.consume_command import check_topic, read_batches, terminated_like_interrupted
    from penstock.client.consumer import Consumer
    from penstock.client.errors import ClientError
    from penstock.model.cluster import AUDIT_TOPIC

    address = get_bootstrap(ctx, bootstrap)
    shows_json = wants_json(ctx, as_json)
    try:
        with terminated_like_interrupted():
            check_topic(address, AUDIT_TOPIC)
            consumer = Consumer(
                AUDIT_TOPIC,
                bootstrap_servers=address,
                from_beginning=from_beginning,
                client_id="penstock-cli",
                config=client_settings(),
            )
            with consumer:
                for messages in read_batches(consumer, max_events, timeout_s):
                    for message in messages:
                        print(_show(message, shows_json), flush=True)
    except ClientError as error:
        fail(str(error), 1)


def _show(message: "Message", as_json: bool) -> str:
    text = (message.value or b"").decode(errors="backslashreplace")
    return text if as_json else describe_event(json.loads(text))


def describe_event(event: Mapping[str, Any]) -> str:
    """One line: time, result, who, from where, what."""
    time = datetime.fromtimestamp(event["time"] / 1000, UTC)
    user = event.get("user") or event.get("actor", {}).get("user") or {}
    who = f"{user['type']}:{user['name']}" if user else "somebody"
    resources = ", ".join(_describe_resource(resource) for resource in event.get("resources", ()))
    what = event.get("api", {}).get("operation") or event["activity_name"]
    parts = [
        time.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "denied" if event.get("authorizations") else str(event["status"]).lower(),
        who,
        f"from {event['src_endpoint']['ip']}",
        what if event.get("api") else f"{what} with {event['auth_protocol']}",
        resources,
    ]
    line = " ".join(part for part in parts if part)
    detail = event.get("status_detail")
    return _printable(f"{line}: {detail}" if detail else line)


def _describe_resource(resource: Mapping[str, Any]) -> str:
    labels = resource.get("labels")
    text = f"{resource['type']} {resource['name']}"
    return f"{text} ({', '.join(labels)})" if labels else text


def _printable(line: str) -> str:
    """A name that a client has chosen must not forge a line or move the cursor."""
    return "".join(char if char.isprintable() else f"\\x{ord(char):02x}" for char in line)
