"""Logs which limit refuses members of which group: once an hour for each, and few lines a minute.

Refuses nobody itself. Invariant: clients cannot fill the log or the memory, whatever groups they
name.
"""

from collections.abc import Callable

from penstock.coordinators.group.limits import COORDINATOR_MAX_BYTES
from penstock.logs.event_logger import EventLogger

LINES_A_MINUTE = 20
MAX_REMEMBERED = 1000
_MINUTE_MS = 60_000
_HOUR_MS = 60 * _MINUTE_MS


class RefusedMembers:
    """Owned by the coordinator."""

    def __init__(self, logger: EventLogger, wall_ms: Callable[[], int]) -> None:
        self._logger = logger
        self._wall_ms = wall_ms
        self._logged_ms: dict[tuple[str, str], int] = {}  # by group and setting, oldest first
        self._minute = 0
        self._lines = 0  # in this minute

    def add(self, group: str, limit: str) -> None:
        """A member of the group was refused because of the setting `limit`."""
        now_ms = self._wall_ms()
        cause = ("" if limit == COORDINATOR_MAX_BYTES else group, limit)
        if self._is_repeated(cause, now_ms) or self._is_too_many(now_ms):
            return
        self._logged_ms.pop(cause, None)
        if len(self._logged_ms) >= MAX_REMEMBERED:
            del self._logged_ms[next(iter(self._logged_ms))]
        self._logged_ms[cause] = now_ms
        # repr: a group's name must not forge another line.
        self._logger.warning(
            "member_refused",
            f"group {group!r} has refused a member with GROUP_MAX_SIZE_REACHED because of {limit}; "
            f"stop some members, or raise the setting. Logged once an hour for "
            f"{'the coordinator' if not cause[0] else 'this group'}",
        )

    def _is_repeated(self, cause: tuple[str, str], now_ms: int) -> bool:
        logged_ms = self._logged_ms.get(cause)
        return logged_ms is not None and 0 <= now_ms - logged_ms < _HOUR_MS

    def _is_too_many(self, now_ms: int) -> bool:
        minute = now_ms // _MINUTE_MS
        if minute != self._minute:
            self._minute, self._lines = minute, 0
        self._lines += 1
        return self._lines > LINES_A_MINUTE
