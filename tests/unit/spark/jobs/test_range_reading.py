"""Reading a range with all its damage: a log in memory that answers as a broker does."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from typing import Any, cast

import pytest
from tests.unit.spark.jobs.log_samples import PARTITION, SIZE, batches, ranges, told

from penstock.client.data_calls import Fetched, FetchFrom, ListedOffset
from penstock.client.errors import OutOfTime, Refused
from penstock.model.errors import ErrorCode
from penstock.model.ids import LeaderEpoch, Offset, TopicPartition
from penstock.protocol.batch import HEADER_BYTES, MAGIC_POSITION, Buffer, read_header
from penstock.spark.connections import BlockingClient
from penstock.spark.jobs.range_audit import RangeAudit
from penstock.spark.jobs.range_reading import RangeReading
from penstock.spark.jobs.verdict import Verdict, conclude

INDEXED = 40  # a twin finds batches behind damage from every such offset on


class TwinBroker:
    """Replies hold some batches; a look-up walks over headers from an indexed offset."""

    def __init__(self, log: Sequence[Buffer], *, start: int = 0, per_reply: int = 3) -> None:
        self.log = list(log)
        self.first = start
        self.per_reply = per_reply
        self.asked: list[int] = []

    def start(self, work: Callable[[Any], Awaitable[list[Fetched]]]) -> "Future[list[Fetched]]":
        future: Future[list[Fetched]] = Future()
        try:
            future.set_result(asyncio.run(_awaited(work(self))))
        except OutOfTime as error:
            future.set_exception(error)
        return future

    def list_offsets(self, wanted: dict[TopicPartition, int]) -> dict[TopicPartition, ListedOffset]:
        listed = ListedOffset(Offset(self.first), -1, LeaderEpoch(-1))
        return dict.fromkeys(wanted, listed)

    async def fetch(self, wanted: Sequence[FetchFrom], **_: object) -> list[Fetched]:
        (asked,) = wanted
        self.asked.append(asked.offset)
        end = len(self.log) * SIZE
        if asked.offset < self.first:
            return [self._reply(ErrorCode.OFFSET_OUT_OF_RANGE, b"", end)]
        place = self._find(asked.offset)
        found = b"".join(self.log[place : place + self.per_reply])
        return [self._reply(ErrorCode.NONE, found, end)]

    def _find(self, offset: int) -> int:
        for place in range(offset // INDEXED * INDEXED // SIZE, len(self.log)):
            if self.log[place][MAGIC_POSITION] != 2:
                refused = Refused("fetch", ErrorCode.CORRUPT_MESSAGE)
                raise OutOfTime("no success in time") from refused
            if read_header(self.log[place]).last_offset >= offset:
                return place
        return len(self.log)

    def _reply(self, error: ErrorCode, found: bytes, end: int) -> Fetched:
        edge = Offset(end)
        return Fetched(PARTITION, error, edge, edge, Offset(self.first), (), memoryview(found))


async def _awaited(work: Awaitable[list[Fetched]]) -> list[Fetched]:
    return await work


def read(broker: TwinBroker, *, cuts: Sequence[int] = ()) -> Verdict:
    asked = ranges(len(broker.log) * SIZE, cuts=cuts)
    reports = []
    for each in asked:
        audit = RangeAudit(each)
        for looked in RangeReading(cast("BlockingClient", broker), audit):
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
        assert broker.asked == [0, 30, 60, 90]


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


def test_what_retention_deletes_meanwhile_is_no_problem() -> None:
    verdict = read(TwinBroker(batches(12), start=50))
    assert told(verdict) == [("deleted", 0, 49)]
    assert verdict.totals[0].problems == 0
    assert verdict.totals[0].records == 70


def test_a_log_that_ends_early_is_told_and_not_waited_for() -> None:
    broker = TwinBroker(batches(4))
    asked = ranges(60)[0]
    audit = RangeAudit(asked)
    for _ in RangeReading(cast("BlockingClient", broker), audit, patience_s=0):
        pass
    assert told(conclude([asked], [audit.report()])) == [("missing", 40, 59)]
