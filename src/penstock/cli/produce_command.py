"""`penstock produce`: sends lines of stdin or of a file as records."""

import contextlib
import os
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, BinaryIO, NamedTuple

import typer

from penstock.cli.client_config_option import client_settings
from penstock.cli.connect import (
    BootstrapOption,
    JsonOption,
    ask_cluster,
    fail,
    get_bootstrap,
    show_json,
    wants_json,
)
from penstock.cli.progress import byte_progress

if TYPE_CHECKING:
    from penstock.client.cluster import ClusterClient
    from penstock.client.errors import RefusedByBroker
    from penstock.client.message import RecordMetadata

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

_HELP = """Send every line of stdin, or of a file, as a record to a topic.

The line ending is not part of the record. With --key-separator, the text before its first
occurrence is the key. Exits when the input has ended and every record is acknowledged; Ctrl-C stops
reading earlier.

\b
Examples:
  echo hello | penstock produce greetings
  penstock produce orders --file orders.jsonl --compression zstd
  penstock produce orders --key-separator : <<< 'customer-7:{"amount": 12}'
  penstock produce ticks --file ticks.csv --rate 1000 --acks 1
"""


class Acks(StrEnum):
    NONE = "0"
    LEADER = "1"
    ALL = "all"


class CompressionOption(StrEnum):
    NONE = "none"
    GZIP = "gzip"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"


class Line(NamedTuple):
    key: bytes | None
    value: bytes
    size_bytes: int  # as it was read


class NoKey(Exception):
    """A line without the key separator."""


@app.command(help=_HELP)
def produce(
    ctx: typer.Context,
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic to write to.")],
    file: Annotated[
        str | None,
        typer.Option("--file", metavar="FILE", help="Read lines from this file instead of stdin."),
    ] = None,
    key_separator: Annotated[
        str | None,
        typer.Option(
            "--key-separator", metavar="TEXT", help="Separates key and value in each line."
        ),
    ] = None,
    partition: Annotated[
        int | None,
        typer.Option("--partition", min=0, help="Send to this partition.  [default: by key]"),
    ] = None,
    acks: Annotated[
        Acks,
        typer.Option(
            "--acks", help="Acknowledgements required: none, leader, or all in-sync replicas."
        ),
    ] = Acks.ALL,
    compression: Annotated[
        CompressionOption, typer.Option("--compression", help="Compression codec.")
    ] = CompressionOption.NONE,
    rate: Annotated[
        float | None,
        typer.Option("--rate", metavar="N", help="Limit to this many records per second."),
    ] = None,
    bootstrap: BootstrapOption = None,
    as_json: JsonOption = False,
) -> None:
    if rate is not None and rate <= 0:
        fail("--rate must be above 0", 2)
    if key_separator == "":
        fail("--key-separator must not be empty", 2)
    address = get_bootstrap(ctx, bootstrap)
    with _open(file) as source:
        missing = _find_missing(address, topic)
        lines = _read_lines(source, None if key_separator is None else key_separator.encode())
        if missing is not None:
            lines = _create_before(lines, address, topic)
        sender = _Sender(address, topic, partition, acks, compression)
        sent = _send_all(source, sender, _paced(lines, rate))
    if missing is not None and not sent.records:
        fail(f"{missing}; nothing was read, so nothing was sent", 1)
    _report(topic, sent, as_json=wants_json(ctx, as_json))


def _open(file: str | None) -> contextlib.AbstractContextManager[BinaryIO]:
    if file is None:
        if sys.stdin is None:  # closed from the start
            fail("stdin is closed: pipe lines to it, or name a file with --file", 2)
        return contextlib.nullcontext(sys.stdin.buffer)
    try:
        return open(file, "rb")
    except OSError as error:
        fail(f"cannot read {file}: {error.strerror}", 2)


