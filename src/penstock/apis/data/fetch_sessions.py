"""Fetch sessions (KIP-227): a client names its partitions once, then only what changes.

Keeps what each session asked for and was last told; reads no log. Bounded: when the table is full a
newcomer replaces a session that was long idle or is smaller, or does without.
"""

import random
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, Protocol, TypeVar
from uuid import UUID

from penstock.model.errors import ErrorCode
from penstock.purgatory.loop_timers import monotonic_ms

NO_SESSION = 0
FIRST_EPOCH = 0  # asks for a session
FINAL_EPOCH = -1  # wants none, and ends the one it names
MAX_ID = 2**31 - 1
MIN_AGE_MS = 120_000  # before that, a session is not replaced by a newcomer
MAX_PARTITIONS = 500_000  # of all sessions together: about 100 MB

Topic = str | UUID  # by id from version 13 on
Key = tuple[Topic, int]


class RequestedPartition:
    """One partition as a fetch asks for it, and in a session what was told of it last."""

    __slots__ = (
        "index",
        "last_fetched_epoch",
        "leader_epoch",
        "max_bytes",
        "offset",
        "told_high_watermark",
        "told_log_start",
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
        self.told_high_watermark = -1  # nothing yet, or an error
        self.told_log_start = -1

    def take(self, other: "RequestedPartition") -> None:
        self.offset = other.offset
        self.max_bytes = other.max_bytes
        self.leader_epoch = other.leader_epoch
        self.last_fetched_epoch = other.last_fetched_epoch


class Told(Protocol):
    """What a session has to know of a partition's answer."""

    @property
    def asked(self) -> RequestedPartition: ...
    @property
    def is_error(self) -> bool: ...
    @property
    def has_news(self) -> bool:
        """Records, or anything else that the client is to get whatever it was told before."""

    @property
    def has_records(self) -> bool: ...
    @property
    def high_watermark(self) -> int: ...
    @property
    def log_start_offset(self) -> int: ...


AnyTold = TypeVar("AnyTold", bound=Told)


class FetchResponseHead(NamedTuple):
    """The head of an answer; its partitions are what `choose` left."""

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
        self.epoch = 1  # of the request that is to come next
        self.partitions = partitions  # who got records goes to the end, so that nobody starves
        self.by_id = by_id  # topics by id rather than by name: of all requests or of none
        self.created_ms = self.used_ms = now_ms


class FetchContext:
    """One fetch: what to read for it, and how its session sees the answer."""

    partitions: Sequence[RequestedPartition] = ()

    def choose(self, answers: list[AnyTold]) -> tuple[FetchResponseHead, list[AnyTold]]:
        """What of the answers is sent. Called once, when they leave."""
        return FetchResponseHead(ErrorCode.NONE, NO_SESSION), answers


class _Sessionless(FetchContext):
    def __init__(self, partitions: Iterable[RequestedPartition]) -> None:
        self.partitions = tuple(partitions)


class _Refused(FetchContext):
    def __init__(self, error: ErrorCode) -> None:
        self._error = error

    def choose(self, answers: list[AnyTold]) -> tuple[FetchResponseHead, list[AnyTold]]:
        return FetchResponseHead(self._error, NO_SESSION), []


class _Full(FetchContext):
    """The first fetch of a session, if there is room for it."""

    def __init__(
        self, sessions: "FetchSessions", partitions: dict[Key, RequestedPartition], *, by_id: bool
    ) -> None:
        self._sessions = sessions
        self._named = partitions
        self._by_id = by_id
        self.partitions = tuple(partitions.values())

    def choose(self, answers: list[AnyTold]) -> tuple[FetchResponseHead, list[AnyTold]]:
        session = self._sessions.try_create(self._named, by_id=self._by_id)
        if session is None:
            return FetchResponseHead(ErrorCode.NONE, NO_SESSION), answers
        for told in answers:
            _note(session, told)
        return FetchResponseHead(ErrorCode.NONE, session.id), answers


class _Incremental(FetchContext):
    def __init__(self, session: FetchSession) -> None:
        self._session = session
        self._epoch = session.epoch
        self.partitions = tuple(session.partitions.values())

    def choose(self, answers: list[AnyTold]) -> tuple[FetchResponseHead, list[AnyTold]]:
        session = self._session
        if session.epoch != self._epoch:  # a second request of the session overtook this one
            return FetchResponseHead(ErrorCode.INVALID_FETCH_SESSION_EPOCH, session.id), []
        news = [told for told in answers if _note(session, told)]
        return FetchResponseHead(ErrorCode.NONE, session.id), news


def _note(session: FetchSession, told: Told) -> bool:
    """Remember the answer; whether it is one that the client does not know yet."""
    asked = told.asked
    if told.is_error:
        asked.told_high_watermark = -1  # so that the end of the error is news
        return True
    is_news = (
        told.has_news
        or asked.told_high_watermark != told.high_watermark
        or asked.told_log_start != told.log_start_offset
    )
    asked.told_high_watermark = told.high_watermark
    asked.told_log_start = told.log_start_offset
    if told.has_records:
        key = asked.topic, asked.index
        moved = session.partitions.pop(key, None)
        if moved is not None:
            session.partitions[key] = moved
    return is_news


def _last_named(asked: Iterable[RequestedPartition]) -> list[RequestedPartition]:
    """Without sessions, as librdkafka fetches, this is done for every partition of every request:
    a topic id is looked at once for all that follow each other."""
    topics: dict[Topic, dict[int, RequestedPartition]] = {}
    topic: Topic | None = None
    named: dict[int, RequestedPartition] = {}
    for each in asked:
        if each.topic is not topic:
            topic = each.topic
            named = topics.setdefault(topic, {})
        named[each.index] = each
    return [each for named in topics.values() for each in named.values()]


class FetchSessions:
    """Every session of one broker. Owned by the event loop's thread."""

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
        asked: Iterable[RequestedPartition],
        forgotten: Iterable[Key] = (),
        by_id: bool = False,
    ) -> FetchContext:
        """What this request fetches. A partition that is named twice counts once, as last named."""
        if epoch == FINAL_EPOCH:
            self._end(session_id)
            return _Sessionless(_last_named(asked))
        named: dict[Key, RequestedPartition] = {(each.topic, each.index): each for each in asked}
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
        return self._go_on(session, named, forgotten)

    def _go_on(
        self, session: FetchSession, named: dict[Key, RequestedPartition], forgotten: Iterable[Key]
    ) -> FetchContext:
        before = len(session.partitions)
        for key, asked in named.items():
            known = session.partitions.setdefault(key, asked)
            if known is not asked:
                known.take(asked)
        for key in forgotten:
            session.partitions.pop(key, None)
        self._partitions += len(session.partitions) - before
        if not session.partitions:  # the client is through with it
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
        """None where it finds no room: the client fetches without a session then."""
        count = len(partitions)
        if not count or self._partitions + count > self._max_partitions:
            return None
        now_ms = self._now_ms()
        if len(self._sessions) >= self._max_sessions and not self._make_room(count, now_ms):
            return None
        session_id = self._new_id()
        while session_id in self._sessions:
            session_id = self._new_id()
        session = FetchSession(session_id, partitions, by_id=by_id, now_ms=now_ms)
        self._sessions[session_id] = session
        self._partitions += count
        return session

    def _make_room(self, newcomer_partitions: int, now_ms: int) -> bool:
        """By the end of the session that was used longest ago, or else of the smallest, if that
        saves less than the newcomer will."""
        oldest = next(iter(self._sessions.values()), None)
        if oldest is None:
            return False
        if now_ms - oldest.used_ms > MIN_AGE_MS:
            self._end(oldest.id)
            return True
        settled = [
            each for each in self._sessions.values() if now_ms - each.created_ms > MIN_AGE_MS
        ]
        smallest = min(settled, key=lambda each: len(each.partitions), default=None)
        if smallest is None or len(smallest.partitions) >= newcomer_partitions:
            return False
        self._end(smallest.id)
        return True

    def _end(self, session_id: int) -> None:
        ended = self._sessions.pop(session_id, None)
        if ended is not None:
            self._partitions -= len(ended.partitions)
