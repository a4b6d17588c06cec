"""Producer sequences: collected range by range, judged per partition."""

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
    """Build headers of consecutive batches in a log."""
    made, offset = [], 0
    for batch_sent in sent:
        records = [Record(offset + index, 0, None, b"v") for index in range(batch_sent.size)]
        batch = build_batch(
            records,
            base_offset=offset,
            producer_id=batch_sent.producer,
            producer_epoch=batch_sent.epoch,
            base_sequence=batch_sent.sequence,
        )
        made.append(read_header(batch))
        offset += batch_sent.size
    return made


def gather(batches: Sequence[BatchHeader], *, compacted: bool = False) -> list[ProducerRun]:
    runs = ProducerRuns(is_compacted=compacted)
    for header in batches:
        runs.take(header)
    return runs.runs()


def judged(*sent: Sent, compacted: bool = False) -> list[tuple[FindingKind, int, int]]:
    """Check that findings are the same wherever the log is split into ranges, and return them."""
    batches = headers(*sent)
    outcomes = []
    for cut in range(len(batches) + 1):
        runs = [
            *gather(batches[:cut], compacted=compacted),
            *gather(batches[cut:], compacted=compacted),
        ]
        anomalies = judge_producers(PARTITION, runs, is_compacted=compacted)
        outcomes.append(
            [(anomaly.kind, anomaly.offset, anomaly.last_offset) for anomaly in anomalies]
        )
    assert all(outcome == outcomes[0] for outcome in outcomes)
    return outcomes[0]


def test_producer_in_order_has_one_run() -> None:
    runs = gather(headers(Sent(0), Sent(0, producer=8), Sent(10), Sent(20), Sent(10, producer=8)))
    assert [(run.producer_id, run.first, run.length) for run in runs] == [(7, 0, 30), (8, 0, 20)]


def test_batches_without_producer_id_are_ignored() -> None:
    assert gather(headers(Sent(-1, producer=-1, epoch=-1))) == []


def test_clean_producers_have_no_findings() -> None:
    assert judged(Sent(0), Sent(5, producer=8), Sent(10), Sent(15, producer=8), Sent(20)) == []


def test_missing_batch_is_reported_at_the_next_one() -> None:
    assert judged(Sent(0), Sent(20), Sent(30)) == [(FindingKind.MISSING, 10, 10)]


def test_gaps_are_normal_on_a_compacted_topic() -> None:
    assert judged(Sent(0), Sent(20), Sent(50), compacted=True) == []


def test_repeated_batch_is_a_duplicate_at_its_second_offset() -> None:
    assert judged(Sent(0), Sent(10), Sent(10), Sent(20)) == [(FindingKind.DUPLICATE, 20, 29)]
    assert judged(Sent(0), Sent(10), Sent(10), Sent(20), compacted=True) == [
        (FindingKind.DUPLICATE, 20, 29)
    ]


def test_swapped_batches_are_out_of_order_and_nothing_is_missing() -> None:
    assert judged(Sent(0), Sent(20), Sent(10), Sent(30)) == [(FindingKind.ORDER, 20, 29)]


def test_sequences_wrap_around() -> None:
    last = MAX_SEQUENCE - 4
    assert judged(Sent(last - 10), Sent(last), Sent(5), Sent(15)) == []
    assert judged(Sent(last - 10), Sent(last), Sent(last), Sent(5)) == [
        (FindingKind.DUPLICATE, 20, 29)
    ]
    assert judged(Sent(last - 10), Sent(last), Sent(15)) == [(FindingKind.MISSING, 20, 20)]


def test_new_epoch_restarts_sequences_and_an_old_epoch_is_reported() -> None:
    assert judged(Sent(0), Sent(10), Sent(0, epoch=1), Sent(10, epoch=1)) == []
    assert judged(Sent(0), Sent(0, epoch=1), Sent(10)) == [(FindingKind.EPOCH, 20, 29)]
