"""Fetch sessions (KIP-227): a client names its partitions once, then only the changes.

A session keeps the requested partitions and what was last sent for each; it reads no log. The
cache is bounded: a new session evicts one that is long idle or smaller, or is not created.
"""

import random
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, Protocol, TypeVar
from uuid import UUID

from penstock.model.errors import ErrorCode
from penstock.purgatory.loop_timers import monotonic_ms

NO_SESSION = 0
FIRST_EPOCH = 0  # requests a session
FINAL_EPOCH = -1  # without a session; closes the one it names
MAX_ID = 2**31 - 1
MIN_AGE_MS = 120_000  # a younger session is not evicted
MAX_PARTITIONS = 500_000  # in all sessions together: about 100 MB

Topic = str | UUID  # by id from version 13 on
Key = tuple[Topic, int]


class RequestedPartition:
    """One partition as a fetch requests it, and in a session what was last sent for it."""

    __slots__ = (
        "index",
        "last_fetched_epoch",
        "leader_epoch",
        "max_bytes",
        "offset",
        "sent_high_watermark",
        "sent_log_start_offset",
        "topic",
    )

    def __init__(
        self,
        topic: Topic,
        index: int,
        *,
        offset: int,
        max_bytes: int,
        leader_epoch: int = -1,
        last_fetched_epoch: int = -1,
    ) -> None:
        self.topic = topic
        self.index = index
        self.offset = offset
        self.max_bytes = max_bytes
        self.leader_epoch = leader_epoch
        self.last_fetched_epoch = last_fetched_epoch
        self.sent_high_watermark = -1  # nothing sent yet, or an error
        self.sent_log_start_offset = -1

    def update(self, other: "RequestedPartition") -> None:
        self.offset = other.offset
        self.max_bytes = other.max_bytes
        self.leader_epoch = other.leader_epoch
        self.last_fetched_epoch = other.last_fetched_epoch


class FetchedPartitionView(Protocol):
    """One partition of a response, as its session sees it."""

    @property
    def requested(self) -> RequestedPartition: ...
    @property
    def is_error(self) -> bool: ...
    @property
    def has_news(self) -> bool:
        """Records, or anything else that is sent even if the offsets have not changed."""

    @property
    def has_records(self) -> bool: ...
    @property
    def high_watermark(self) -> int: ...
    @property
    def log_start_offset(self) -> int: ...


AnyFetchedPartition = TypeVar("AnyFetchedPartition", bound=FetchedPartitionView)


class FetchResponseHead(NamedTuple):
    """The response's own fields; its partitions are those that `choose` returns."""

    error: ErrorCode
    session_id: int


class FetchSession:
    __slots__ = ("by_id", "created_ms", "epoch", "id", "partitions", "used_ms")

    def __init__(
        self,
        session_id: int,
        partitions: dict[Key, RequestedPartition],
        *,
        by_id: bool,
        now_ms: int,
    ) -> None:
        self.id = session_id
        self.epoch = 1  # of the next request
        self.partitions = partitions  # one that got records moves to the end, so that none starves
        self.by_id = by_id  # topics by id, not by name; the same in all requests of the session
        self.created_ms = self.used_ms = now_ms


class FetchContext:
    """One fetch: the partitions to read, and which of them its session sends."""

    partitions: Sequence[RequestedPartition] = ()

    def choose(
        self, answers: list[AnyFetchedPartition]
    ) -> tuple[FetchResponseHead, list[AnyFetchedPartition]]:
        """Choose the partitions of the response to send. Called once, when it is built."""
        return FetchResponseHead(ErrorCode.NONE, NO_SESSION), answers

    def hold_back(self) -> FetchResponseHead:
        """Instead of `choose`, of a response without partitions: a quota is exceeded. The session
        keeps what it knows, and a full fetch creates none, so the client sends it again."""
        return FetchResponseHead(ErrorCode.NONE, NO_SESSION)


class _Sessionless(FetchContext):
    def __init__(self, partitions: Iterable[RequestedPartition]) -> None:
        self.partitions = tuple(partitions)


class _Refused(FetchContext):
    def __init__(self, error: ErrorCode) -> None:
        self._error = error

    def choose(
        self, answers: list[AnyFetchedPartition]
    ) -> tuple[FetchResponseHead, list[AnyFetchedPartition]]:
        return FetchResponseHead(self._error, NO_SESSION), []


class _Full(FetchContext):
    """The full fetch that creates a session, if the cache has room."""

    def __init__(
        self, sessions: "FetchSessions", partitions: dict[Key, RequestedPartition], *, by_id: bool
    ) -> None:
        self._sessions = sessions
        self._named = partitions
        self._by_id = by_id
        self.partitions = tuple(partitions.values())

    def choose(
        self, answers: list[AnyFetchedPartition]
    ) -> tuple[FetchResponseHead, list[AnyFetchedPartition]]:
        session = self._sessions.try_create(self._named, by_id=self._by_id)
        if session is None:
            return FetchResponseHead(ErrorCode.NONE, NO_SESSION), answers
        for data in answers:
            _note(session, data)
        return FetchResponseHead(ErrorCode.NONE, session.id), answers


class _Incremental(FetchContext):
    def __init__(self, session: FetchSession) -> None:
        self._session = session
        self._epoch = session.epoch
        self.partitions = tuple(session.partitions.values())

    def choose(
        self, answers: list[AnyFetchedPartition]
    ) -> tuple[FetchResponseHead, list[AnyFetchedPartition]]:
        session = self._session
        if session.epoch != self._epoch:  # a later request of the session was answered first
            return FetchResponseHead(ErrorCode.INVALID_FETCH_SESSION_EPOCH, session.id), []
        news = [data for data in answers if _note(session, data)]
        return FetchResponseHead(ErrorCode.NONE, session.id), news

    def hold_back(self) -> FetchResponseHead:
        head, _ = self.choose(list[FetchedPartitionView]())
        return head


