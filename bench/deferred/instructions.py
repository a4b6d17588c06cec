"""Instructions of a request to a topic that uses no delays, beside brokers without them.

Counted by valgrind's callgrind, so that a busy machine changes nothing: the round with the
fewest depends on the code alone, others have timers and garbage collections, too. Not time: see
`unchanged`.
"""

import re
import shutil
import subprocess
import sys
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

from bench.broker.nodes import Node
from bench.broker.wire import Wire
from bench.deferred.unchanged import (
    ROOT,
    TOPIC,
    connect,
    encode_produce,
    find_sources,
    make_topics,
    relate,
)
from penstock.client.call import compose
from penstock.protocol.api_keys import ApiKey
from penstock.protocol.frames import encode_request_frame
from penstock.protocol.messages import get_request_schema

ROUNDS = 9
REQUESTS = 200
WARM_REQUESTS = 500  # opens files, imports modules, specialises bytecode
FETCH_VERSION = 11
_TOTAL = re.compile(r"^totals: (\d+)", flags=re.MULTILINE)
_MAIN = "from penstock.cli.main import main; main()"


class CountedTree:
    """A broker from the sources in a folder under callgrind, which counts nothing until told to."""

    def __init__(self, sources: Path, counts: Path) -> None:
        self._sources = sources
        self._counts = counts

    def prepare(self, directory: Path, port: int) -> list[str]:
        return [
            "env",
            f"PYTHONPATH={self._sources}",
            "PYTHONHASHSEED=0",  # else sets and dictionaries differ from run to run
            "setarch",
            "--addr-no-randomize",  # likewise what is hashed by its address
            "valgrind",
            "--quiet",
            "--tool=callgrind",
            "--fair-sched=yes",
            "--instr-atstart=no",
            "--separate-threads=yes",  # the event loop's alone: others work by the clock
            f"--callgrind-out-file={self._counts}",
            sys.executable,
            "-c",
            _MAIN,
            "up",
            "--data",
            str(directory / "data"),
            "--listen",
            f"127.0.0.1:{port}",
        ]


def measure_instructions(folder: Path) -> dict[str, Any]:
    if shutil.which("callgrind_control") is None:
        return {"skipped": "valgrind is not installed"}
    trees = {"now": ROOT / "src", "now_again": ROOT / "src", "now_beside_others": ROOT / "src"}
    before = find_sources(folder / "sources")
    if before is not None:
        trees["before"] = before
    counted = {name: _count(name, tree, folder) for name, tree in trees.items()}
    results: dict[str, Any] = {"rounds": ROUNDS, "requests": REQUESTS}
    for api in counted["now"]:
        samples = {name: rounds[api] for name, rounds in counted.items()}
        least = {name: round(min(rounds)) for name, rounds in samples.items()}
        results[api] = {"least_per_request": least, "to_now": relate(samples)}
    return results


def _count(name: str, tree: Path, folder: Path) -> dict[str, list[float]]:
    """Instructions for a request, by API and round."""
    counts = folder / f"{name}.callgrind"
    with ExitStack() as stack:
        node = stack.enter_context(Node(CountedTree(tree, counts), folder / f"counted_{name}"))
        wire = stack.enter_context(connect(node))
        make_topics(node, wire, beside_others=name == "now_beside_others")
        counter = Counter(node.pid, counts)
        counter.control("--instr=on")
        return {
            api: _count_rounds(wire, frame, counter)
            for api, frame in (("produce", encode_produce()), ("fetch", _encode_fetch()))
        }


class Counter:
    """Of one process under callgrind."""

    def __init__(self, pid: int, counts: Path) -> None:
        self._pid = pid
        self._counts = counts
        self._dumps = 0

    def control(self, option: str) -> None:
        command = ["callgrind_control", option, str(self._pid)]
        subprocess.run(command, check=True, capture_output=True)

    def take(self) -> int:
        """Instructions of the event loop's thread since the last one was taken."""
        self.control("--dump")
        self._dumps += 1
        name = f"{self._counts.name}.{self._dumps}"
        total = _TOTAL.search(self._counts.with_name(f"{name}-01").read_text(errors="replace"))
        assert total is not None, f"{name} has no total"
        for dump in self._counts.parent.glob(f"{name}-*"):
            dump.unlink()
        return int(total[1])


def _count_rounds(wire: Wire, frame: bytes, counter: Counter) -> list[float]:
    _ask(wire, frame, WARM_REQUESTS)
    counter.take()
    rounds = []
    for _ in range(ROUNDS):
        _ask(wire, frame, REQUESTS)
        rounds.append(counter.take() / REQUESTS)
    return rounds


def _ask(wire: Wire, frame: bytes, requests: int) -> None:
    """One at a time: how many a turn of the event loop serves is a matter of time."""
    for _ in range(requests):
        wire.socket.sendall(frame)
        wire.receive()


def _encode_fetch() -> bytes:
    partition = {
        "partition": 0,
        "current_leader_epoch": -1,
        "fetch_offset": 0,
        "log_start_offset": -1,
        "partition_max_bytes": 300,
    }
    fields = {
        "replica_id": -1,
        "max_wait": timedelta(0),
        "min_bytes": 0,
        "max_bytes": 1000,
        "isolation_level": 0,
        "session_id": 0,
        "session_epoch": -1,
        "topics": [{"topic": TOPIC, "partitions": [partition]}],
        "forgotten_topics_data": [],
        "rack_id": "",
    }
    message = compose(get_request_schema(ApiKey.FETCH, FETCH_VERSION), fields)
    return encode_request_frame(message, correlation_id=1, client_id="bench")
