"""Messages to a driver's lease keeper, and what the keeper learns of threads from the kernel."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from penstock.spark.connect.connections import ClientSettings
from penstock.spark.sink.exactly_once.driver_messages import (
    Ended,
    KeeperAddress,
    Planned,
    listen,
    receive,
    send,
)
from penstock.spark.sink.exactly_once.planned_batches import QueryRun
from penstock.spark.sink.exactly_once.stream_threads import Driver, StreamThread, find_driver

STARTED = 19
pytestmark = pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="Linux only")


def this_process() -> Driver:
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    return Driver(os.getpid(), int(fields[STARTED]))


def address(bound_ms: int = 60_000) -> KeeperAddress:
    return KeeperAddress(this_process(), ClientSettings("127.0.0.1:9092"), bound_ms)


def test_messages_arrive_in_order() -> None:
    sent: list[Planned | Ended] = [
        Planned("a", frozenset({StreamThread(1, 2), StreamThread(3, 4)})),
        Ended("a", QueryRun("query", None)),
        Planned("b", frozenset()),
    ]
    receiver = listen(address())
    assert receiver is not None
    with receiver:
        assert all(send(address(), message) for message in sent)
        assert list(receive(receiver)) == sent


def test_there_is_one_keeper_for_an_address_and_it_is_gone_once_it_has_ended() -> None:
    message = Planned("a", frozenset())
    assert not send(address(), message)
    receiver = listen(address())
    assert receiver is not None
    with receiver:
        assert listen(address()) is None
        assert not send(address(bound_ms=30_000), message)
    assert not send(address(), message)


def test_message_that_cannot_be_read_is_passed_over() -> None:
    receiver = listen(address())
    assert receiver is not None
    with receiver:
        for data in (b"", b"{}", b"[]", b'{"planned": "a", "threads": [1]}', b"\xff"):
            receiver.sendto(data, address().name)
        assert send(address(), Ended("a", QueryRun("query", "run")))
        assert list(receive(receiver)) == [Ended("a", QueryRun("query", "run"))]


def test_driver_that_does_not_receive_delays_nobody() -> None:
    receiver = listen(address())
    assert receiver is not None
    with receiver:
        assert all(send(address(), Planned("a", frozenset())) for _ in range(5_000))


def test_thread_of_a_query_is_seen_from_its_start_to_its_end() -> None:
    may_end, has_begun = threading.Event(), threading.Event()

    def run() -> None:
        Path(f"/proc/self/task/{threading.get_native_id()}/comm").write_text("stream execution")
        has_begun.set()
        may_end.wait()

    thread = threading.Thread(target=run)
    thread.start()
    assert has_begun.wait(180)
    seen = this_process().stream_threads()
    assert [entry.number for entry in seen] == [thread.native_id]
    may_end.set()
    thread.join()
    deadline = time.monotonic() + 180
    while this_process().stream_threads():  # Python's part of the thread has ended
        assert time.monotonic() < deadline, "it is still there"


def test_another_process_with_the_same_number_is_not_the_driver() -> None:
    driver = this_process()
    assert driver.is_running()
    assert not driver._replace(started=driver.started + 1).is_running()


def test_process_that_no_spark_has_started_has_no_driver() -> None:
    assert find_driver() is None
