"""A sample log to damage, and the findings of its verification."""

from penstock.protocol.batch import (
    iter_headers,
)
from penstock.storage.findings import LogFinding, LogFindings
from penstock.storage.verify import verify_directory
from penstock.testing.simulated_disk import SimulatedDisk

DATA = "/data"
FOLDER = "/data/t-0"
EPOCHS = f"{FOLDER}/leader-epoch-checkpoint"


def segment_paths(disk: SimulatedDisk, suffix: str = ".log") -> list[str]:
    return sorted(path for path in disk.files() if path.endswith(suffix))


def sealed(disk: SimulatedDisk, suffix: str = ".log") -> str:
    """Return a segment in the middle of the log, with an aborted transaction."""
    log = segment_paths(disk)[2]
    assert log.removesuffix(".log") + ".txnindex" in disk.files()
    return log.removesuffix(".log") + suffix


def active(disk: SimulatedDisk, suffix: str = ".log") -> str:
    return segment_paths(disk)[-1].removesuffix(".log") + suffix


def positions(disk: SimulatedDisk, path: str) -> list[int]:
    return [position for position, _ in iter_headers(disk.files()[path])]


def put(disk: SimulatedDisk, path: str, content: bytes) -> None:
    """Replace the file's content."""
    if path in disk.files():
        disk.cut(path, 0)
    descriptor = disk.open(path, 0o2102)  # O_RDWR | O_CREAT | O_APPEND
    disk.write(descriptor, content)
    disk.close(descriptor)


def flip(disk: SimulatedDisk, path: str, position: int, bit: int = 0) -> None:
    disk.flip_bit(path, position * 8 + bit)


def verify(disk: SimulatedDisk, path: str = DATA, *, records: bool = False) -> LogFindings:
    before = disk.files()
    findings = verify_directory(path, disk, records=records)
    assert disk.files() == before, "a check changes nothing"
    assert disk.open_descriptors == 0
    return findings


def only_problem(disk: SimulatedDisk, *, records: bool = False) -> LogFinding:
    problems = verify(disk, records=records).problems
    assert len(problems) == 1, [str(problem) for problem in problems]
    return problems[0]


def locations_of(findings: LogFindings) -> set[tuple[str, str, int | None]]:
    return {(item.kind, item.path, item.position) for item in findings.problems}
