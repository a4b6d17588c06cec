"""Locks, restarts, lost data and failed disks: the engine as the server sees it."""

from collections.abc import Callable, Iterator

import pytest
from tests.unit.storage.engine.cases import CONFIG, NOW_MS, PARTITION, TOPIC_ID, Case, batch_of
from tests.unit.storage.engine.engines import EngineData

from penstock.model.ids import Offset, TopicPartition
from penstock.storage.engine import Engine
from penstock.storage.errors import DirectoryFailed, DirectoryLocked, LogFenced, StorageError

OTHER = TopicPartition("orders", 4)
ENDINGS: list[Callable[[Engine], None]] = [
    lambda engine: engine.close(),
    lambda engine: engine.abandon(),
]
any_ending = pytest.mark.parametrize("end", ENDINGS, ids=["close", "abandon"])


@pytest.fixture
def engine(engine_data: EngineData) -> Iterator[Engine]:
    """An engine that the tests themselves close."""
    engine = engine_data.make_engine()
    yield engine
    engine.abandon()


def recover(engine: Engine) -> set[TopicPartition]:
    return set(engine.recover(lambda *, done, total: None, NOW_MS))


def ignore(error: StorageError | None) -> None:
    assert error is None


def test_a_lock_keeps_other_engines_out(engine: Engine, engine_data: EngineData) -> None:
    engine.lock()
    engine.lock()  # a second call is harmless
    other = engine_data.make_engine()
    with pytest.raises(DirectoryLocked):
        other.lock()
    with pytest.raises(DirectoryLocked):
        recover(other)
    other.abandon()
    assert recover(engine) == set()


@any_ending
def test_an_engine_that_has_ended_holds_no_lock(
    engine: Engine, engine_data: EngineData, end: Callable[[Engine], None]
) -> None:
    recover(engine)
    end(engine)
    engine.abandon()  # a second call is harmless
    other = engine_data.make_engine()
    other.lock()
    other.abandon()


@any_ending
def test_logs_of_an_engine_that_has_ended_are_fenced(
    case: Case, end: Callable[[Engine], None]
) -> None:
    case.fill(1)
    end(case.engine)
    assert isinstance(case.try_append(batch_of(1)), LogFenced)
    errors: list[StorageError | None] = []
    case.engine.flush(case.log, Offset(1), errors.append)
    assert isinstance(errors[0], LogFenced)


@any_ending
def test_a_restart_finds_flushed_records(
    case: Case, engine_data: EngineData, end: Callable[[Engine], None]
) -> None:
    case.fill(2, 3)
    case.engine.flush(case.log, Offset(5), ignore)
    end(case.engine)
    restarted = engine_data.make_engine()
    logs = restarted.recover(lambda *, done, total: None, NOW_MS)
    log = logs[PARTITION]
    assert log.topic_id == TOPIC_ID
    assert (log.log_start_offset, log.log_end_offset) == (0, 5)
    assert restarted.missing() == set()
    restarted.close()


def test_partitions_without_their_data_are_missing(case: Case, engine_data: EngineData) -> None:
    case.engine.create(OTHER, TOPIC_ID, CONFIG, NOW_MS)
    case.fill(1)
    case.engine.close()
    engine_data.lose(PARTITION)
    restarted = engine_data.make_engine()
    assert restarted.missing() == set()  # nothing is read before `recover`
    assert recover(restarted) == {OTHER}
    assert restarted.missing() == {PARTITION}
    restarted.create(PARTITION, TOPIC_ID, CONFIG, NOW_MS, is_new=False)
    assert restarted.missing() == set()
    restarted.close()


def test_a_deleted_partition_is_not_missing(case: Case, engine_data: EngineData) -> None:
    case.fill(1)
    case.engine.delete(PARTITION)
    case.engine.close()
    restarted = engine_data.make_engine()
    assert recover(restarted) == set()
    assert restarted.missing() == set()
    restarted.close()


def test_an_engine_works_until_all_its_disks_fail(case: Case, engine_data: EngineData) -> None:
    case.engine.check_any_works()
    case.engine.close()
    engine_data.fail()
    failed = engine_data.make_engine()
    failed.lock()
    with pytest.raises(DirectoryFailed):
        failed.check_any_works()
    assert len(failed.statistics().failed_directories) == 1
    with pytest.raises(DirectoryFailed):
        recover(failed)
    failed.abandon()
