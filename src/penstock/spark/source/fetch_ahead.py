"""Raw batches of a range of offsets, the next request always under way while one is being decoded.

Decodes nothing. Invariant: every offset of the range is either in a reply, a gap that the log
really has, or reported as lost.
"""

import logging
import time
from collections.abc import Iterator
from concurrent.futures import Future
from typing import NamedTuple

from penstock.client.data_calls import (
    EARLIEST,
    LATEST,
    FetchedPartition,
    FetchFrom,
    IsolationLevel,
)
from penstock.client.errors import ClientError, OutOfTime, RefusedByBroker
from penstock.model.errors import ErrorCode
from penstock.model.ids import Offset
from penstock.protocol.batch import Buffer, iter_headers
from penstock.spark.connect.connections import BlockingClient
from penstock.spark.errors import DataLoss, SparkSourceError
from penstock.spark.source.plan import OffsetRange

_log = logging.getLogger(__name__)
_GONE = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)
_FIRST_BYTES = 1024 * 1024
_LEAST_BYTES = 64 * 1024
_SPARE = 1.25  # records ahead may be larger than those behind
_MAX_WAIT_MS = 500
_ENOUGH_EMPTY_REPLIES = 2  # one may have been on its way while records came


class FetchConfig(NamedTuple):
    isolation: IsolationLevel
    fails_on_data_loss: bool
    poll_timeout_ms: int
    fetch_bytes: int


class FetchedPiece(NamedTuple):
    """One reply: what it holds from `start` on, up to `end`."""

    start: int
    end: int  # where the next piece goes on, in the range
    fetched: FetchedPartition


class FetchAhead:
    """`for piece in FetchAhead(client, wanted, rules)`; ended early, it asks for no more."""

    def __init__(self, client: BlockingClient, wanted: OffsetRange, rules: FetchConfig) -> None:
        self._client = client
        self._wanted = wanted
        self._rules = rules
        self._max_bytes = min(_FIRST_BYTES, rules.fetch_bytes)
        self._empty_replies = 0  # in a row
        self._waiting_since = time.monotonic()

    def __iter__(self) -> Iterator[FetchedPiece]:
        offset, end = self._wanted.start, self._wanted.end
        reply: Future[list[FetchedPartition]] | None = None
        try:
            while offset < end:
                reply = reply or self._ask(offset)
                fetched, reply = self._wait(reply), None
                if fetched is None:
                    return
                following = min(end, self._following(offset, fetched))
                if fetched.batches and following > offset:
                    self._adapt(fetched, following - offset, end - following)
                    reply = self._ask(following) if following < end else None
                    yield FetchedPiece(offset, following, fetched)
                    self._waiting_since = time.monotonic()
                offset = following
        finally:
            if reply is not None:
                reply.cancel()

    def _ask(self, offset: int) -> "Future[list[FetchedPartition]]":
        wanted = [FetchFrom(self._wanted.tp, Offset(offset), self._max_bytes)]
        return self._client.start(
            lambda client: client.fetch(
                wanted,
                isolation=self._rules.isolation,
                max_wait_ms=_MAX_WAIT_MS,
                max_bytes=self._max_bytes,
            )
        )

    def _wait(self, reply: "Future[list[FetchedPartition]]") -> FetchedPartition | None:
        """None: the topic was deleted, and that is to be borne."""
        try:
            (fetched,) = reply.result()
        except ClientError as error:
            if not _is_gone(error):
                raise
            self._lose(f"{self._wanted.tp} is gone: its topic was deleted")
            return None
        return fetched

    def _adapt(self, fetched: FetchedPartition, offsets: int, left: int) -> None:
        """Ask for what the rest of the range is likely to take: a small batch of a large backlog
        would fetch far too much."""
        expected = int(len(fetched.batches) / offsets * left * _SPARE)
        self._max_bytes = min(max(expected, _LEAST_BYTES), self._rules.fetch_bytes)

    def _following(self, offset: int, fetched: FetchedPartition) -> int:
        """The offset to go on with; the same one where it has to be asked for again."""
        if fetched.error is ErrorCode.OFFSET_OUT_OF_RANGE:
            return self._after_loss(offset)
        if fetched.error in _GONE:
            self._lose(f"{self._wanted.tp} is gone: its topic was deleted")
            return self._wanted.end
        if fetched.error is not ErrorCode.NONE:
            raise SparkSourceError(
                f"{self._wanted.tp} cannot be read at offset {offset}: "
                f"{fetched.error.message} ({fetched.error.name})"
            )
        following = next_offset(fetched.batches)
        if following is not None and following > offset:
            self._empty_replies = 0
            return following
        return self._after_nothing(offset, fetched)

    def _after_nothing(self, offset: int, fetched: FetchedPartition) -> int:
        """Nothing below the visible end is a gap (compaction leaves such); above, it is to come."""
        is_committed = self._rules.isolation is IsolationLevel.READ_COMMITTED
        visible = fetched.last_stable_offset if is_committed else fetched.high_watermark
        if visible >= self._wanted.end:
            self._empty_replies += 1
            is_gap = self._empty_replies >= _ENOUGH_EMPTY_REPLIES
            return self._wanted.end if is_gap else offset
        waited_ms = (time.monotonic() - self._waiting_since) * 1000
        if waited_ms < self._rules.poll_timeout_ms:
            return offset
        self._lose(
            f"{self._wanted.tp} ends at offset {visible} and did not reach "
            f"{self._wanted.end} within kafkaConsumer.pollTimeoutMs={self._rules.poll_timeout_ms}"
        )
        return self._wanted.end

    def _after_loss(self, offset: int) -> int:
        partition = self._wanted.tp
        earliest, latest = self._find_edges()
        if earliest > offset:
            self._lose(f"offsets {offset} to {earliest - 1} of {partition} are deleted")
            return earliest
        if latest < offset:
            self._lose(f"{partition} ends at offset {latest}, before {offset} which was to be read")
            return self._wanted.end
        return offset

    def _find_edges(self) -> tuple[int, int]:
        partition = self._wanted.tp
        earliest = self._client.list_offsets({partition: EARLIEST})
        latest = self._client.list_offsets({partition: LATEST})
        return earliest[partition].offset, latest[partition].offset

    def _lose(self, what: str) -> None:
        if self._rules.fails_on_data_loss:
            raise DataLoss(what)
        _log.warning("%s; going on, since failOnDataLoss is false", what)


def _is_gone(error: ClientError) -> bool:
    """Also where the client has asked again until its time was over."""
    reason = error.__cause__ if isinstance(error, OutOfTime) else error
    return isinstance(reason, RefusedByBroker) and reason.code in _GONE


def next_offset(batches: Buffer) -> int | None:
    """One past the last whole batch."""
    last = None
    for _, header in iter_headers(batches):
        last = header
    return None if last is None else last.next_offset
