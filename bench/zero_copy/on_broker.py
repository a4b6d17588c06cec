"""Whole brokers that differ in `send.method`: fetched bytes a second, CPU time and system calls.

The client is a bare socket that repeats one Fetch request and drops what it gets, so that nearly
all the work is the broker's. Rounds alternate, because the machine may be shared.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import statistics
import subprocess
import time
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

import penstock
from bench.broker.wire import Wire
from bench.measure import data_home, ratio
from bench.zero_copy.paths import GB, parse_table
from bench.zero_copy.reading import Spent
from penstock.client.call import compose
from penstock.network.send_queue import SendPath
from penstock.protocol.api_keys import ApiKey
from penstock.protocol.frames import encode_request_frame
from penstock.protocol.messages import get_request_schema

TOPIC = "fetched"
VALUE_BYTES = 100_000
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


def read(broker: penstock.Broker, *, fetch_bytes: int, total_bytes: int) -> Spent:
    """From the start again and again: a fetch of so many bytes is always the same request."""
    request = _fetch_frame(fetch_bytes)
    wire = Wire(broker.bootstrap_servers)  # a new one: a broker closes those that ask nothing
    before, start, received = cpu_seconds(broker.pid), time.perf_counter(), 0
    while received < total_bytes:
        wire.socket.sendall(request)
        received += len(wire.receive())
    seconds = time.perf_counter() - start
    wire.close()
    return Spent(seconds, cpu_seconds(broker.pid) - before)


def measure(
    fetch_bytes: int,
    *,
    rounds: int = 11,
    total_bytes: int = 128 * 1024 * 1024,
    traced_bytes: int = GB // 4,
) -> dict[str, Any]:
    with ExitStack() as stack:
        brokers = {path: _start(stack, path, fetch_bytes) for path in SendPath}
        spent: dict[SendPath, list[Spent]] = {path: [] for path in brokers}
        for _ in range(rounds):
            for path, broker in brokers.items():
                spent[path].append(read(broker, fetch_bytes=fetch_bytes, total_bytes=total_bytes))
        calls = {
            path: _count_system_calls(broker, fetch_bytes, traced_bytes)
            for path, broker in brokers.items()
        }
    fastest = [round_.seconds for round_ in spent[SendPath.SENDFILE]]
    return {
        "fetch_bytes": fetch_bytes,
        **{
            path.value: {
                "throughput_ratio_to_sendfile": ratio(fastest, [one.seconds for one in of_path]),
                "mb_per_second": round(total_bytes / 1e6 / min(one.seconds for one in of_path)),
                "cpu_seconds_per_gb": _per_gb(of_path, total_bytes),
                "system_calls_per_gb": calls[path],
            }
            for path, of_path in spent.items()
        },
    }


def cpu_seconds(pid: int) -> float:
    """User and system time of the process; the clock ticks every 10 ms."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_SECOND


def _start(stack: ExitStack, path: SendPath, fetch_bytes: int) -> penstock.Broker:
    data = data_home() / f"send-method-{path.value}"
    shutil.rmtree(data, ignore_errors=True)
    stack.callback(shutil.rmtree, data, ignore_errors=True)
    broker = stack.enter_context(penstock.Broker(data=data, config={"send.method": path.value}))
    broker.create_topic(TOPIC)
    with penstock.Producer(broker.bootstrap_servers) as producer:
        for _ in range(2 * fetch_bytes // VALUE_BYTES + 2):
            producer.send_and_wait(TOPIC, os.urandom(VALUE_BYTES), partition=0)
    return broker


def _fetch_frame(fetch_bytes: int) -> bytes:
    partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": fetch_bytes}
    fields = {
        "max_wait": timedelta(0),
        "min_bytes": 1,
        "max_bytes": fetch_bytes,
        "topics": [{"topic": TOPIC, "partitions": [partition]}],
    }
    request = compose(get_request_schema(ApiKey.FETCH, 12), fields)
    return bytes(encode_request_frame(request, correlation_id=1, client_id="bench"))


def _per_gb(spent: list[Spent], total_bytes: int) -> float:
    return round(statistics.median(one.cpu_seconds for one in spent) * GB / total_bytes, 3)


def _count_system_calls(
    broker: penstock.Broker, fetch_bytes: int, traced_bytes: int
) -> dict[str, int] | None:
    if shutil.which("strace") is None:
        return None
    with NamedTemporaryFile(mode="r") as table:
        command = ["strace", "-c", "-f", "-o", table.name, "-p", str(broker.pid)]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as strace:
            assert strace.stderr is not None
            if not re.search("attached", strace.stderr.readline()):
                return None  # tracing is forbidden here
            read(broker, fetch_bytes=fetch_bytes, total_bytes=traced_bytes)
            strace.send_signal(signal.SIGINT)
            strace.wait(60)
        counts = parse_table(table.read())
    per_gb = {name: round(count * GB / traced_bytes) for name, count in counts.items()}
    kept = {name: count for name, count in per_gb.items() if count > 400}  # fewer calls are noise
    return {"all": sum(kept.values()), **dict(sorted(kept.items(), key=lambda pair: -pair[1]))}
