"""`penstock consume`: prints the records of a topic, one value or JSON object per line."""

import base64
import json
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from uuid import uuid4

import typer

from penstock.cli.client_config_option import client_settings
from penstock.cli.connect import (
    BootstrapOption,
    JsonOption,
    ask_cluster,
    fail,
    get_bootstrap,
    wants_json,
)
from penstock.cli.output import OutputFailed

if TYPE_CHECKING:
    from penstock.client.cluster import ClusterClient
    from penstock.client.consumer import Consumer
    from penstock.client.message import Message
    from penstock.zookeeper_consumer.consumer import ZooKeeperConsumer

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

_BATCH = 500
_LONG_S = 3600.0

_HELP = """Print the records of a topic until Ctrl-C, --max-messages or --timeout-s.

Without --group, reads every partition and commits nothing. With --group, the members share the
partitions, and the offsets of printed records are committed. Starts at the end of the log; with
--from-beginning, at its start. A group with committed offsets continues from those.

With --zookeeper, joins a group in ZooKeeper, as consumers did before Kafka 0.9: its members,
partitions and offsets are znodes below /consumers, and the brokers are those registered there.
TOPIC may then be left out for --white-list or --black-list. Without --group, a group is made up,
and deleted at the end.

Prints values as they are, and null values as `null`. With --json, prints each record as an object
with topic, partition, offset, timestamp_ms, key, value and headers; a key or value that is not
UTF-8 becomes key_base64 or value_base64.

\b
Examples:
  penstock consume orders --from-beginning --timeout-s 5
  penstock consume orders --group billing --max-messages 100
  penstock consume --zookeeper 127.0.0.1:2181 --group old --white-list 'orders.*'
  penstock consume orders --from-beginning --json | jq -r '[.partition, .offset, .key] | @tsv'
"""


class AssignmentOption(StrEnum):
    RANGE = "range"
    CEIL_RANGE = "ceil-range"


class StorageOption(StrEnum):
    ZOOKEEPER = "zookeeper"
    KAFKA = "kafka"


class IsolationOption(StrEnum):
    READ_UNCOMMITTED = "read_uncommitted"
    READ_COMMITTED = "read_committed"


@app.command(help=_HELP)
def consume(
    ctx: typer.Context,
    topic: Annotated[
        str | None, typer.Argument(metavar="TOPIC", help="The topic to read.", show_default=False)
    ] = None,
    from_beginning: Annotated[
        bool, typer.Option("--from-beginning", help="Start at the earliest offset.")
    ] = False,
    group: Annotated[
        str | None, typer.Option("--group", metavar="GROUP", help="Join this consumer group.")
    ] = None,
    max_messages: Annotated[
        int | None, typer.Option("--max-messages", min=1, help="Exit after this many messages.")
    ] = None,
    timeout_s: Annotated[
        float | None,
        typer.Option("--timeout-s", min=0, help="Exit when no message has arrived for this long."),
    ] = None,
    isolation: Annotated[
        IsolationOption,
        typer.Option("--isolation", help="read_committed skips records of aborted transactions."),
    ] = IsolationOption.READ_UNCOMMITTED,
    zookeeper: Annotated[
        str | None,
        typer.Option(
            "--zookeeper", metavar="CONNECT", help="Join a group in this ZooKeeper: HOST:PORT/PATH."
        ),
    ] = None,
    white_list: Annotated[
        str | None,
        typer.Option(
            "--white-list",
            metavar="REGEX",
            help="With --zookeeper: also topics that it matches; a comma means or.",
        ),
    ] = None,
    black_list: Annotated[
        str | None,
        typer.Option(
            "--black-list",
            metavar="REGEX",
            help="With --zookeeper: every topic that it does not match.",
        ),
    ] = None,
    assignment: Annotated[
        AssignmentOption | None,
        typer.Option(
            "--assignment",
            help="With --zookeeper: how a topic is shared, the same for all members; ceil-range "
            "rounds shares up.  [default: range]",
            show_default=False,
        ),
    ] = None,
    offsets_storage: Annotated[
        StorageOption | None,
        typer.Option(
            "--offsets-storage",
            help="With --zookeeper: where offsets are kept.  [default: zookeeper]",
            show_default=False,
        ),
    ] = None,
    dual_commit: Annotated[
        bool | None,
        typer.Option(
            "--dual-commit/--no-dual-commit",
            help="With --offsets-storage kafka: also to ZooKeeper.  [default: dual-commit]",
            show_default=False,
        ),
    ] = None,
    zookeeper_config: Annotated[
        Path | None,
        typer.Option(
            "--zookeeper-config",
            metavar="FILE",
            help="With --zookeeper: properties with zookeeper.ssl.* and "
            "penstock.zookeeper.sasl.jaas.config.",
        ),
    ] = None,
    bootstrap: BootstrapOption = None,
    as_json: JsonOption = False,
) -> None:
    from penstock.client.errors import ClientError

    of_zookeeper = {
        "white_list": white_list,
        "black_list": black_list,
        "assignment": assignment,
        "offsets_storage": offsets_storage,
        "dual_commit": dual_commit,
        "zookeeper_config": zookeeper_config and _read_zookeeper_config(zookeeper_config),
    }
    common = {
        "group": group,
        "from_beginning": from_beginning,
        "isolation": isolation.value,
        "client_id": "penstock-cli",
        "config": client_settings(),
    }
    show = _show_json if wants_json(ctx, as_json) else _show_value
    try:
        with terminated_like_interrupted():
            opened: Consumer | ZooKeeperConsumer
            if zookeeper is None:
                opened = _open(topic, get_bootstrap(ctx, bootstrap), common, of_zookeeper)
            else:
                common["bootstrap_servers"] = bootstrap  # else as the brokers are registered
                opened = _open_in_zookeeper(topic, zookeeper, common, of_zookeeper)
            with opened as consumer:
                _print_all(consumer, show, max_messages, timeout_s)
    except ClientError as error:
        fail(str(error), 1)


