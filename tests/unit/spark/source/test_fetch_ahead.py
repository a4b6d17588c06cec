"""Fetching a range: requests ahead, gaps, losses. The log is a twin in memory that answers as a
broker does, so that it can have any gap and any error.
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

PARTITION = TopicPartition("t", 0)
RULES = FetchConfig(
    isolation=IsolationLevel.READ_UNCOMMITTED,
    fails_on_data_loss=True,
    poll_timeout_ms=0,
    fetch_bytes=8 * 1024 * 1024,
)


class TwinLog:
    """Batches as (first offset, last offset); a reply holds one batch."""

    def __init__(
        self, *batches: tuple[int, int], start: int = 0, end: int, stable: int | None = None
    ) -> None:
        self.batches = batches
        self.start_offset = start
        self.end = end
        self.stable = end if stable is None else stable
        self.error = ErrorCode.NONE
        self.failure: ClientError | None = None  # of every fetch
        self.asked: list[FetchFrom] = []
        self.cancelled = 0

    # As a BlockingClient.

    def start(
        self, work: Callable[[Any], Awaitable[list[FetchedPartition]]]
    ) -> "Future[list[FetchedPartition]]":
        future: Future[list[FetchedPartition]] = _Counting(self)
        if self.failure is not None:
            future.set_exception(self.failure)
            return future
        future.set_result(asyncio.run(_awaited(work(self))))
        return future

    def list_offsets(self, wanted: dict[TopicPartition, int]) -> dict[TopicPartition, ListedOffset]:
        return {
            each: ListedOffset(
                Offset(self.start_offset if which == EARLIEST else self.end), -1, LeaderEpoch(-1)
            )
            for each, which in wanted.items()
        }

    # As a ClusterClient.

    async def fetch(self, wanted: Sequence[FetchFrom], **_: object) -> list[FetchedPartition]:
        (asked,) = wanted
        self.asked.append(asked)
        error = self.error
        if error is ErrorCode.NONE and not self.start_offset <= asked.offset <= self.end:
            error = ErrorCode.OFFSET_OUT_OF_RANGE
        found = b"" if error else self._read(asked.offset)
        return [
            FetchedPartition(
                PARTITION,
                error,
                Offset(self.end),
                Offset(self.stable),
                Offset(self.start_offset),
                (),
                memoryview(found),
            )
        ]

    def _read(self, offset: int) -> bytes:
        for first, last in self.batches:
            if last >= offset:
                records = [Record(number, 0, None, b"v") for number in range(first, last + 1)]
                return bytes(build_batch(records, base_offset=first))
        return b""


class _Counting(Future[list[FetchedPartition]]):
    def __init__(self, log: TwinLog) -> None:
        super().__init__()
        self._log = log

    def cancel(self) -> bool:
        self._log.cancelled += 1
        return super().cancel()


async def _awaited(work: Awaitable[list[FetchedPartition]]) -> list[FetchedPartition]:
    return await work


def pieces(log: TwinLog, start: int, end: int, rules: FetchConfig = RULES) -> list[FetchedPiece]:
    client = cast("BlockingClient", log)
    return list(FetchAhead(client, OffsetRange(PARTITION, start, end), rules))


def places(found: Sequence[FetchedPiece]) -> list[tuple[int, int]]:
    return [(piece.start, piece.end) for piece in found]


def test_pieces_follow_each_other_to_the_end() -> None:
    log = TwinLog((0, 4), (5, 9), (10, 14), end=15)
    assert places(pieces(log, 2, 12)) == [(2, 5), (5, 10), (10, 12)]


def test_the_next_request_is_under_way_before_a_piece_is_decoded() -> None:
    log = TwinLog((0, 4), (5, 9), end=10)
    found = iter(FetchAhead(cast("BlockingClient", log), OffsetRange(PARTITION, 0, 10), RULES))
    next(found)
    assert [fetch_from.offset for fetch_from in log.asked] == [0, 5]
    next(found)
    assert len(log.asked) == 2  # nothing is left to ask for


def test_ended_early_it_gives_up_what_it_asked_for() -> None:
    log = TwinLog((0, 4), (5, 9), end=10)
    wanted = OffsetRange(PARTITION, 0, 10)
    found = FetchAhead(cast("BlockingClient", log), wanted, RULES).__iter__()
    next(found)
    found.close()  # type: ignore[attr-defined] # it is a generator
    assert log.cancelled == 1


def test_gaps_are_passed_over() -> None:
    log = TwinLog((3, 4), (8, 9), end=20)
    assert places(pieces(log, 0, 10)) == [(0, 5), (5, 10)]


def test_a_gap_up_to_the_end_of_the_log_is_an_end() -> None:
    log = TwinLog((0, 4), end=20)
    assert places(pieces(log, 0, 20)) == [(0, 5)]
    assert len(log.asked) == 3  # once more than needed: it may have crossed with a record


def test_a_gap_at_the_end_of_the_range_is_passed_over() -> None:
    log = TwinLog((0, 4), (50, 60), end=61)
    assert places(pieces(log, 0, 20)) == [(0, 5), (5, 20)]


def test_deleted_offsets_fail_or_are_passed_over() -> None:
    log = TwinLog((8, 9), start=8, end=10)
    with pytest.raises(DataLoss, match="offsets 2 to 7 of t-0 are deleted"):
        pieces(log, 2, 10)
    lenient = RULES._replace(fails_on_data_loss=False)
    assert places(pieces(log, 2, 10, lenient)) == [(8, 10)]
    assert pieces(log, 2, 5, lenient) == []


def test_a_log_that_became_shorter_fails_or_is_passed_over() -> None:
    lenient = RULES._replace(fails_on_data_loss=False)
    shorter = TwinLog((0, 4), end=5)
    with pytest.raises(DataLoss, match="t-0 ends at offset 5 and did not reach 9"):
        pieces(shorter, 0, 9)
    assert places(pieces(shorter, 0, 9, lenient)) == [(0, 5)]
    with pytest.raises(DataLoss, match="t-0 ends at offset 5, before 7"):
        pieces(shorter, 7, 9)
    assert pieces(shorter, 7, 9, lenient) == []


def test_records_that_are_not_visible_yet_are_waited_for() -> None:
    committed = RULES._replace(isolation=IsolationLevel.READ_COMMITTED, poll_timeout_ms=60_000)
    log = TwinLog((0, 4), end=10, stable=5)
    found = iter(FetchAhead(cast("BlockingClient", log), OffsetRange(PARTITION, 0, 10), committed))
    next(found)
    log.batches, log.stable = ((0, 4), (5, 9)), 10
    assert places([*found]) == [(5, 10)]


@pytest.mark.parametrize("is_out_of_time", [True, False])
def test_a_topic_that_was_deleted_fails_or_is_passed_over(is_out_of_time: bool) -> None:
    log = TwinLog((0, 4), end=5)
    log.failure = RefusedByBroker("fetch", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if is_out_of_time:
        refused, log.failure = log.failure, OutOfTime("fetch took too long")
        log.failure.__cause__ = refused
    with pytest.raises(DataLoss, match="t-0 is gone: its topic was deleted"):
        pieces(log, 0, 5)
    assert pieces(log, 0, 5, RULES._replace(fails_on_data_loss=False)) == []


def test_a_cluster_that_cannot_be_asked_is_no_loss() -> None:
    log = TwinLog((0, 4), end=5)
    log.failure = OutOfTime("fetch took too long")
    with pytest.raises(OutOfTime):
        pieces(log, 0, 5, RULES._replace(fails_on_data_loss=False))


def test_other_errors_are_told() -> None:
    log = TwinLog((0, 4), end=5)
    log.error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    with pytest.raises(SparkSourceError, match=r"t-0 cannot be read at offset 0: .*AUTHORIZATION"):
        pieces(log, 0, 5)


def test_requests_ask_for_about_what_is_left() -> None:
    log = TwinLog((0, 9_999), (10_000, 10_009), (999_999, 999_999), end=1_000_000)
    pieces(log, 0, 10_020)
    assert [fetch_from.max_bytes for fetch_from in log.asked] == [1024 * 1024, 64 * 1024, 64 * 1024]
    log.asked.clear()
    pieces(log, 0, 1_000_000)
    assert log.asked[1].max_bytes == RULES.fetch_bytes


def test_a_batch_that_is_cut_off_does_not_count() -> None:
    whole = build_batch([Record(0, 0, None, b"v"), Record(1, 0, None, b"v")])
    later = build_batch([Record(2, 0, None, b"v")], base_offset=2)
    assert next_offset(whole + later) == 3
    assert next_offset(whole + later[:-1]) == 2
    assert next_offset(whole[:-1]) is None
