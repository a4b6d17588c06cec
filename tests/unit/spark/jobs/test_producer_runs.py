"""Sequences of producers: gathered range by range, judged together."""

from collections.abc import Sequence
from typing import NamedTuple

from penstock.model.ids import TopicPartition
from penstock.protocol.batch import MAX_SEQUENCE, BatchHeader, read_header
from penstock.protocol.records import Record, build_batch
from penstock.spark.jobs.findings import FindingKind
from penstock.spark.jobs.producer_runs import ProducerRun, ProducerRuns, judge_producers

PARTITION = TopicPartition("t", 0)


class Sent(NamedTuple):
    sequence: int
    size: int = 10
    producer: int = 7
    epoch: int = 0


def headers(*sent: Sent) -> list[BatchHeader]:
    """Batches one after the other in the log."""
    made, offset = [], 0
    for each in sent:
        records = [Record(offset + place, 0, None, b"v") for place in range(each.size)]
        batch = build_batch(
            records,
            base_offset=offset,
            producer_id=each.producer,
            producer_epoch=each.epoch,
            base_sequence=each.sequence,
        )
        made.append(read_header(batch))
        offset += each.size
    return made


def gather(batches: Sequence[BatchHeader], *, compacted: bool = False) -> list[ProducerRun]:
    runs = ProducerRuns(gaps_are_normal=compacted)
    for header in batches:
        runs.take(header)
    return runs.runs()


def judged(*sent: Sent, compacted: bool = False) -> list[tuple[FindingKind, int, int]]:
    """The same findings wherever the log is cut into ranges."""
    batches = headers(*sent)
    outcomes = []
    for cut in range(len(batches) + 1):
        runs = [
            *gather(batches[:cut], compacted=compacted),
            *gather(batches[cut:], compacted=compacted),
        ]
        found = judge_producers(PARTITION, runs, gaps_are_normal=compacted)
        outcomes.append([(each.kind, each.offset, each.last_offset) for each in found])
    assert all(outcome == outcomes[0] for outcome in outcomes)
    return outcomes[0]


def test_a_producer_in_order_is_one_run_among_others() -> None:
    runs = gather(headers(Sent(0), Sent(0, producer=8), Sent(10), Sent(20), Sent(10, producer=8)))
    assert [(run.producer_id, run.first, run.length) for run in runs] == [(7, 0, 30), (8, 0, 20)]


def test_batches_without_a_producer_are_none_of_its_business() -> None:
    assert gather(headers(Sent(-1, producer=-1, epoch=-1))) == []


def test_clean_producers_have_no_findings() -> None:
    assert judged(Sent(0), Sent(5, producer=8), Sent(10), Sent(15, producer=8), Sent(20)) == []


def test_a_batch_that_is_gone_is_missing_before_the_next() -> None:
    assert judged(Sent(0), Sent(20), Sent(30)) == [(FindingKind.MISSING, 10, 10)]


def test_gaps_of_a_compacted_topic_are_normal() -> None:
    assert judged(Sent(0), Sent(20), Sent(50), compacted=True) == []


def test_a_batch_that_came_twice_is_a_duplicate_at_its_second_place() -> None:
    assert judged(Sent(0), Sent(10), Sent(10), Sent(20)) == [(FindingKind.DUPLICATE, 20, 29)]
    assert judged(Sent(0), Sent(10), Sent(10), Sent(20), compacted=True) == [
        (FindingKind.DUPLICATE, 20, 29)
    ]


def test_a_swapped_pair_is_out_of_order_and_nothing_is_missing() -> None:
    assert judged(Sent(0), Sent(20), Sent(10), Sent(30)) == [(FindingKind.ORDER, 20, 29)]


def test_sequences_go_in_a_circle() -> None:
    last = MAX_SEQUENCE - 4
    assert judged(Sent(last - 10), Sent(last), Sent(5), Sent(15)) == []
    assert judged(Sent(last - 10), Sent(last), Sent(last), Sent(5)) == [
        (FindingKind.DUPLICATE, 20, 29)
    ]
    assert judged(Sent(last - 10), Sent(last), Sent(15)) == [(FindingKind.MISSING, 20, 20)]


def test_a_new_epoch_begins_anew_and_an_old_one_may_not_come_back() -> None:
    assert judged(Sent(0), Sent(10), Sent(0, epoch=1), Sent(10, epoch=1)) == []
    assert judged(Sent(0), Sent(0, epoch=1), Sent(10)) == [(FindingKind.EPOCH, 20, 29)]
