"""Fetches the raw batches of an offset range, with the next request in flight while one is decoded.

Decodes nothing. Invariant: every offset of the range is in a response, a real gap in the log, or
reported as lost.
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
_DELETED = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)
_FIRST_BYTES = 1024 * 1024
_MIN_BYTES = 64 * 1024
_MARGIN = 1.25  # the next records may be larger than the last ones
_MAX_WAIT_MS = 500
_EMPTY_RESPONSES_OF_GAP = 2  # one may have been sent before records arrived


class FetchConfig(NamedTuple):
    isolation: IsolationLevel
    fails_on_data_loss: bool
    poll_timeout_ms: int
    fetch_bytes: int


class FetchedPiece(NamedTuple):
    """One response: its records from `start` up to `end`."""

    start: int
    end: int  # where the next piece starts, within the range
    fetched: FetchedPartition


class FetchAhead:
    """`for piece in FetchAhead(client, wanted, config)`; leaving the loop cancels the request."""

    def __init__(self, client: BlockingClient, wanted: OffsetRange, config: FetchConfig) -> None:
        self._client = client
        self._wanted = wanted
        self._config = config
        self._max_bytes = min(_FIRST_BYTES, config.fetch_bytes)
        self._empty_responses = 0  # in a row
        self._waiting_since = time.monotonic()
        self._first: Future[list[FetchedPartition]] | None = None

    def start(self) -> None:
        """Sends the first request, although nothing is to be decoded yet."""
        if self._wanted.size:
            self._first = self._request(self._wanted.start)

    def cancel(self) -> None:
        """For one that was started and is not needed; no effect on one that was read."""
        if self._first is not None:
            self._first.cancel()

    def __iter__(self) -> Iterator[FetchedPiece]:
        offset, end = self._wanted.start, self._wanted.end
        self._waiting_since = time.monotonic()
        response, self._first = self._first, None
        try:
            while offset < end:
                response = response or self._request(offset)
                fetched, response = self._wait(response), None
                if fetched is None:
                    return
                following = min(end, self._following(offset, fetched))
                if fetched.batches and following > offset:
                    self._adapt(fetched, following - offset, end - following)
                    response = self._request(following) if following < end else None
                    yield FetchedPiece(offset, following, fetched)
                    self._waiting_since = time.monotonic()
                offset = following
        finally:
            if response is not None:
                response.cancel()

    def _request(self, offset: int) -> "Future[list[FetchedPartition]]":
        tp, topic_id = self._wanted.tp, self._wanted.topic_id
        wanted = [FetchFrom(tp, Offset(offset), self._max_bytes)]
        topic_ids = {} if topic_id is None else {tp.topic: topic_id}
        return self._client.start(
            lambda client: client.fetch(
                wanted,
                isolation=self._config.isolation,
                max_wait_ms=_MAX_WAIT_MS,
                max_bytes=self._max_bytes,
                topic_ids=topic_ids,
            )
        )

    def _wait(self, response: "Future[list[FetchedPartition]]") -> FetchedPartition | None:
        """None: the topic was deleted, and failOnDataLoss is false."""
        try:
            (fetched,) = response.result()
        except ClientError as error:
            if not _is_deleted(error):
                raise
            self._report_loss(f"the topic of {self._wanted.tp} was deleted")
            return None
        return fetched

    def _adapt(self, fetched: FetchedPartition, offsets: int, left: int) -> None:
        """Request about as many bytes as the rest of the range needs, because a small batch of a
        large backlog would otherwise fetch far too much."""
        expected = int(len(fetched.batches) / offsets * left * _MARGIN)
        self._max_bytes = min(max(expected, _MIN_BYTES), self._config.fetch_bytes)

    def _following(self, offset: int, fetched: FetchedPartition) -> int:
        """The offset to continue with; the same one if it must be fetched again."""
        if fetched.error is ErrorCode.OFFSET_OUT_OF_RANGE:
            return self._after_loss(offset)
        if fetched.error in _DELETED:
            self._report_loss(f"the topic of {self._wanted.tp} was deleted")
            return self._wanted.end
        if fetched.error is not ErrorCode.NONE:
            raise SparkSourceError(
                f"cannot read {self._wanted.tp} at offset {offset}: "
                f"{fetched.error.message} ({fetched.error.name})"
            )
        following = next_offset(fetched.batches)
        if following is not None and following > offset:
            self._empty_responses = 0
            return following
        return self._after_empty(offset, fetched)

    def _after_empty(self, offset: int, fetched: FetchedPartition) -> int:
        """Below the visible end, an empty response is a gap, as compaction leaves; above, wait."""
        is_committed = self._config.isolation is IsolationLevel.READ_COMMITTED
        visible = fetched.last_stable_offset if is_committed else fetched.high_watermark
        if visible >= self._wanted.end:
            self._empty_responses += 1
            is_gap = self._empty_responses >= _EMPTY_RESPONSES_OF_GAP
            return self._wanted.end if is_gap else offset
        waited_ms = (time.monotonic() - self._waiting_since) * 1000
        if waited_ms < self._config.poll_timeout_ms:
            return offset
        self._report_loss(
            f"{self._wanted.tp} ends at offset {visible} and did not reach "
            f"{self._wanted.end} within kafkaConsumer.pollTimeoutMs={self._config.poll_timeout_ms}"
        )
        return self._wanted.end

    def _after_loss(self, offset: int) -> int:
        tp = self._wanted.tp
        earliest, latest = self._find_edges()
        if earliest > offset:
            self._report_loss(f"offsets {offset} to {earliest - 1} of {tp} are deleted")
            return earliest
        if latest < offset:
            self._report_loss(
                f"{tp} ends at offset {latest}, before offset {offset} which is to be read"
            )
            return self._wanted.end
        return offset

    def _find_edges(self) -> tuple[int, int]:
        tp = self._wanted.tp
        earliest = self._client.list_offsets({tp: EARLIEST})
        latest = self._client.list_offsets({tp: LATEST})
        return earliest[tp].offset, latest[tp].offset

    def _report_loss(self, loss: str) -> None:
        if self._config.fails_on_data_loss:
            raise DataLoss(loss)
        _log.warning("%s; continuing because failOnDataLoss is false", loss)


def _is_deleted(error: ClientError) -> bool:
    """Also true when the client has retried until its timeout."""
    reason = error.__cause__ if isinstance(error, OutOfTime) else error
    return isinstance(reason, RefusedByBroker) and reason.code in _DELETED


def next_offset(batches: Buffer) -> int | None:
    """One past the last whole batch."""
    last = None
    for _, header in iter_headers(batches):
        last = header
    return None if last is None else last.next_offset
