"""What the harness of Kafka Connect does when workers rebalance, refuse or die."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import cast

import pytest
from tests.interop.kafka_jars import KafkaJars
from tests.outside import connect
from tests.outside.attempt import Attempt, OutsideFailed
from tests.outside.brokers import Brokers

CONFIG = {"connector.class": "any"}


@pytest.fixture
def attempt(tmp_path: Path) -> Attempt:
    return Attempt(
        brokers=Brokers(1, "nowhere:1", [], create_topic=lambda *_, **__: None),
        prefix="test",
        folder=tmp_path,
        deadline=time.monotonic() + 60,
        say=print,
    )


@contextmanager
def fake_worker(*codes: int) -> Iterator[tuple[str, list[int]]]:
    """A REST interface that answers with these codes, one after the other."""
    answered: list[int] = []

    class Answers(BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            answered.append(codes[len(answered)])
            self.send_response(answered[-1])
            self.end_headers()
            self.wfile.write(b'{"message": "why"}')

        def log_message(self, *_: object) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Answers) as server:
        serving = threading.Thread(target=server.serve_forever, args=(0.01,))
        serving.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/connectors/source/config", answered
        finally:
            server.shutdown()
            serving.join()


def test_a_connector_is_configured_again_after_a_rebalance(attempt: Attempt) -> None:
    with fake_worker(409, 409, 201) as (url, answered):
        connect._configure(attempt, url, CONFIG, "worker-1")
    assert answered == [409, 409, 201]


def test_any_other_refusal_fails_at_once_with_the_workers_words(attempt: Attempt) -> None:
    with (
        fake_worker(400) as (url, _),
        pytest.raises(OutsideFailed, match=r'400.*\{"message": "why"\}'),
    ):
        connect._configure(attempt, url, CONFIG, "worker-1")


def test_a_worker_that_dies_before_it_answers_fails_the_attempt_at_once(attempt: Attempt) -> None:
    class DyingJars:
        def command(self, *_: str, heap_mib: int) -> list[str]:
            return [sys.executable, "-S", "-c", "print('why'); raise SystemExit(3)"]

    with (
        pytest.raises(OutsideFailed, match=r"worker-1 ended with 3 before the worker(.|\n)*why"),
        connect._worker(cast("KafkaJars", DyingJars()), attempt, "worker-1"),
    ):
        pytest.fail("it is not in its group")


def test_what_a_process_has_done_before_its_end_counts(attempt: Attempt) -> None:
    made = attempt.folder / "made"
    program = f"import pathlib; pathlib.Path({str(made)!r}).touch()"
    with attempt.started("program", [sys.executable, "-c", program]) as process:
        process.wait()
        attempt.wait_for("the file is there", made.exists, "program")