def _find_missing(bootstrap: str, topic: str) -> "RefusedByBroker | None":
    """The error of a topic that does not exist, which creates nothing. Other errors end the command
    at once with a clear message, not after librdkafka's timeout."""
    from penstock.client.errors import RefusedByBroker
    from penstock.model.errors import ErrorCode

    async def work(client: "ClusterClient") -> RefusedByBroker | None:
        topic_metadata = (await client.metadata([topic])).topics[topic]
        try:
            topic_metadata.check()
        except RefusedByBroker as error:
            if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                return error
            if error.code is not ErrorCode.LEADER_NOT_AVAILABLE:  # being created
                raise
        return None

    return ask_cluster(bootstrap, work)


def _create_before(lines: Iterator[Line], bootstrap: str, topic: str) -> Iterator[Line]:
    """Create the topic when the first line is read, if the cluster auto-creates topics."""
    from penstock.model.errors import ErrorCode

    async def work(client: "ClusterClient") -> None:
        topic_metadata = (await client.metadata([topic], allow_auto_creation=True)).topics[topic]
        if topic_metadata.error is not ErrorCode.LEADER_NOT_AVAILABLE:  # being created
            topic_metadata.check()

    for number, line in enumerate(lines):
        if number == 0:
            ask_cluster(bootstrap, work)
        yield line


class _Sender:
    """Counts delivered and failed records; delivery callbacks run on another thread."""

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        partition: int | None,
        acks: Acks,
        codec: CompressionOption,
    ) -> None:
        from penstock.client.producer import Producer

        self.producer: Producer = Producer(
            bootstrap,
            acks=acks.value,
            compression=codec.value,
            client_id="penstock-cli",
            config=client_settings(),
        )
        self._topic = topic
        self._partition = partition
        self._lock = threading.Lock()
        self.records = 0
        self.size_bytes = 0
        self.failed = 0
        self.first_failure: BaseException | None = None

    def send(self, line: Line) -> None:
        future = self.producer.send(
            self._topic, line.value, key=line.key, partition=self._partition
        )
        self.records += 1
        self.size_bytes += len(line.value)
        future.add_done_callback(self._note)

    def _note(self, future: "Future[RecordMetadata]") -> None:
        error = future.exception()
        if error is not None:
            with self._lock:
                self.failed += 1
                self.first_failure = self.first_failure or error


def _send_all(source: BinaryIO, sender: _Sender, lines: Iterator[Line]) -> _Sender:
    from penstock.client.errors import ClientError

    is_file = sys.stdin is None or source is not sys.stdin.buffer
    total_bytes = os.fstat(source.fileno()).st_size if is_file else 0
    try:
        with (
            sender.producer,
            byte_progress("sending", total_bytes, wanted=is_file) as progress,
            contextlib.suppress(KeyboardInterrupt),  # records read so far are still delivered
        ):
            for line in lines:
                sender.send(line)
                progress(line.size_bytes)
    except NoKey as error:
        fail(str(error), 2)
    except ClientError as error:
        fail(str(error), 1)
    return sender


def _read_lines(source: BinaryIO, separator: bytes | None) -> Iterator[Line]:
    for number, raw in enumerate(source, 1):
        text = raw.removesuffix(b"\n").removesuffix(b"\r")
        if separator is None:
            yield Line(None, text, len(raw))
            continue
        key, matched, value = text.partition(separator)
        if not matched:
            raise NoKey(
                f"line {number} has no {separator.decode()!r}, the key separator; "
                f"{number - 1} records before it were sent"
            )
        yield Line(key, value, len(raw))


def _paced(lines: Iterator[Line], rate: float | None) -> Iterator[Line]:
    if rate is None:
        yield from lines
        return
    start = time.monotonic()
    for count, line in enumerate(lines):
        wait_s = start + count / rate - time.monotonic()
        if wait_s > 0:
            time.sleep(wait_s)
        yield line


def _report(topic: str, sent: _Sender, *, as_json: bool) -> None:
    stored = sent.records - sent.failed
    if as_json:
        show_json({"topic": topic, "sent": stored, "failed": sent.failed, "bytes": sent.size_bytes})
    else:
        print(f"{stored:,} record{'' if stored == 1 else 's'} sent to {topic}")
    if sent.failed:
        fail(f"{sent.failed:,} records were not sent; the first: {sent.first_failure}", 1)
