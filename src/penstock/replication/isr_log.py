"""Logs how the ISRs of led partitions change, and why: one event for all partitions of a moment.

Decides nothing. Owned by the event loop, through `IsrManager`.
"""

from collections.abc import Callable

from penstock.logs.event_logger import EventLogger
from penstock.model.cluster import BrokerId
from penstock.model.ids import TopicPartition
from penstock.replication.follower_progress import FollowerProgress, LagLimits
from penstock.replication.isr import Members
from penstock.replication.partition import Partition

MAX_NAMED = 10  # partitions; the others are counted

CAUGHT_UP = "caught up"
NOT_FETCHING = "no fetch for replica.lag.time.max.ms"
LAGGING = "not caught up for replica.lag.time.max.ms"
TOO_FAR_BEHIND = "behind by more than replica.lag.max.messages"


class IsrLog:
    def __init__(
        self, logger: EventLogger, call_later: Callable[[Callable[[], None]], object]
    ) -> None:
        self._logger = logger
        self._call_later = call_later
        # By event, replica and reason.
        self._changes: dict[tuple[str, BrokerId, str], list[TopicPartition]] = {}

    def add(self, partition: Partition, before: Members, *, limits: LagLimits, now_ms: int) -> None:
        """The partition's ISR was `before` until now."""
        after = partition.state.in_sync
        for replica in before:
            if replica not in after:
                progress = partition.followers.get(replica)
                reason = find_reason(progress, limits=limits, now_ms=now_ms)
                self._add("isr_shrunk", replica, reason, partition.tp)
        for replica in after:
            if replica not in before:
                self._add("isr_expanded", replica, CAUGHT_UP, partition.tp)

    def _add(self, event: str, replica: BrokerId, reason: str, tp: TopicPartition) -> None:
        if not self._changes:
            self._call_later(self._flush)
        self._changes.setdefault((event, replica, reason), []).append(tp)

    def _flush(self) -> None:
        changes, self._changes = self._changes, {}
        for (event, replica, reason), tps in changes.items():
            verb = "left" if event == "isr_shrunk" else "joined"
            self._logger.info(
                event,
                f"broker {replica} {verb} the ISR of {len(tps)} partitions: {reason}",
                replicas=[replica],
                count=len(tps),
                partitions=tps[:MAX_NAMED],
                reason=reason,
            )


def find_reason(progress: FollowerProgress | None, *, limits: LagLimits, now_ms: int) -> str:
    if progress is None or now_ms - progress.fetched_ms > limits.max_ms:
        return NOT_FETCHING
    if now_ms - progress.caught_up_ms > limits.max_ms:
        return LAGGING
    return TOO_FAR_BEHIND
