"""Transactional ids: whose they are, and which a task may use."""

from penstock.spark.sink.exactly_once.transactional_ids import (
    MicroBatchId,
    TransactionalIdPool,
    driver_transactional_id,
    find_query,
    is_batch_query,
    new_batch_query,
)

QUERY = "6b1f6bb0-3d2f-4a0c-9a59-0f9f6a3a5c11"


def take(
    slots: TransactionalIdPool, batch: int, *, run: str | None = "r1", query: str = QUERY
) -> str:
    return slots.take(MicroBatchId(query, run, batch))


def test_a_task_name_tells_its_query_and_others_tell_none() -> None:
    assert find_query(take(TransactionalIdPool("p"), 0)) == QUERY
    assert find_query(driver_transactional_id(QUERY)) is None
    assert find_query("orders-service") is None
    assert find_query("penstock-spark:") is None


def test_tasks_of_one_batch_never_share_an_id() -> None:
    slots = TransactionalIdPool("p")
    names = [take(slots, 4) for _ in range(5)]
    assert len(set(names)) == 5


def test_ids_are_used_again_when_their_batch_is_over() -> None:
    slots = TransactionalIdPool("p")
    first = {take(slots, 4) for _ in range(3)}
    assert {take(slots, 5) for _ in range(3)} == first
    assert take(slots, 5) not in first


def test_an_id_of_another_run_is_left_alone_since_it_may_be_decided_and_not_ended() -> None:
    slots = TransactionalIdPool("p")
    before = take(slots, 4, run="r1")
    assert take(slots, 4, run="r2") != before
    assert take(slots, 5, run="r2") != before


def test_a_late_task_of_an_earlier_batch_gets_no_id_of_a_later_one() -> None:
    slots = TransactionalIdPool("p")
    later = take(slots, 5)
    assert take(slots, 4) != later


def test_where_the_run_is_not_known_no_id_is_used_twice() -> None:
    slots = TransactionalIdPool("p")
    assert len({take(slots, batch, run=None) for batch in range(5)}) == 5


def test_two_processes_and_two_queries_share_nothing() -> None:
    other = new_batch_query()
    one, two = TransactionalIdPool("p"), TransactionalIdPool("q")
    assert len({take(one, 1), take(two, 1), take(one, 1, query=other)}) == 3
    assert is_batch_query(other)
    assert not is_batch_query(QUERY)
