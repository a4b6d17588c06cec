"""A stopped process is recognised, so that its Python workers do not renew leases for it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

from penstock.spark.sink.exactly_once.lease_keeper import is_stopped

TIMEOUT_S = 180


def test_stopped_process_is_recognised_until_it_is_resumed() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        for sent, expected in ((signal.SIGSTOP, True), (signal.SIGCONT, False)):
            process.send_signal(sent)
            deadline = time.monotonic() + TIMEOUT_S
            while is_stopped(process.pid) is not expected:
                assert time.monotonic() < deadline
                time.sleep(0.01)
        process.kill()


def test_process_that_does_not_exist_is_not_stopped() -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait(TIMEOUT_S)
    assert not is_stopped(ended.pid)
    assert not is_stopped(os.getpid())
