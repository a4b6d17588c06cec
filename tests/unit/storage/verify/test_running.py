"""Verification while a broker appends, removes and replaces files."""

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.unit.storage.sample_logs import Writer, fill, open_engine, write_sample

from penstock.io.disk import DirectoryEntry, RealDisk
from penstock.storage.verify import verify_directory
from penstock.storage.verify_running import MAX_ATTEMPTS, Signature, stood_still


def file(base_offset: int, suffix: str) -> str:
    return f"{base_offset:020}{suffix}"


BEFORE = {file(0, ".log"): 100, file(0, ".index"): 0, file(9, ".log"): 50, file(9, ".index"): 0}


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        (BEFORE, True),
        (BEFORE | {file(9, ".log"): 60}, True),  # appended
        (BEFORE | {file(20, ".log"): 0, file(20, ".index"): 0}, True),  # rolled
        (BEFORE | {file(9, ".log"): 40}, False),  # truncated
        (BEFORE | {file(0, ".log"): 90}, False),  # compacted
        (BEFORE | {file(0, ".log.cleaned"): 0}, False),
        (BEFORE | {file(9, ".snapshot"): 0}, False),
        ({file(9, ".log"): 50, file(9, ".index"): 0}, False),  # removed by retention
    ],
)
def test_only_appends_leave_a_log_unchanged(after: Signature, expected: bool) -> None:
    assert stood_still(BEFORE, after) is expected


def test_no_file_is_missing_while_a_broker_serves_the_log(tmp_path: Path) -> None:
    engine = open_engine(tmp_path)
    fill(Writer(engine))
    findings = verify_directory(tmp_path)
    engine.close()
    assert len(list(tmp_path.glob("t-0/*.log"))) > 2
    assert [str(finding) for finding in findings.all] == []


class _ChangingDisk(RealDisk):
    """Calls back before a partition's folder is listed, or a file is opened."""

    def __init__(
        self,
        on_list: Callable[[], None] = lambda: None,
        on_open: Callable[[str], None] = lambda path: None,
    ) -> None:
        super().__init__()
        self._on_list = on_list
        self._on_open = on_open

    def list(self, path: str) -> list[DirectoryEntry]:
        if path.endswith("t-0"):
            self._on_list()
        return super().list(path)

    def open(self, path: str, flags: int) -> int:
        self._on_open(path)
        return super().open(path, flags)


def test_segments_removed_by_retention_meanwhile_are_no_problem(tmp_path: Path) -> None:
    write_sample(tmp_path)
    first, second, third, *_ = sorted(tmp_path.glob("t-0/*.log"))

    def remove(path: str) -> None:
        if path == str(second.with_suffix(".index")):
            for log in (first, second):
                for name in tmp_path.glob(f"t-0/{log.stem}.*"):
                    name.unlink()

    findings = verify_directory(tmp_path, _ChangingDisk(on_open=remove))
    assert not second.exists()
    assert [str(finding) for finding in findings.problems] == []
    kept = verify_directory(tmp_path)
    assert (findings.batches, findings.files) == (kept.batches, kept.files)
    assert third.exists()


def test_a_partition_that_is_deleted_meanwhile_is_a_note(tmp_path: Path) -> None:
    write_sample(tmp_path)
    (tmp_path / ".kafka_cleanshutdown").unlink()

    def delete(path: str) -> None:
        folder = tmp_path / "t-0"
        if path.startswith(str(folder)) and folder.exists():
            folder.rename(tmp_path / f"t-0.{'0' * 32}-delete")

    findings = verify_directory(tmp_path, _ChangingDisk(on_open=delete))
    assert [finding.kind for finding in findings.all][:1] == ["gone"]
    assert findings.is_clean


def test_a_log_that_changes_all_the_time_is_still_checked_for_damage(tmp_path: Path) -> None:
    write_sample(tmp_path)
    log = sorted(tmp_path.glob("t-0/*.log"))[1]
    log.with_suffix(".index").unlink()  # a change may explain it
    content = log.read_bytes()
    log.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    numbers = iter(range(100))

    def replace() -> None:
        (tmp_path / "t-0" / file(next(numbers), ".log.deleted")).touch()

    findings = verify_directory(tmp_path, _ChangingDisk(on_list=replace))
    assert [(problem.kind, problem.path) for problem in findings.problems] == [("crc", str(log))]
    (changing,) = [note for note in findings.notes if note.kind == "changing"]
    assert f"during each of {MAX_ATTEMPTS} attempts" in changing.message
    assert {problem.kind for problem in verify_directory(tmp_path).problems} == {"crc", "missing"}
