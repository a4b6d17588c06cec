"""Threads for work that waits for the disk. Bounded, and joined when left."""

from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from types import TracebackType
from typing import Self, TypeVar

Item = TypeVar("Item")


class FlushThreads:
    """A `group_commit.Background` of `workers` threads for items and one more for rounds.

    Work that fails is kept and raised by `check` and on leaving: nobody forgets it.
    """

    def __init__(self, workers: int) -> None:
        # Rounds wait for their items, so they may not take the items' threads.
        self._rounds = ThreadPoolExecutor(max_workers=2, thread_name_prefix="storage-round")
        self._items = ThreadPoolExecutor(max_workers=workers, thread_name_prefix="storage-sync")
        self._under_way: set[Future[None]] = set()  # rounds; they leave by themselves
        self._failed: list[BaseException] = []

    def run(self, work: Callable[[], None]) -> None:
        future = self._rounds.submit(work)
        self._under_way.add(future)
        future.add_done_callback(self._keep_failure)

    def join(self) -> None:
        """Wait for the rounds that were begun. Nobody may begin another meanwhile."""
        wait(tuple(self._under_way))

    def stop(self) -> None:
        """Take no more work, and wait for none. Twice is once."""
        self._rounds.shutdown(wait=False)
        self._items.shutdown(wait=False)

    def run_all(self, function: Callable[[Item], None], items: Iterable[Item]) -> None:
        several = list(items)
        if len(several) == 1:
            function(several[0])  # an executor hop costs more than it gives
            return
        futures = [self._items.submit(function, item) for item in several]
        wait(futures)
        for future in futures:
            future.result()

    def check(self) -> None:
        """Raise the first error that escaped from a piece of work."""
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
