"""A broker whose whole process was stopped says so, although its session outlasts the pause."""

import json
import os
import signal
import time
import urllib.request
from pathlib import Path
from typing import Any

from tests.scenarios.up_process import UpProcess, penstock_up

from penstock.server.watchdog import CHECK_EVERY_MS

TIMEOUT_S = 180.0
PAUSE_S = 1.5
AGAIN_AFTER_S = 10.0


def find_events(broker: UpProcess, name: str) -> list[dict[str, Any]]:
    events = [json.loads(line) for line in broker.logs]
    return [event for event in events if event["event"] == name]


def pause_until_noticed(broker: UpProcess) -> float:
    """Return how many milliseconds the noticed pause lasted at least.

    The watchdog measures its own waits. A stop that falls between two of them, while it reads a
    stack, goes unnoticed, so it is repeated.
    """
    ends_s = time.monotonic() + TIMEOUT_S
    while time.monotonic() < ends_s:
        least_ms = pause(broker.pid)
        again_s = time.monotonic() + AGAIN_AFTER_S
        while time.monotonic() < again_s:
            # A busy machine may pause it, too, for less.
            if any(it["duration_ms"] >= least_ms for it in find_events(broker, "process_paused")):
                return least_ms
            time.sleep(0.02)
    raise AssertionError(f"no pause was noticed: {broker.logs}")


def pause(pid: int) -> float:
    os.kill(pid, signal.SIGSTOP)
    wait_stopped(pid)
    stopped_s = time.monotonic()
    time.sleep(PAUSE_S)  # the pause itself
    # The watchdog's wait had up to its own length left when the process stopped, and a
    # millisecond is what rounding takes.
    least_ms = (time.monotonic() - stopped_s) * 1000 - CHECK_EVERY_MS - 1
    os.kill(pid, signal.SIGCONT)
    return least_ms


def wait_stopped(pid: int) -> None:
    """Until the system has stopped every thread of the process."""
    ends_s = time.monotonic() + TIMEOUT_S
    while any(runs(thread) for thread in Path(f"/proc/{pid}/task").iterdir()):
        assert time.monotonic() < ends_s
        time.sleep(0.01)


def runs(thread: Path) -> bool:
    try:
        return (thread / "stat").read_text().rpartition(")")[2].split()[0] != "T"
    except FileNotFoundError:
        return True  # it ended just now: look again


def read_metrics(broker: UpProcess) -> dict[str, float]:
    (event,) = find_events(broker, "metrics_listening")
    url = next(word for word in event["message"].split() if word.startswith("http://"))
    with urllib.request.urlopen(url.rstrip(","), timeout=TIMEOUT_S) as response:
        lines = response.read().decode().splitlines()
    samples = (line.rpartition(" ") for line in lines if not line.startswith("#"))
    return {name: float(value) for name, _, value in samples}


def test_a_pause_below_the_session_timeout_is_logged_and_counted(tmp_path: Path) -> None:
    arguments = ("--data", str(tmp_path), "--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0")
    with penstock_up(
        *arguments, "--log-format", "json", "--set", "logging.pause.ms=1000"
    ) as broker:
        least_ms = pause_until_noticed(broker)
        assert not find_events(broker, "session_expired")
        metrics = read_metrics(broker)
        assert metrics["penstock_process_pauses_total"] >= 1
        assert metrics["penstock_process_paused_seconds_total"] >= least_ms / 1000
        assert broker.end() == 0
