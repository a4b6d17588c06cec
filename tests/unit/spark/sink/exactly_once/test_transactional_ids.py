"""Transactional ids: their owners, and which one a task may use."""

import time

from penstock.spark.sink.exactly_once.transactional_ids import (
    MicroBatchId,
    TransactionalIdPool,
    driver_transactional_id,
    find_abandoned_after_ms,
    find_created_ms,
    find_query,
    is_batch_query,
    new_batch_query,
)

QUERY = "6b1f6bb0-3d2f-4a0c-9a59-0f9f6a3a5c11"


def take(
    pool: TransactionalIdPool, batch: int, *, run: str | None = "r1", query: str = QUERY
) -> str:
    return pool.take(MicroBatchId(query, run, batch), abandoned_after_ms=60_000)


def test_query_is_found_in_the_ids_of_tasks_only() -> None:
    assert find_query(take(TransactionalIdPool("p"), 0)) == QUERY
    assert find_query(driver_transactional_id(QUERY)) is None
    assert find_query("orders-service") is None
    assert find_query("penstock-spark:") is None


def test_id_of_a_task_says_when_its_query_counts_as_dead() -> None:
    assert find_abandoned_after_ms(take(TransactionalIdPool("p"), 0)) == 60_000
    foreign = ("orders:1:2:60000", driver_transactional_id(QUERY), "penstock-spark:q:p:1")
    assert [find_abandoned_after_ms(name) for name in foreign] == [None] * 3


def test_id_of_a_batch_write_says_when_it_began() -> None:
    before_ms = time.time_ns() // 1_000_000
    created_ms = find_created_ms(new_batch_query())
    assert created_ms is not None
    assert before_ms <= created_ms <= time.time_ns() // 1_000_000
    assert find_created_ms(QUERY) is None
    assert find_created_ms(f"batch-{QUERY}") is None


def test_tasks_of_one_batch_never_share_an_id() -> None:
    pool = TransactionalIdPool("p")
    ids = [take(pool, 4) for _ in range(5)]
    assert len(set(ids)) == 5


def test_ids_are_reused_after_their_batch() -> None:
    pool = TransactionalIdPool("p")
    first = {take(pool, 4) for _ in range(3)}
    assert {take(pool, 5) for _ in range(3)} == first
    assert take(pool, 5) not in first


def test_ids_of_another_run_are_not_reused_because_their_commits_may_be_pending() -> None:
    pool = TransactionalIdPool("p")
    before = take(pool, 4, run="r1")
    assert take(pool, 4, run="r2") != before
    assert take(pool, 5, run="r2") != before


def test_late_task_of_an_earlier_batch_gets_no_id_of_a_later_batch() -> None:
    pool = TransactionalIdPool("p")
    later = take(pool, 5)
    assert take(pool, 4) != later


def test_ids_are_never_reused_when_the_run_is_unknown() -> None:
    pool = TransactionalIdPool("p")
    assert len({take(pool, batch, run=None) for batch in range(5)}) == 5


def test_processes_and_queries_share_no_ids() -> None:
    other = new_batch_query()
    one, two = TransactionalIdPool("p"), TransactionalIdPool("q")
    assert len({take(one, 1), take(two, 1), take(one, 1, query=other)}) == 3
    assert is_batch_query(other)
    assert not is_batch_query(QUERY)