def _open(
    topic: str | None, address: str, common: dict[str, Any], of_zookeeper: dict[str, Any]
) -> "Consumer":
    for name, value in of_zookeeper.items():
        if value is not None:
            option = "--" + name.replace("_", "-")
            fail(f"{option} is for a group in ZooKeeper: name it with --zookeeper CONNECT", 2)
    if topic is None:
        fail("name the topic to read: penstock consume TOPIC", 2)
    check_topic(address, topic)
    from penstock.client.consumer import Consumer

    return Consumer(topic, bootstrap_servers=address, **common)


def _open_in_zookeeper(
    topic: str | None, connect: str, common: dict[str, Any], of_zookeeper: dict[str, Any]
) -> "ZooKeeperConsumer":
    from penstock.zookeeper_consumer.consumer import ZooKeeperConsumer

    settings = {name: value for name, value in of_zookeeper.items() if value is not None}
    is_temporary = common["group"] is None
    if is_temporary:
        common = {**common, "group": f"console-consumer-{uuid4().hex[:8]}"}
    try:
        return ZooKeeperConsumer(
            topic, zookeeper=connect, delete_group=is_temporary, **common, **settings
        )
    except ValueError as error:
        fail(str(error), 2)


def _read_zookeeper_config(path: Path) -> dict[str, str]:
    from penstock.config.properties import read_properties
    from penstock.config.raw_config import ConfigError

    try:
        return {name: raw.text for name, raw in read_properties(path).values.items()}
    except ConfigError as error:
        fail(f"--zookeeper-config: {error}", 2)


@contextmanager
def terminated_like_interrupted() -> Iterator[None]:
    """SIGTERM ends the command like Ctrl-C: the consumer leaves its group on the way out."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    except KeyboardInterrupt:
        pass
    finally:
        signal.signal(signal.SIGTERM, before)


def check_topic(bootstrap: str, topic: str) -> None:
    """Fail at once with a clear message, not after librdkafka's timeout."""

    async def work(client: "ClusterClient") -> None:
        (await client.metadata([topic])).topics[topic].check()

    ask_cluster(bootstrap, work)


def _print_all(
    consumer: "Consumer | ZooKeeperConsumer",
    show: Callable[["Message"], bytes],
    max_messages: int | None,
    timeout_s: float | None,
) -> None:
    """Print and flush everything received so far together, so that a reader never waits for it."""
    for messages in read_batches(consumer, max_messages, timeout_s):
        _write(b"".join(show(message) + b"\n" for message in messages))


def read_batches(
    consumer: "Consumer | ZooKeeperConsumer", max_messages: int | None, timeout_s: float | None
) -> Iterator[list["Message"]]:
    """Ends after `max_messages`, or `timeout_s` without one if a broker answers then."""
    left = max_messages
    consumer.wait_for_assignment()
    while left is None or left > 0:
        count = _BATCH if left is None else min(left, _BATCH)
        messages = consumer.poll_batch(count, _LONG_S if timeout_s is None else timeout_s)
        if not messages and timeout_s is not None:
            consumer.check_reachable()
            return
        yield messages
        left = None if left is None else left - len(messages)


def _write(text: bytes) -> None:
    """Write raw bytes, except on a terminal, which gets what it can display."""
    if sys.stdout.isatty():
        sys.stdout.write(text.decode(errors="backslashreplace"))
        sys.stdout.flush()
        return
    try:
        sys.stdout.buffer.write(text)
        sys.stdout.buffer.flush()
    except OSError as error:
        raise OutputFailed(error) from error


def _show_value(message: "Message") -> bytes:
    return b"null" if message.value is None else message.value


def _show_json(message: "Message") -> bytes:
    fields: dict[str, Any] = {
        "topic": message.topic,
        "partition": message.partition,
        "offset": message.offset,
        "timestamp_ms": message.timestamp_ms,
        **_text_or_base64("key", message.key),
        **_text_or_base64("value", message.value),
        "headers": [
            {"key": name, **_text_or_base64("value", value)} for name, value in message.headers
        ],
    }
    return json.dumps(fields, ensure_ascii=False).encode(errors="backslashreplace")


def _text_or_base64(name: str, data: bytes | None) -> dict[str, str | None]:
    if data is None:
        return {name: None}
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data).decode()}