def _note(session: FetchSession, data: FetchedPartitionView) -> bool:
    """Remember what is sent. True if it is new to the client."""
    requested = data.requested
    if data.is_error:
        requested.sent_high_watermark = -1  # so that the recovery is sent
        return True
    is_news = (
        data.has_news
        or requested.sent_high_watermark != data.high_watermark
        or requested.sent_log_start_offset != data.log_start_offset
    )
    requested.sent_high_watermark = data.high_watermark
    requested.sent_log_start_offset = data.log_start_offset
    if data.has_records:
        key = requested.topic, requested.index
        moved = session.partitions.pop(key, None)
        if moved is not None:
            session.partitions[key] = moved
    return is_news


def _last_named(requested: Iterable[RequestedPartition]) -> list[RequestedPartition]:
    """The last entry of each partition. librdkafka fetches without sessions, so this runs for every
    partition of every request: adjacent entries of a topic share one look-up of its id."""
    topics: dict[Topic, dict[int, RequestedPartition]] = {}
    topic: Topic | None = None
    named: dict[int, RequestedPartition] = {}
    for partition in requested:
        if partition.topic is not topic:
            topic = partition.topic
            named = topics.setdefault(topic, {})
        named[partition.index] = partition
    return [partition for named in topics.values() for partition in named.values()]


class FetchSessions:
    """The session cache of one broker. Owned by the event loop's thread."""

    def __init__(
        self,
        *,
        max_sessions: int,
        max_partitions: int = MAX_PARTITIONS,
        now_ms: Callable[[], int] = monotonic_ms,
        new_id: Callable[[], int] = lambda: random.randint(1, MAX_ID),
    ) -> None:
        self._max_sessions = max_sessions
        self._max_partitions = max_partitions
        self._now_ms = now_ms
        self._new_id = new_id
        self._sessions: dict[int, FetchSession] = {}  # least recently used first
        self._partitions = 0  # of all of them

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def partition_count(self) -> int:
        return self._partitions

    def begin(
        self,
        *,
        session_id: int,
        epoch: int,
        requested: Iterable[RequestedPartition],
        forgotten: Iterable[Key] = (),
        by_id: bool = False,
    ) -> FetchContext:
        """The context of one request. A partition that it names twice counts once, as last
        named."""
        if epoch == FINAL_EPOCH:
            self._end(session_id)
            return _Sessionless(_last_named(requested))
        named: dict[Key, RequestedPartition] = {
            (partition.topic, partition.index): partition for partition in requested
        }
        if epoch == FIRST_EPOCH:
            self._end(session_id)
            return _Full(self, named, by_id=by_id)
        session = self._sessions.get(session_id)
        if session is None:
            return _Refused(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != epoch:
            return _Refused(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.by_id != by_id:
            return _Refused(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        return self._continue(session, named, forgotten)

    def _continue(
        self, session: FetchSession, named: dict[Key, RequestedPartition], forgotten: Iterable[Key]
    ) -> FetchContext:
        before = len(session.partitions)
        for key, requested in named.items():
            current = session.partitions.setdefault(key, requested)
            if current is not requested:
                current.update(requested)
        for key in forgotten:
            session.partitions.pop(key, None)
        self._partitions += len(session.partitions) - before
        if not session.partitions:  # the client has forgotten all of them
            self._end(session.id)
            return _Sessionless(())
        if self._partitions > self._max_partitions:
            self._end(session.id)
            return _Refused(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        session.epoch = 1 if session.epoch == MAX_ID else session.epoch + 1
        session.used_ms = self._now_ms()
        self._sessions[session.id] = self._sessions.pop(session.id)
        return _Incremental(session)

    def try_create(
        self, partitions: dict[Key, RequestedPartition], *, by_id: bool
    ) -> FetchSession | None:
        """None if the cache is full: the client goes on without a session."""
        count = len(partitions)
        if not count or self._partitions + count > self._max_partitions:
            return None
        now_ms = self._now_ms()
        if len(self._sessions) >= self._max_sessions and not self._try_evict(count, now_ms):
            return None
        session_id = self._new_id()
        while session_id in self._sessions:
            session_id = self._new_id()
        session = FetchSession(session_id, partitions, by_id=by_id, now_ms=now_ms)
        self._sessions[session_id] = session
        self._partitions += count
        return session

    def _try_evict(self, new_partitions: int, now_ms: int) -> bool:
        """Evict the least recently used session if it is old enough, else the smallest one, if it
        has fewer partitions than the new one."""
        oldest = next(iter(self._sessions.values()), None)
        if oldest is None:
            return False
        if now_ms - oldest.used_ms > MIN_AGE_MS:
            self._end(oldest.id)
            return True
        evictable = [
            session
            for session in self._sessions.values()
            if now_ms - session.created_ms > MIN_AGE_MS
        ]
        smallest = min(evictable, key=lambda session: len(session.partitions), default=None)
        if smallest is None or len(smallest.partitions) >= new_partitions:
            return False
        self._end(smallest.id)
        return True

    def _end(self, session_id: int) -> None:
        ended = self._sessions.pop(session_id, None)
        if ended is not None:
            self._partitions -= len(ended.partitions)
