"""`send.method` on a real broker: clients read the same bytes by each, the system calls differ."""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from tests.profile import scaled

import penstock
from penstock.testing.embedded_broker import BrokerNotStarted

METHODS = ("sendfile", "mmap", "copy")
PATIENCE_S = 180
LARGE = (300_000, 900_000)  # above what sendfile leaves to be copied
CODECS = ("none", "zstd")[: scaled(test=1, verify=2, release=2)]


def values(count: int) -> list[bytes]:
    source = random.Random(7)
    sizes = (0, 1, 500, 15_000, 16_384, 17_000, *LARGE)
    return [source.randbytes(source.choice(sizes)) for _ in range(count)]


def produce(servers: str, sent: list[bytes], codec: str) -> None:
    producer = Producer(
        {"bootstrap.servers": servers, "compression.type": codec, "message.max.bytes": 1_000_000}
    )
    for value in sent:
        producer.produce("t", value)
    assert producer.flush(PATIENCE_S) == 0


def consume(servers: str, count: int) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "g"})
    consumer.assign([TopicPartition("t", 0, 0)])
    received: list[bytes] = []
    while len(received) < count:
        messages = consumer.consume(count - len(received), PATIENCE_S)
        assert messages, f"only {len(received)} of {count} records"
        assert not any(message.error() for message in messages)
        received += (message.value() or b"" for message in messages)
    consumer.close()
    return received


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("method", METHODS)
def test_a_client_reads_what_was_written(method: str, codec: str) -> None:
    sent = values(60)
    with penstock.Broker(config={"send.method": method}) as broker:
        broker.create_topic("t")
        produce(broker.bootstrap_servers, sent, codec)
        assert consume(broker.bootstrap_servers, len(sent)) == sent


@contextmanager
def traced(pid: int, out: Path) -> Iterator[Counter[str]]:
    """Counts, when the block is left, the calls that can bring a file to a socket. Of the reads
    and maps only those of files: a map of memory has no descriptor."""
    counts: Counter[str] = Counter()
    command = ["strace", "-f", "-e", "trace=sendfile,pread64,mmap", "-o", str(out), "-p", str(pid)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as strace:
        assert strace.stderr is not None
        assert "attached" in strace.stderr.readline()
        yield counts
        strace.send_signal(signal.SIGINT)
        strace.wait(PATIENCE_S)
    for line in out.read_text().splitlines():
        if re.search(r"\bsendfile\(", line):
            counts["sendfile"] += 1
        elif re.search(r"\bmmap\(NULL, \d+, PROT_READ, MAP_SHARED, \d+, ", line):
            counts["mmap"] += 1
        elif re.search(r"\bpread64\(\d+, .* 65536, \d+", line):
            counts["copy"] += 1


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
@pytest.mark.parametrize("method", METHODS)
def test_the_system_calls_are_those_of_the_method(method: str, tmp_path: Path) -> None:
    sent = [os.urandom(size) for size in LARGE]
    with penstock.Broker(config={"send.method": method}) as broker:
        broker.create_topic("t")
        produce(broker.bootstrap_servers, sent, "none")
        with traced(broker.pid, tmp_path / "trace") as counts:
            assert consume(broker.bootstrap_servers, len(sent)) == sent
    assert counts[method] > 0
    if method != "sendfile":
        assert counts["sendfile"] == 0
    assert not (method == "copy" and counts["mmap"])


def test_an_unknown_method_is_refused() -> None:
    with (
        pytest.raises(BrokerNotStarted, match=r"send\.method = 'splice' is not valid"),
        penstock.Broker(config={"send.method": "splice"}),
    ):
        pass
