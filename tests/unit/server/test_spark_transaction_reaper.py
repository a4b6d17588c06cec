"""The reaper counts a Spark query's silence only while it can read the leases."""

import asyncio
from collections.abc import Iterator

from penstock.coordinators.transaction.records import NO_TIMEOUT_MS, State, Transaction
from penstock.logs.event_logger import message_logger
from penstock.server.spark_transaction_reaper import SparkTransactionReaper

QUERY = "6b1f6bb0"
STEP_MS = 1_000
STEPS = 40  # far more than the bound


class OnePrepared:
    """A transaction coordinator with one undecided transaction."""

    def __init__(self, transactional_id: str) -> None:
        self._id = transactional_id

    def iter_prepared(self, prefix: str) -> Iterator[tuple[str, Transaction]]:
        if self._id.startswith(prefix):
            yield (
                self._id,
                Transaction(
                    producer_id=7,
                    producer_epoch=0,
                    timeout_ms=NO_TIMEOUT_MS,
                    state=State.ONGOING,
                    updated_ms=0,
                    started_ms=0,
                ),
            )


def check_often(transactional_id: str, *, has_leases: bool) -> tuple[set[str], list[str]]:
    """The queries that were to be ended, and the reports. The cluster cannot be reached."""
    reports: list[str] = []
    reaper = SparkTransactionReaper(
        OnePrepared(transactional_id),
        find_bootstrap=lambda: None,
        has_leases=lambda: has_leases,
        logger=message_logger(reports.append),
    )

    async def check() -> set[str]:
        return {query for _ in range(STEPS) for query in await reaper.check(STEP_MS)}

    return asyncio.run(check()), reports


def test_silent_query_is_ended() -> None:
    ended, reports = check_often(f"penstock-spark:{QUERY}:p:1:5000", has_leases=False)
    assert (ended, reports) == ({QUERY}, [])


def test_nothing_is_ended_while_the_leases_cannot_be_read() -> None:
    ended, reports = check_often(f"penstock-spark:{QUERY}:p:1:5000", has_leases=True)
    assert ended == set()
    assert "cannot read the leases of Spark queries" in reports[0]


def test_transaction_of_another_producer_is_not_looked_at() -> None:
    assert check_often("billing", has_leases=False) == (set(), [])
