"""Stacks of other threads, read while they run."""

import threading
from collections.abc import Iterator

import pytest

from penstock.server.thread_stack import ThreadStacks


@pytest.fixture
def stacks() -> Iterator[ThreadStacks]:
    stacks = ThreadStacks()
    yield stacks
    stacks.close()


def outer_call(begun: threading.Event, ended: threading.Event) -> None:
    inner_call(begun, ended)


def inner_call(begun: threading.Event, ended: threading.Event) -> None:
    begun.set()
    ended.wait()


def test_the_stack_of_a_thread_ends_with_its_most_recent_call(stacks: ThreadStacks) -> None:
    begun, ended = threading.Event(), threading.Event()
    thread = threading.Thread(target=outer_call, args=(begun, ended), daemon=True)
    thread.start()
    begun.wait()
    assert thread.ident is not None
    lines = stacks.read(thread.ident).splitlines()
    ended.set()
    thread.join()
    positions = [
        next(index for index, line in enumerate(lines) if line.endswith(f"in {name}"))
        for name in ("outer_call", "inner_call")
    ]
    assert positions == sorted(positions)
    assert __file__ in lines[positions[0]]


def test_a_thread_that_has_ended_has_no_stack(stacks: ThreadStacks) -> None:
    thread = threading.Thread(target=lambda: None)
    thread.start()
    thread.join()
    assert thread.ident is not None
    assert stacks.read(thread.ident) == ""


def test_a_thread_may_run_while_its_stack_is_read(stacks: ThreadStacks) -> None:
    is_done = False

    def count(depth: int) -> int:
        return depth if depth == 0 else sum(count(depth - 1) for _ in range(2))

    def work() -> None:
        while not is_done:
            count(5)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    assert thread.ident is not None
    texts = [stacks.read(thread.ident) for _ in range(200)]
    is_done = True
    thread.join()
    assert any("in count" in text for text in texts)
