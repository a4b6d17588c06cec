"""`penstock log verify` and `log dump` on the files of the commit log engine."""

import json
from pathlib import Path

import pytest
from tests.unit.storage.engine.cases import CONFIG, NOW_MS, PARTITION, Case
from typer.testing import CliRunner

from penstock.cli.main import app
from penstock.config.log_config import StorageConfig
from penstock.model.ids import Offset
from penstock.storage.commit_log.commit_log_engine import CommitLogEngine
from penstock.storage.findings import LogFindings
from penstock.storage.verify import verify_directory

BATCHES = 200  # more than a checkpoint keeps, so that there is a queue file


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    storage = StorageConfig(log_dirs=(str(tmp_path),), commit_log_file_bytes=9_000)
    case = Case(CommitLogEngine(storage, config_of=lambda topic: CONFIG))
    case.fill(*[2] * BATCHES)
    case.engine.close()
    return tmp_path


def verify(directory: Path) -> LogFindings:
    return verify_directory(directory)


def problems(directory: Path) -> list[str]:
    return [finding.kind for finding in verify(directory).problems]


def first_file(directory: Path) -> Path:
    files = sorted((directory / "commitlog").iterdir())
    assert len(files) > 2
    return files[0]


def test_a_clean_commit_log_has_no_findings(directory: Path) -> None:
    findings = verify(directory)
    assert findings.all == []
    assert findings.batches == BATCHES


def test_a_flipped_bit_is_a_problem_and_later_frames_are_checked(directory: Path) -> None:
    file = first_file(directory)
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    findings = verify(directory)
    assert findings.batches == BATCHES - 1
    assert {finding.kind for finding in findings.problems} == {"frame", "consume-queue"}


def test_a_lost_file_is_a_problem_of_the_queues_that_point_into_it(directory: Path) -> None:
    first_file(directory).unlink()
    assert set(problems(directory)) == {"consume-queue"}


def test_a_torn_end_is_a_note(directory: Path) -> None:
    last = max((directory / "commitlog").iterdir())
    last.write_bytes(last.read_bytes() + b"torn")
    findings = verify(directory)
    assert [finding.kind for finding in findings.notes] == ["torn"]
    assert findings.is_clean


@pytest.mark.parametrize("damage", ["cut", "removed"])
def test_a_damaged_checkpoint_is_a_problem_and_a_start_replays_everything(
    directory: Path, damage: str
) -> None:
    checkpoint = directory / "commitlog-checkpoint"
    if damage == "cut":
        checkpoint.write_bytes(checkpoint.read_bytes()[:-5])
    else:
        checkpoint.unlink()
    assert problems(directory) == ["commit-log-checkpoint"]
    storage = StorageConfig(log_dirs=(str(directory),), commit_log_file_bytes=9_000)
    engine = CommitLogEngine(storage, config_of=lambda topic: CONFIG)
    log = engine.recover(lambda *, done, total: None, NOW_MS)[PARTITION]
    assert (log.log_start_offset, log.log_end_offset) == (0, 2 * BATCHES)
    assert log.find_damage(Offset(0), 10**6) is None
    engine.close()
    assert problems(directory) == []


def test_a_lost_queue_file_is_a_problem(directory: Path) -> None:
    (file,) = (directory / "consumequeue").iterdir()
    file.unlink()
    assert problems(directory) == ["consume-queue"]


def test_verify_exits_with_1_and_dump_lists_frames_and_batches(directory: Path) -> None:
    runner = CliRunner()
    assert runner.invoke(app, ["log", "verify", str(directory)]).exit_code == 0
    dumped = runner.invoke(app, ["log", "dump", "--json", str(directory)])
    assert dumped.exit_code == 0
    lines = [json.loads(line) for line in dumped.stdout.splitlines()]
    text = json.dumps(lines)
    assert text.count('"batch-in-frame"') == BATCHES
    assert '"state"' in text
    first_file(directory).unlink()
    assert runner.invoke(app, ["log", "verify", str(directory)]).exit_code == 1
