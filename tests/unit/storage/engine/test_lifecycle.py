"""Creating, flushing, deleting and reconfiguring logs."""

from uuid import UUID

import pytest
from tests.unit.storage.engine.cases import (
    CONFIG,
    NOW_MS,
    PARTITION,
    TOPIC_ID,
    Case,
    batch_of,
    of_producer,
)

from penstock.config.log_config import LogConfig
from penstock.model.ids import (
    InvalidPartition,
    InvalidTopicName,
    Offset,
    TopicId,
    TopicPartition,
)
from penstock.storage.errors import (
    LogFenced,
    PartitionExists,
    RecordTooLarge,
    StorageError,
    UnknownPartition,
)


def test_a_flush_is_done_when_the_offset_is_durable(case: Case) -> None:
    case.fill(3)
    answers: list[StorageError | None] = []
    case.engine.flush(case.log, Offset(3), answers.append)
    assert answers == [None]
    assert case.log.durable_offset == 3
    case.engine.flush(case.log, Offset(1), answers.append)
    assert answers == [None, None]


def test_a_partition_is_created_once_and_deleted_once(case: Case) -> None:
    engine = case.engine
    with pytest.raises(PartitionExists):
        engine.create(PARTITION, TOPIC_ID, CONFIG, NOW_MS)
    engine.delete(PARTITION)
    with pytest.raises(UnknownPartition):
        engine.delete(PARTITION)
    assert engine.statistics().logs == ()
    engine.create(PARTITION, TopicId(UUID(int=12)), CONFIG, NOW_MS)


def test_a_deleted_log_accepts_no_more_appends(case: Case) -> None:
    case.fill(1)
    case.engine.delete(PARTITION)
    assert isinstance(case.try_append(batch_of(1)), LogFenced)
    answers: list[StorageError | None] = []
    case.engine.flush(case.log, Offset(1), answers.append)
    assert isinstance(answers[0], LogFenced)


def test_statistics_show_the_offsets_of_the_log(case: Case) -> None:
    case.fill(2, 2)
    case.append(of_producer(0, transactional=True))
    case.advance(5)
    case.log.delete_before(Offset(1))
    [seen] = case.engine.statistics().logs
    assert seen.tp == PARTITION
    assert (seen.log_start_offset, seen.last_stable_offset) == (1, 4)
    assert (seen.high_watermark, seen.log_end_offset) == (5, 5)
    assert seen.size_bytes == 2 * len(batch_of(2)) + len(of_producer(0, transactional=True))
    assert (seen.producers, seen.fenced) == (1, None)


def test_a_config_change_takes_effect_with_the_next_append(case: Case) -> None:
    case.log.reconfigure(LogConfig(max_message_bytes=90))
    assert isinstance(case.try_append(batch_of(3)), RecordTooLarge)


def test_jobs_keep_records_within_retention(case: Case) -> None:
    case.fill(*[2] * 9)
    case.advance(18)
    for now_ms in (NOW_MS, NOW_MS + 10**6):
        for job in case.engine.due_jobs(now_ms):
            job.run(lambda function: function())
    case.check()
    assert case.log.log_start_offset == 0


@pytest.mark.parametrize("number", [-1, 2**31, 10**30])
def test_a_partition_number_has_31_bits(case: Case, number: int) -> None:
    with pytest.raises(InvalidPartition, match=str(number)):
        case.engine.create(TopicPartition("orders", number), TOPIC_ID, CONFIG, NOW_MS)
    case.engine.create(TopicPartition("orders", 2**31 - 1), TOPIC_ID, CONFIG, NOW_MS)


@pytest.mark.parametrize("topic", ["", "..", "a/b", "x" * 250])
def test_a_topic_name_must_be_a_valid_folder_name(case: Case, topic: str) -> None:
    with pytest.raises(InvalidTopicName):
        case.engine.create(TopicPartition(topic, 0), TOPIC_ID, CONFIG, NOW_MS)
