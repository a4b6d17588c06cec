"""Engines with few descriptors: how many files reads and flushes hold at once."""

from tests.unit.storage.several_logs import FIRST, SECOND, Deferred, EngineHarness

from penstock.model.ids import Offset, TopicPartition
from penstock.storage.engine import Read
from penstock.storage.log import SegmentedLog


def read(log: SegmentedLog, *, at_least_one: bool) -> Read:
    return log.read(Offset(0), below=log.log_end_offset, max_bytes=1000, at_least_one=at_least_one)


def test_only_the_first_read_of_a_fetch_may_exceed_the_descriptor_bound() -> None:
    harness = EngineHarness(descriptors=1)
    logs = [harness.create(FIRST), harness.create(SECOND)]
    for log in logs:
        harness.append(log)
    held = read(logs[0], at_least_one=True)
    assert not read(logs[1], at_least_one=False).slices
    first = read(logs[1], at_least_one=True)
    assert first.slices
    first.lease.release()
    held.lease.release()
    assert read(logs[1], at_least_one=False).slices


def test_a_flush_round_leaves_half_of_the_descriptors_to_readers() -> None:
    background = Deferred()
    harness = EngineHarness(background=background, descriptors=6)
    logs = [harness.create(TopicPartition("t", number)) for number in range(10)]
    for log in logs:
        harness.append(log)
    answers = [harness.flush(log) for log in logs]
    background.waiting.pop(0)()  # the first round has one log, queued while none was running
    background.waiting.pop(0)()
    assert sum(bool(answer) for answer in answers) == 1 + 3
    background.drain()
    assert answers == [[None]] * 10
