"""The offset store, record by record, with transactions in between."""

from penstock.coordinators.group.offsets.store import OffsetStore
from penstock.coordinators.group.records import OffsetKey, OffsetValue
from penstock.model.ids import TopicPartition

GROUP = "g"
KEY = OffsetKey(GROUP, "orders", 0)
T0 = TopicPartition("orders", 0)
PRODUCER = 9


def value(offset: int) -> OffsetValue:
    return OffsetValue(offset, -1, "", 1)


def offset_in(store: OffsetStore) -> int | None:
    value = store.find(GROUP, T0)
    return None if value is None else value.offset


def test_a_group_exists_while_it_has_an_offset() -> None:
    store = OffsetStore()
    assert not store.has_group(GROUP)
    store.replay(KEY, value(1), record_offset=0)
    assert store.groups() == {GROUP}
    store.replay(KEY, None, record_offset=1)
    assert store.snapshot() == OffsetStore().snapshot()


def test_pending_offsets_take_effect_when_the_transaction_commits() -> None:
    store = OffsetStore()
    store.replay(KEY, value(1), record_offset=0)
    store.replay(KEY, value(2), record_offset=1, producer_id=PRODUCER)
    assert offset_in(store) == 1
    assert store.pending_of(GROUP) == {T0}
    store.end_transaction(PRODUCER, commit=True)
    assert offset_in(store) == 2
    assert store.pending_of(GROUP) == set()


def test_pending_offsets_of_an_aborted_transaction_are_dropped() -> None:
    store = OffsetStore()
    store.replay(KEY, value(2), record_offset=1, producer_id=PRODUCER)
    assert store.has_group(GROUP)
    store.end_transaction(PRODUCER, commit=False)
    assert store.snapshot() == OffsetStore().snapshot()


def test_the_later_record_wins_over_the_later_marker() -> None:
    store = OffsetStore()
    store.replay(KEY, value(2), record_offset=1, producer_id=PRODUCER)
    store.replay(KEY, value(3), record_offset=2)
    store.end_transaction(PRODUCER, commit=True)
    assert offset_in(store) == 3  # as after compaction


def test_a_deletion_also_removes_pending_offsets() -> None:
    store = OffsetStore()
    store.replay(KEY, value(2), record_offset=1, producer_id=PRODUCER)
    store.replay(KEY, None, record_offset=2)
    store.end_transaction(PRODUCER, commit=True)
    assert store.snapshot() == OffsetStore().snapshot()


def test_the_end_of_a_transaction_without_offsets_changes_nothing() -> None:
    store = OffsetStore()
    store.end_transaction(PRODUCER, commit=True)
    assert store.snapshot() == OffsetStore().snapshot()
