"""Fetching a damaged range from an in-memory log that responds like a broker."""

import asyncio
import struct
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from itertools import accumulate
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.spark.jobs.log_samples import PARTITION, SIZE, batches, ranges, reported

from penstock.client.data_calls import FetchedPartition, FetchFrom, ListedOffset
from penstock.client.errors import OutOfTime, RefusedByBroker
from penstock.model.errors import ErrorCode
from penstock.model.ids import LeaderEpoch, Offset, TopicPartition
from penstock.protocol.batch import (
    HEADER_BYTES,
    LEADER_EPOCH_POSITION,
    LOG_OVERHEAD,
    MAGIC,
    MAGIC_POSITION,
    Buffer,
    stamp_offset_and_epoch,
)
from penstock.spark.connect.connections import BlockingClient
from penstock.spark.jobs.range_audit import RangeAudit
from penstock.spark.jobs.range_reading import RangeReader
from penstock.spark.jobs.verdict import Verdict, conclude

INDEXED = 40  # offsets per index entry
STEP = struct.Struct(">qi4xb6xi")  # base offset, length, magic, last offset delta
LEAST_LENGTH = HEADER_BYTES - LOG_OVERHEAD


class FakeBroker:
    """Finds batches by scanning headers from an index entry on, and sends the bytes unchanged."""

    def __init__(self, log: Sequence[Buffer], *, start: int = 0, reply_bytes: int = 800) -> None:
        self.data = b"".join(log)
        self.end = len(log) * SIZE
        self.first = start
        self.reply_bytes = reply_bytes
        self.fetched: list[int] = []
        sizes = [0, *accumulate(len(batch) for batch in log)]
        # Keyed by the last offset of a batch, like a segment's offset index.
        indexed = range(INDEXED, self.end, INDEXED)
        self.index = {0: 0} | {base + SIZE - 1: sizes[base // SIZE] for base in indexed}

    def start(
        self, work: Callable[[Any], Awaitable[list[FetchedPartition]]]
    ) -> "Future[list[FetchedPartition]]":
        future: Future[list[FetchedPartition]] = Future()
        try:
            future.set_result(asyncio.run(_await(work(self))))
        except OutOfTime as error:
            future.set_exception(error)
        return future

    def list_offsets(self, wanted: dict[TopicPartition, int]) -> dict[TopicPartition, ListedOffset]:
        listed = ListedOffset(Offset(self.first), -1, LeaderEpoch(-1))
        return dict.fromkeys(wanted, listed)

    async def fetch(self, wanted: Sequence[FetchFrom], **_: object) -> list[FetchedPartition]:
        (fetch,) = wanted
        self.fetched.append(fetch.offset)
        if fetch.offset < self.first:
            return [self._reply(ErrorCode.OFFSET_OUT_OF_RANGE, b"")]
        position, size = self._find(fetch.offset)
        end = position + max(size, self.reply_bytes)
        return [self._reply(ErrorCode.NONE, self.data[position:end])]

    def _find(self, offset: int) -> tuple[int, int]:
        position = self.index[max(entry for entry in self.index if entry <= offset)]
        while position < len(self.data):
            rest = len(self.data) - position
            if rest < STEP.size:
                raise _corrupt()
            base, length, magic, delta = STEP.unpack_from(self.data, position)
            size = length + LOG_OVERHEAD
            if magic != MAGIC or length < LEAST_LENGTH or delta < 0 or size > rest:
                raise _corrupt()
            if base + delta >= offset:
                return position, size
            position += size
        return position, 0

    def _reply(self, error: ErrorCode, batches: bytes) -> FetchedPartition:
        edge = Offset(self.end)
        return FetchedPartition(
            PARTITION, error, edge, edge, Offset(self.first), (), memoryview(batches)
        )


def _corrupt() -> OutOfTime:
    error = OutOfTime("no success in time")
    error.__cause__ = RefusedByBroker("fetch", ErrorCode.CORRUPT_MESSAGE)
    return error


async def _await(work: Awaitable[list[FetchedPartition]]) -> list[FetchedPartition]:
    return await work


def read(broker: FakeBroker, *, cuts: Sequence[int] = ()) -> Verdict:
    tasks = ranges(broker.end, cuts=cuts)
    reports = []
    for task in tasks:
        audit = RangeAudit(task)
        for reply in RangeReader(cast("BlockingClient", broker), audit):
            assert reply.fetched
        reports.append(audit.report())
    return conclude(tasks, reports)


@pytest.mark.parametrize("cuts", [[], [35], [60, 95]], ids=str)
def test_clean_log_is_fetched_once_and_completely(cuts: list[int]) -> None:
    broker = FakeBroker(batches(12))
    verdict = read(broker, cuts=cuts)
    assert verdict.findings == []
    assert verdict.totals[0].records == 120
    if not cuts:
        assert broker.fetched == sorted(set(broker.fetched))
        assert len(broker.fetched) == 3


def test_damaged_batch_at_the_end_of_a_response_is_skipped() -> None:
    for batch_index in range(12):
        log = batches(12)
        log[batch_index][HEADER_BYTES + 5] ^= 1
        verdict = read(FakeBroker(log), cuts=[60])
        assert reported(verdict) == [("crc", batch_index * SIZE, batch_index * SIZE + SIZE - 1)]
        assert verdict.totals[0].records == 110


@pytest.mark.parametrize("batch_index", [0, 2, 5, 11])
def test_unreadable_batches_are_skipped_and_reported(batch_index: int) -> None:
    log = batches(12)
    log[batch_index][MAGIC_POSITION] = 7
    verdict = read(FakeBroker(log))
    first = batch_index * SIZE
    found_again = min((first // INDEXED + 1) * INDEXED, 120)
    assert reported(verdict) == [("unreadable", first, found_again - 1)]
    assert "magic 7" in verdict.findings[0].message or batch_index in (0, 5)
    assert verdict.totals[0].records == 120 - (found_again - first)


def test_corrupt_offset_that_misleads_the_broker_is_reported_once() -> None:
    log = batches(12)
    stamp_offset_and_epoch(log[5], 0, 10**9, 0)
    verdict = read(FakeBroker(log))
    assert reported(verdict) == [("order", 50, 59)]
    assert verdict.totals[0].records == 110


def test_deletion_by_retention_during_the_audit_is_not_a_problem() -> None:
    verdict = read(FakeBroker(batches(12), start=50))
    assert reported(verdict) == [("deleted", 0, 49)]
    assert verdict.totals[0].problems == 0
    assert verdict.totals[0].records == 70


def test_log_that_ends_early_is_reported_as_missing() -> None:
    broker = FakeBroker(batches(4))
    (task,) = ranges(60)
    audit = RangeAudit(task)
    for _ in RangeReader(cast("BlockingClient", broker), audit, retry_s=0):
        pass
    assert reported(conclude([task], [audit.report()])) == [("missing", 40, 59)]


BYTES = min(len(batch) for batch in batches(12))
# The CRC does not cover the leader epoch: any single value of it is plausible.
EPOCH = range(LEADER_EPOCH_POSITION, MAGIC_POSITION)
POSITIONS = [position for position in range(BYTES) if position not in EPOCH]


@settings(deadline=None)
@given(
    st.integers(0, 11),
    st.sampled_from(POSITIONS),
    st.integers(0, 7),
    st.sampled_from([(), (35,), (60, 95)]),
)
def test_any_flipped_bit_is_reported_at_its_batch(
    batch_index: int, position: int, bit: int, cuts: tuple[int, ...]
) -> None:
    log = batches(12)
    broker = FakeBroker(log)
    log[batch_index][position] ^= 1 << bit
    broker.data = b"".join(log)
    first = batch_index * SIZE
    verdict = read(broker, cuts=cuts)
    assert verdict.totals[0].problems
    assert any(
        finding.offset < first + SIZE and finding.last_offset >= first
        for finding in verdict.findings
    ), verdict.findings
