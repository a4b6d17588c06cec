"""Processor time of a request to a topic that uses no delays, beside brokers without them.

Three brokers run at once, and rounds alternate: this version without any such topic, this version
with a topic of delayed messages and a half topic beside, and the version of a commit.
"""

import os
import statistics
import subprocess
import sys
import tarfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from io import BytesIO
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from bench.broker.nodes import Node
from bench.broker.processes import cpu_ns
from bench.broker.wire import Wire
from penstock.client.call import compose
from penstock.protocol.api_keys import ApiKey
from penstock.protocol.frames import encode_request_frame
from penstock.protocol.messages import get_request_schema
from penstock.protocol.records import Record, build_batch

BEFORE = "0e36d4fd"  # the last commit without topics that wait
ROUNDS = 20
REQUESTS = 1_000
TOPIC = "plain"
VERSION = 9
ROOT = Path(__file__).parents[2]


class SourceTree:
    """A broker from the sources in a folder, with this environment's packages."""

    def __init__(self, sources: Path) -> None:
        self._sources = sources

    def prepare(self, directory: Path, port: int) -> list[str]:
        data, address = str(directory / "data"), f"127.0.0.1:{port}"
        program = str(Path(sys.executable).with_name("penstock"))
        return [
            "env",
            f"PYTHONPATH={self._sources}",
            program,
            "up",
            "--data",
            data,
            "--listen",
            address,
        ]


def measure_unchanged(folder: Path) -> dict[str, Any]:
    trees = {"now": ROOT / "src", "now_beside_others": ROOT / "src"}
    before = find_sources(folder / "sources")
    if before is not None:
        trees["before"] = before
    with ExitStack() as stack:
        nodes = {
            name: stack.enter_context(Node(SourceTree(tree), folder / name))
            for name, tree in trees.items()
        }
        wires = {name: stack.enter_context(connect(node)) for name, node in nodes.items()}
        for name, node in nodes.items():
            make_topics(node, wires[name], beside_others=name == "now_beside_others")
        return _compare(nodes, wires)


def find_sources(folder: Path) -> Path | None:
    """None: not a clone, or one without this commit."""
    archive = subprocess.run(
        ["git", "archive", BEFORE, "src"], cwd=ROOT, capture_output=True, check=False
    )
    if archive.returncode:
        return None
    with tarfile.open(fileobj=BytesIO(archive.stdout)) as files:
        files.extractall(folder, filter="data")
    return folder / "src"


@contextmanager
def connect(node: Node) -> Iterator[Wire]:
    wire = node.connect()
    try:
        yield wire
    finally:
        wire.close()


def make_topics(node: Node, wire: Wire, *, beside_others: bool) -> None:
    """The plain topic, and perhaps topics of delayed messages and halves."""
    wire.create_topic(TOPIC, 1)
    if not beside_others:
        return
    bound = {"penstock.half.groups": "shop"}
    beside = [
        NewTopic("delayed", 1, config={"penstock.delayed.messages": "true"}),
        NewTopic("other", 1),
        NewTopic("shop.half.checks", 1),
        NewTopic("other.half.expired", 1),
        NewTopic("other.half", 1, config=bound),
        NewTopic("other.half.decisions", 1, config=bound),
    ]
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    for created in admin.create_topics(beside).values():
        created.result()


def _compare(nodes: dict[str, Node], wires: dict[str, Wire]) -> dict[str, Any]:
    frame = encode_produce()
    cpu_us: dict[str, list[float]] = {name: [] for name in nodes}
    for _ in range(2):
        for name, node in nodes.items():  # opens files, imports modules
            _spend(node, wires[name], frame)
    for _ in range(ROUNDS):
        for name, node in nodes.items():
            cpu_us[name].append(_spend(node, wires[name], frame))
    medians = {name: statistics.median(samples) for name, samples in cpu_us.items()}
    least = {name: min(samples) for name, samples in cpu_us.items()}
    return {
        "rounds": ROUNDS,
        "requests": REQUESTS,
        "load_average": os.getloadavg(),
        "cpu_us_per_request": {name: round(value, 2) for name, value in medians.items()},
        "least_cpu_us_per_request": {name: round(value, 2) for name, value in least.items()},
        "to_now": relate(cpu_us),
    }


def relate(samples: dict[str, list[float]]) -> dict[str, Any]:
    """What this version costs as a ratio to each of the others, by their names."""
    now = samples["now"]
    return {
        name: {
            "median": round(statistics.median(now) / statistics.median(rounds), 4),
            "least": round(min(now) / min(rounds), 4),
        }
        for name, rounds in samples.items()
        if name != "now"
    }


def _spend(node: Node, wire: Wire, frame: bytes) -> float:
    """Processor time of the broker for a request, in microseconds."""

    def send() -> None:
        for _ in range(REQUESTS):
            wire.socket.sendall(frame)

    sender = threading.Thread(target=send)
    before_ns = cpu_ns(node.pid)
    sender.start()
    for _ in range(REQUESTS):
        wire.receive()
    spent_ns = cpu_ns(node.pid) - before_ns
    sender.join()
    return spent_ns / REQUESTS / 1000


def encode_produce() -> bytes:
    batch = bytes(build_batch([Record(0, 1, b"k", bytes(200), (("trace", b"t"),))]))
    message = compose(
        get_request_schema(ApiKey.PRODUCE, VERSION),
        {
            "acks": 1,
            "timeout": timedelta(seconds=30),
            "topic_data": [{"name": TOPIC, "partition_data": [{"index": 0, "records": batch}]}],
        },
    )
    return encode_request_frame(message, correlation_id=1, client_id="bench")
