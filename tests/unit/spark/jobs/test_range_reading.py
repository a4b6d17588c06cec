"""Reading a range with all its damage: a log in memory that answers as a broker does."""

import asyncio
import struct
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from itertools import accumulate
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.spark.jobs.log_samples import PARTITION, SIZE, batches, ranges, told

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

INDEXED = 40  # every so many offsets a batch has an index entry
STEP = struct.Struct(">qi4xb6xi")  # base offset, length, magic, last offset delta
LEAST_LENGTH = HEADER_BYTES - LOG_OVERHEAD


class TwinBroker:
    """Finds batches by walking over headers from an index entry on, and sends bytes as they are."""

    def __init__(self, log: Sequence[Buffer], *, start: int = 0, reply_bytes: int = 800) -> None:
        self.data = b"".join(log)
        self.end = len(log) * SIZE
        self.first = start
        self.reply_bytes = reply_bytes
        self.asked: list[int] = []
        sizes = [0, *accumulate(len(each) for each in log)]
        # By the last offset of a batch, as a segment's index has it.
        indexed = range(INDEXED, self.end, INDEXED)
        self.index = {0: 0} | {base + SIZE - 1: sizes[base // SIZE] for base in indexed}

    def start(
        self, work: Callable[[Any], Awaitable[list[FetchedPartition]]]
    ) -> "Future[list[FetchedPartition]]":
        future: Future[list[FetchedPartition]] = Future()
        try:
            future.set_result(asyncio.run(_awaited(work(self))))
        except OutOfTime as error:
            future.set_exception(error)
        return future

    def list_offsets(self, wanted: dict[TopicPartition, int]) -> dict[TopicPartition, ListedOffset]:
        listed = ListedOffset(Offset(self.first), -1, LeaderEpoch(-1))
        return dict.fromkeys(wanted, listed)

    async def fetch(self, wanted: Sequence[FetchFrom], **_: object) -> list[FetchedPartition]:
        (asked,) = wanted
        self.asked.append(asked.offset)
        if asked.offset < self.first:
            return [self._reply(ErrorCode.OFFSET_OUT_OF_RANGE, b"")]
        position, size = self._find(asked.offset)
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

    def _reply(self, error: ErrorCode, found: bytes) -> FetchedPartition:
        edge = Offset(self.end)
        return FetchedPartition(
            PARTITION, error, edge, edge, Offset(self.first), (), memoryview(found)
        )


def _corrupt() -> OutOfTime:
    error = OutOfTime("no success in time")
    error.__cause__ = RefusedByBroker("fetch", ErrorCode.CORRUPT_MESSAGE)
    return error


async def _awaited(work: Awaitable[list[FetchedPartition]]) -> list[FetchedPartition]:
    return await work


def read(broker: TwinBroker, *, cuts: Sequence[int] = ()) -> Verdict:
    asked = ranges(broker.end, cuts=cuts)
    reports = []
    for each in asked:
        audit = RangeAudit(each)
        for looked in RangeReader(cast("BlockingClient", broker), audit):
            assert looked.fetched
        reports.append(audit.report())
    return conclude(asked, reports)


@pytest.mark.parametrize("cuts", [[], [35], [60, 95]], ids=str)
def test_a_clean_log_is_read_once_and_whole(cuts: list[int]) -> None:
    broker = TwinBroker(batches(12))
    verdict = read(broker, cuts=cuts)
    assert verdict.findings == []
    assert verdict.totals[0].records == 120
    if not cuts:
        assert broker.asked == sorted(set(broker.asked))
        assert len(broker.asked) == 3


def test_a_damaged_batch_at_the_end_of_a_reply_is_passed() -> None:
    for place in range(12):
        log = batches(12)
        log[place][HEADER_BYTES + 5] ^= 1
        verdict = read(TwinBroker(log), cuts=[60])
        assert told(verdict) == [("crc", place * SIZE, place * SIZE + SIZE - 1)]
        assert verdict.totals[0].records == 110


@pytest.mark.parametrize("place", [0, 2, 5, 11])
def test_what_no_broker_can_find_is_passed_and_named(place: int) -> None:
    log = batches(12)
    log[place][MAGIC_POSITION] = 7
    verdict = read(TwinBroker(log))
    first = place * SIZE
    found_again = min((first // INDEXED + 1) * INDEXED, 120)
    assert told(verdict) == [("unreadable", first, found_again - 1)]
    assert "magic 7" in verdict.findings[0].message or place in (0, 5)
    assert verdict.totals[0].records == 120 - (found_again - first)


def test_a_wrong_offset_that_draws_the_broker_back_is_told_once() -> None:
    log = batches(12)
    stamp_offset_and_epoch(log[5], 0, 10**9, 0)
    verdict = read(TwinBroker(log))
    assert told(verdict) == [("order", 50, 59)]
    assert verdict.totals[0].records == 110


def test_what_retention_deletes_meanwhile_is_no_problem() -> None:
    verdict = read(TwinBroker(batches(12), start=50))
    assert told(verdict) == [("deleted", 0, 49)]
    assert verdict.totals[0].problems == 0
    assert verdict.totals[0].records == 70


def test_a_log_that_ends_early_is_told_and_not_waited_for() -> None:
    broker = TwinBroker(batches(4))
    (asked,) = ranges(60)
    audit = RangeAudit(asked)
    for _ in RangeReader(cast("BlockingClient", broker), audit, patience_s=0):
        pass
    assert told(conclude([asked], [audit.report()])) == [("missing", 40, 59)]


BYTES = min(len(batch) for batch in batches(12))
# No checksum covers the leader epoch: by itself, one number is as good as another.
EPOCH = range(LEADER_EPOCH_POSITION, MAGIC_POSITION)
POSITIONS = [position for position in range(BYTES) if position not in EPOCH]


@settings(deadline=None)
@given(
    st.integers(0, 11),
    st.sampled_from(POSITIONS),
    st.integers(0, 7),
    st.sampled_from([(), (35,), (60, 95)]),
)
def test_whatever_bit_is_flipped_its_batch_is_named(
    place: int, position: int, bit: int, cuts: tuple[int, ...]
) -> None:
    log = batches(12)
    broker = TwinBroker(log)
    log[place][position] ^= 1 << bit
    broker.data = b"".join(log)
    first = place * SIZE
    verdict = read(broker, cuts=cuts)
    assert verdict.totals[0].problems
    assert any(
        finding.offset < first + SIZE and finding.last_offset >= first
        for finding in verdict.findings
    ), verdict.findings
