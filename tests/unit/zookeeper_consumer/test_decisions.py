"""Where a member starts to read, and when it tries again or gives up."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.client.message import Message
from penstock.model.ids import TopicPartition
from penstock.zookeeper_consumer.decisions import newest_offset, next_retry, start_offset
from penstock.zookeeper_consumer.reading_progress import ReadingProgress

TP = TopicPartition("t", 0)
offsets = st.none() | st.integers(0, 50)


def message(offset: int) -> Message:
    return Message("t", 0, offset, None, b"", (), -1)


@given(st.floats(0, 100), st.integers(0, 10), st.floats(0.01, 5))
def test_a_member_gives_up_after_its_retries_and_never_waits_longer_than_a_back_off(
    failed_for_s: float, max_retries: int, backoff_s: float
) -> None:
    retry = next_retry(failed_for_s=failed_for_s, max_retries=max_retries, backoff_s=backoff_s)
    assert retry.gives_up == (failed_for_s >= max_retries * backoff_s)
    assert 0 <= retry.wait_s <= backoff_s
    if not retry.gives_up:
        assert failed_for_s + retry.wait_s <= max_retries * backoff_s + 1e-6


@given(offsets, offsets, offsets)
def test_a_start_never_skips_what_no_member_is_known_to_have_read(
    stored: int | None, last_stored: int | None, position: int | None
) -> None:
    start = start_offset(stored=stored, last_stored=last_stored, position=position)
    if stored is None:
        assert start is None
    elif start != stored:
        assert start == position  # this member returned everything below it
        assert stored == last_stored  # and nobody has committed since


def test_a_member_reads_on_at_its_position_unless_another_has_committed() -> None:
    assert start_offset(stored=5, last_stored=5, position=9) == 9
    assert start_offset(stored=7, last_stored=5, position=9) == 7
    assert start_offset(stored=5, last_stored=None, position=9) == 5


def test_of_two_stores_the_one_that_is_ahead_counts() -> None:
    assert newest_offset(3, 9) == 9
    assert newest_offset(None, 4) == 4
    assert newest_offset(None, None) is None


def test_a_message_is_done_when_the_program_asks_for_the_next() -> None:
    progress = ReadingProgress()
    progress.assign({TP: 5})
    progress.note_returned([message(5)])
    assert (progress.done, progress.position) == ({}, {TP: 6})
    progress.finish_current()
    assert progress.done == {TP: 6}
    progress.note_returned([message(6)])
    progress.drop_current()  # its processing failed
    progress.finish_current()
    assert progress.done == {TP: 6}


def test_a_message_in_process_stays_done_where_its_partition_is_read_on() -> None:
    progress = ReadingProgress()
    progress.assign({TP: 5})
    progress.note_returned([message(5)])
    progress.assign({TP: 6})
    progress.finish_current()
    assert progress.done == {TP: 6}


def test_a_late_message_does_not_move_another_members_offset_back() -> None:
    progress = ReadingProgress()
    progress.assign({TP: 5})
    progress.note_returned([message(5)])
    progress.assign({})
    progress.assign({TP: 20})  # another member has read on meanwhile
    progress.finish_current()
    assert progress.done == {}


@given(st.lists(st.tuples(st.sampled_from("ahf"), st.integers(0, 30)), max_size=30))
def test_done_stays_between_start_and_position(steps: list[tuple[str, int]]) -> None:
    progress = ReadingProgress()
    for step, number in steps:
        if step == "a":
            progress.assign({TP: number} if number else {})
        elif step == "h" and progress.start_of(TP) >= 0:
            progress.note_returned([message(progress.position[TP])])
        else:
            progress.finish_current()
        if TP in progress.done:
            assert progress.start_of(TP) < progress.done[TP] <= progress.position[TP]
