"""Engines with few descriptors: how many files reads and flushes hold at once."""

from tests.unit.storage.several_logs import FIRST, SECOND, Deferred, Shelf

from penstock.model.ids import Offset, TopicPartition
from penstock.storage.engine import Read
from penstock.storage.log import SegmentedLog


def read(log: SegmentedLog, *, at_least_one: bool) -> Read:
    return log.read(Offset(0), below=log.log_end_offset, max_bytes=1000, at_least_one=at_least_one)


def test_only_the_first_read_of_a_fetch_may_exceed_the_descriptor_bound() -> None:
    shelf = Shelf(descriptors=1)
    logs = [shelf.create(FIRST), shelf.create(SECOND)]
    for log in logs:
        shelf.append(log)
    held = read(logs[0], at_least_one=True)
    assert not read(logs[1], at_least_one=False).slices
    first = read(logs[1], at_least_one=True)
    assert first.slices
    first.lease.release()
    held.lease.release()
    assert read(logs[1], at_least_one=False).slices


def test_a_round_of_flushes_leaves_half_of_the_descriptors_to_readers() -> None:
    background = Deferred()
    shelf = Shelf(background=background, descriptors=6)
    logs = [shelf.create(TopicPartition("t", number)) for number in range(10)]
    for log in logs:
        shelf.append(log)
    answers = [shelf.flush(log) for log in logs]
    background.waiting.pop(0)()  # the first round: one log, which came when none was running
    background.waiting.pop(0)()
    assert sum(bool(answer) for answer in answers) == 1 + 3
    background.drain()
    assert answers == [[None]] * 10
