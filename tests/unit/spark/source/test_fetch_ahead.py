"""Fetching a range: requests ahead, gaps, losses.

The log is an in-memory fake that responds like a broker, so that it can have any gap and any error.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from typing import Any, cast

import pytest

from penstock.client.data_calls import (
    EARLIEST,
    FetchedPartition,
    FetchFrom,
    IsolationLevel,
    ListedOffset,
)
from penstock.client.errors import ClientError, OutOfTime, RefusedByBroker
from penstock.model.errors import ErrorCode
from penstock.model.ids import LeaderEpoch, Offset, TopicPartition
from penstock.protocol.records import Record, build_batch
from penstock.spark.connect.connections import BlockingClient
from penstock.spark.errors import DataLoss, SparkSourceError
from penstock.spark.source.fetch_ahead import FetchAhead, FetchConfig, FetchedPiece, next_offset
from penstock.spark.source.plan import OffsetRange

TP = TopicPartition("t", 0)
CONFIG = FetchConfig(
    isolation=IsolationLevel.READ_UNCOMMITTED,
    fails_on_data_loss=True,
    poll_timeout_ms=0,
    fetch_bytes=8 * 1024 * 1024,
)


class FakeLog:
    """Batches as (first offset, last offset); a response holds one batch."""

    def __init__(
        self, *batches: tuple[int, int], start: int = 0, end: int, stable: int | None = None
    ) -> None:
        self.batches = batches
        self.start_offset = start
        self.end = end
        self.stable = end if stable is None else stable
        self.error = ErrorCode.NONE
        self.failure: ClientError | None = None  # raised by every fetch
        self.requests: list[FetchFrom] = []
        self.cancelled = 0

    # Like a BlockingClient.

    def start(
        self, work: Callable[[Any], Awaitable[list[FetchedPartition]]]
    ) -> "Future[list[FetchedPartition]]":
        future: Future[list[FetchedPartition]] = _CountingFuture(self)
        if self.failure is not None:
            future.set_exception(self.failure)
            return future
        future.set_result(asyncio.run(_await(work(self))))
        return future

    def list_offsets(self, wanted: dict[TopicPartition, int]) -> dict[TopicPartition, ListedOffset]:
        return {
            tp: ListedOffset(
                Offset(self.start_offset if which == EARLIEST else self.end), -1, LeaderEpoch(-1)
            )
            for tp, which in wanted.items()
        }

    # Like a ClusterClient.

    async def fetch(self, wanted: Sequence[FetchFrom], **_: object) -> list[FetchedPartition]:
        (request,) = wanted
        self.requests.append(request)
        error = self.error
        if error is ErrorCode.NONE and not self.start_offset <= request.offset <= self.end:
            error = ErrorCode.OFFSET_OUT_OF_RANGE
        batches = b"" if error else self._read(request.offset)
        return [
            FetchedPartition(
                TP,
                error,
                Offset(self.end),
                Offset(self.stable),
                Offset(self.start_offset),
                (),
                memoryview(batches),
            )
        ]

    def _read(self, offset: int) -> bytes:
        for first, last in self.batches:
            if last >= offset:
                records = [Record(number, 0, None, b"v") for number in range(first, last + 1)]
                return bytes(build_batch(records, base_offset=first))
        return b""


class _CountingFuture(Future[list[FetchedPartition]]):
    def __init__(self, log: FakeLog) -> None:
        super().__init__()
        self._log = log

    def cancel(self) -> bool:
        self._log.cancelled += 1
        return super().cancel()


async def _await(work: Awaitable[list[FetchedPartition]]) -> list[FetchedPartition]:
    return await work


def pieces(log: FakeLog, start: int, end: int, config: FetchConfig = CONFIG) -> list[FetchedPiece]:
    client = cast("BlockingClient", log)
    return list(FetchAhead(client, OffsetRange(TP, start, end), config))


def bounds(fetched: Sequence[FetchedPiece]) -> list[tuple[int, int]]:
    return [(piece.start, piece.end) for piece in fetched]


def test_pieces_cover_the_range_in_order() -> None:
    log = FakeLog((0, 4), (5, 9), (10, 14), end=15)
    assert bounds(pieces(log, 2, 12)) == [(2, 5), (5, 10), (10, 12)]


def test_next_request_is_in_flight_before_a_piece_is_decoded() -> None:
    log = FakeLog((0, 4), (5, 9), end=10)
    fetching = iter(FetchAhead(cast("BlockingClient", log), OffsetRange(TP, 0, 10), CONFIG))
    next(fetching)
    assert [fetch_from.offset for fetch_from in log.requests] == [0, 5]
    next(fetching)
    assert len(log.requests) == 2  # nothing is left to fetch


def test_leaving_the_loop_cancels_the_request_in_flight() -> None:
    log = FakeLog((0, 4), (5, 9), end=10)
    wanted = OffsetRange(TP, 0, 10)
    fetching = FetchAhead(cast("BlockingClient", log), wanted, CONFIG).__iter__()
    next(fetching)
    fetching.close()  # type: ignore[attr-defined] # it is a generator
    assert log.cancelled == 1


def test_range_that_was_started_is_read_from_its_first_request() -> None:
    log = FakeLog((0, 4), end=5)
    fetching = FetchAhead(cast("BlockingClient", log), OffsetRange(TP, 0, 5), CONFIG)
    fetching.start()
    assert [fetch_from.offset for fetch_from in log.requests] == [0]
    assert bounds(list(fetching)) == [(0, 5)]
    assert len(log.requests) == 1


def test_range_that_was_started_in_vain_is_cancelled_once() -> None:
    log = FakeLog((0, 4), end=5)
    fetching = FetchAhead(cast("BlockingClient", log), OffsetRange(TP, 0, 5), CONFIG)
    fetching.start()
    fetching.cancel()
    assert log.cancelled == 1


def test_gaps_are_skipped() -> None:
    log = FakeLog((3, 4), (8, 9), end=20)
    assert bounds(pieces(log, 0, 10)) == [(0, 5), (5, 10)]


def test_gap_up_to_the_log_end_ends_the_range() -> None:
    log = FakeLog((0, 4), end=20)
    assert bounds(pieces(log, 0, 20)) == [(0, 5)]
    assert len(log.requests) == 3  # the second may have been sent before a record arrived


def test_gap_at_the_end_of_the_range_is_skipped() -> None:
    log = FakeLog((0, 4), (50, 60), end=61)
    assert bounds(pieces(log, 0, 20)) == [(0, 5), (5, 20)]


def test_deleted_offsets_fail_or_are_skipped() -> None:
    log = FakeLog((8, 9), start=8, end=10)
    with pytest.raises(DataLoss, match="offsets 2 to 7 of t-0 are deleted"):
        pieces(log, 2, 10)
    lenient = CONFIG._replace(fails_on_data_loss=False)
    assert bounds(pieces(log, 2, 10, lenient)) == [(8, 10)]
    assert pieces(log, 2, 5, lenient) == []


def test_truncated_log_fails_or_is_skipped() -> None:
    lenient = CONFIG._replace(fails_on_data_loss=False)
    shorter = FakeLog((0, 4), end=5)
    with pytest.raises(DataLoss, match="t-0 ends at offset 5 and did not reach 9"):
        pieces(shorter, 0, 9)
    assert bounds(pieces(shorter, 0, 9, lenient)) == [(0, 5)]
    with pytest.raises(DataLoss, match="t-0 ends at offset 5, before offset 7"):
        pieces(shorter, 7, 9)
    assert pieces(shorter, 7, 9, lenient) == []


def test_waits_for_records_that_are_not_visible_yet() -> None:
    committed = CONFIG._replace(isolation=IsolationLevel.READ_COMMITTED, poll_timeout_ms=60_000)
    log = FakeLog((0, 4), end=10, stable=5)
    fetching = iter(FetchAhead(cast("BlockingClient", log), OffsetRange(TP, 0, 10), committed))
    next(fetching)
    log.batches, log.stable = ((0, 4), (5, 9)), 10
    assert bounds([*fetching]) == [(5, 10)]


@pytest.mark.parametrize("is_out_of_time", [True, False])
def test_deleted_topic_fails_or_is_skipped(is_out_of_time: bool) -> None:
    log = FakeLog((0, 4), end=5)
    log.failure = RefusedByBroker("fetch", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if is_out_of_time:
        refused, log.failure = log.failure, OutOfTime("fetch took too long")
        log.failure.__cause__ = refused
    with pytest.raises(DataLoss, match="the topic of t-0 was deleted"):
        pieces(log, 0, 5)
    assert pieces(log, 0, 5, CONFIG._replace(fails_on_data_loss=False)) == []


def test_unreachable_cluster_is_not_data_loss() -> None:
    log = FakeLog((0, 4), end=5)
    log.failure = OutOfTime("fetch took too long")
    with pytest.raises(OutOfTime):
        pieces(log, 0, 5, CONFIG._replace(fails_on_data_loss=False))


def test_other_errors_are_raised() -> None:
    log = FakeLog((0, 4), end=5)
    log.error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    with pytest.raises(SparkSourceError, match=r"cannot read t-0 at offset 0: .*AUTHORIZATION"):
        pieces(log, 0, 5)


def test_requests_are_sized_for_the_rest_of_the_range() -> None:
    log = FakeLog((0, 9_999), (10_000, 10_009), (999_999, 999_999), end=1_000_000)
    pieces(log, 0, 10_020)
    assert [fetch_from.max_bytes for fetch_from in log.requests] == [
        1024 * 1024,
        64 * 1024,
        64 * 1024,
    ]
    log.requests.clear()
    pieces(log, 0, 1_000_000)
    assert log.requests[1].max_bytes == CONFIG.fetch_bytes


def test_truncated_batch_does_not_count() -> None:
    whole = build_batch([Record(0, 0, None, b"v"), Record(1, 0, None, b"v")])
    later = build_batch([Record(2, 0, None, b"v")], base_offset=2)
    assert next_offset(whole + later) == 3
    assert next_offset(whole + later[:-1]) == 2
    assert next_offset(whole[:-1]) is None
