"""What both engines do with their log directories, whatever these hold: locks, failures, the choice
of one for a new log, and when work is due.

Invariant: a directory that fails takes only its own logs offline.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeVar

from penstock.logs.event_logger import EventLogger
from penstock.model.ids import TopicPartition
from penstock.storage.errors import DirectoryFailed, DirectoryLocked


class FallibleLog(Protocol):
    failure: OSError | None


class FallibleDirectory(Protocol):
    path: str
    failure: OSError | None

    @property
    def logs(self) -> Mapping[TopicPartition, FallibleLog]: ...
    def lock(self) -> None: ...
    def close(self, *, clean: bool) -> None: ...


DirectoryT = TypeVar("DirectoryT", bound=FallibleDirectory)


def lock_all(
    directories: Sequence[DirectoryT], fail: Callable[[DirectoryT, OSError], None]
) -> None:
    """Lock all directories that work, or none: a refused start leaves no lock behind."""
    for directory in directories:
        try:
            directory.lock()
        except OSError as error:
            fail(directory, error)
        except DirectoryLocked:
            for other in directories:
                other.close(clean=False)
            raise


def list_working(directories: Sequence[DirectoryT]) -> list[DirectoryT]:
    return [directory for directory in directories if directory.failure is None]


def check_any_works(directories: Sequence[FallibleDirectory]) -> None:
    if directories and not any(directory.failure is None for directory in directories):
        _raise_failure(directories)


def choose_directory(directories: Sequence[DirectoryT], *, is_new: bool) -> DirectoryT:
    """The working one with the fewest logs. A partition that is not new may have its records in a
    failed one: DirectoryFailed."""
    check_any_works(directories)
    if not is_new:
        _raise_failure(directories)
    return min(list_working(directories), key=lambda directory: len(directory.logs))


def _raise_failure(directories: Sequence[FallibleDirectory]) -> None:
    """That of the first failed one, if any."""
    for directory in directories:
        if directory.failure is not None:
            raise DirectoryFailed(directory.path, directory.failure) from directory.failure


def mark_failed(directory: FallibleDirectory, error: OSError, logger: EventLogger) -> None:
    """Its logs are offline from now on; only the first error is reported."""
    if directory.failure is None:
        directory.failure = error
        logger.error(
            "log_directory_failed",
            f"log directory {directory.path} is offline: {error}",
            directory=directory.path,
            partitions=len(directory.logs),
        )
    for log in directory.logs.values():
        log.failure = log.failure or error


def describe_failures(directories: Sequence[FallibleDirectory]) -> dict[str, str]:
    """The first error by path."""
    return {item.path: str(item.failure) for item in directories if item.failure}


class JobSchedule:
    """When work is due again, by its name. Owned by an engine."""

    def __init__(self) -> None:
        self._next_due_ms: dict[str, int] = {}

    def is_due(self, name: str, interval_ms: int, now_ms: int) -> bool:
        """True once an interval; the first one begins with the first question."""
        due_ms = self._next_due_ms.setdefault(name, now_ms + interval_ms)
        if now_ms < due_ms:
            return False
        self._next_due_ms[name] = now_ms + interval_ms
        return True
