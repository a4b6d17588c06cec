"""Threads for flushes and other work that blocks on the disk: a bounded number, joined on exit."""

from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from types import TracebackType
from typing import Self, TypeVar

Item = TypeVar("Item")


class FlushThreads:
    """A `group_commit.Background` with `workers` threads for items, and others for rounds.

    `check` and leaving the context raise the first error of failed work, so that none is lost.
    """

    def __init__(self, workers: int) -> None:
        # Rounds wait for their items, so they must not use the items' threads.
        self._rounds = ThreadPoolExecutor(max_workers=2, thread_name_prefix="storage-round")
        self._items = ThreadPoolExecutor(max_workers=workers, thread_name_prefix="storage-sync")
        self._under_way: set[Future[None]] = set()  # rounds; removed when they end
        self._failed: list[BaseException] = []

    def run(self, work: Callable[[], None]) -> None:
        future = self._rounds.submit(work)
        self._under_way.add(future)
        future.add_done_callback(self._keep_failure)

    def join(self) -> None:
        """Wait for the running rounds. No other may start meanwhile."""
        wait(tuple(self._under_way))

    def stop(self) -> None:
        """Accept no more work, without waiting. Calling it twice is harmless."""
        self._rounds.shutdown(wait=False)
        self._items.shutdown(wait=False)

    def run_all(self, function: Callable[[Item], None], items: Iterable[Item]) -> None:
        todo = list(items)
        if len(todo) == 1:
            function(todo[0])  # cheaper than a hop to another thread
            return
        futures = [self._items.submit(function, item) for item in todo]
        wait(futures)
        for future in futures:
            future.result()

    def check(self) -> None:
        """Raise the first error of the work that was run."""
        if self._failed:
            raise self._failed[0]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._rounds.shutdown()
        self._items.shutdown()
        if error is None:
            self.check()

    def _keep_failure(self, future: Future[None]) -> None:
        self._under_way.discard(future)
        failure = future.exception()
        if failure is not None:
            self._failed.append(failure)
