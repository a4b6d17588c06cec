"""Checks a partition's folder whose files may come and go meanwhile, because a broker serves it.

Not the check itself: see `verify_partition`. Invariant: a problem is reported only if the files
stood still while they were read, or if no change of files explains it.
"""

from dataclasses import replace

from penstock.io.disk import Disk
from penstock.storage.findings import LogFindings
from penstock.storage.log_files import FileKind, FileName, parse_name
from penstock.storage.verify_partition import PartitionCheck

MAX_ATTEMPTS = 5
# Damage within a file: no removal or replacement of files looks like it.
_OF_CONTENT = frozenset({"crc", "damage", "header", "records"})

Signature = dict[str, int]  # names of files, with the sizes of logs


def check_running(check: PartitionCheck) -> int | None:
    """The log end offset; None if the folder holds no log. FileNotFoundError if it is gone."""
    findings, progress = check.findings, check.progress
    for _ in range(MAX_ATTEMPTS):
        before = _list_files(check.disk, check.directory)
        attempt = replace(check, findings=LogFindings(), progress=progress)
        end_offset = attempt.run()
        if stood_still(before, _list_files(check.disk, check.directory)):
            findings.absorb(attempt.findings)
            return end_offset
        progress = _no_progress  # these bytes were counted
    findings.absorb(attempt.findings, is_wanted=lambda finding: finding.kind in _OF_CONTENT)
    findings.note(
        "changing",
        check.directory,
        f"a broker removed or replaced files during each of {MAX_ATTEMPTS} attempts, so only the "
        "batches were checked; try again when it has less to do",
    )
    return end_offset


def stood_still(before: Signature, after: Signature) -> bool:
    """Whether nothing changed but what appends do: the last log grew, and newer files came."""
    newest = max(_log_bases(before), default=-1)
    for name in before.keys() | after.keys():
        parsed = parse_name(name)
        if parsed.base_offset is not None and parsed.base_offset > newest:
            continue
        if name not in before or name not in after:
            return False
        is_growing = parsed.base_offset == newest and not parsed.leftover
        if after[name] < before[name] or (after[name] > before[name] and not is_growing):
            return False
    return True


def _list_files(disk: Disk, directory: str) -> Signature:
    """Files whose names hold an offset; a log's size is -1 if it vanishes meanwhile."""
    names = [parse_name(entry.name) for entry in disk.list(directory)]
    return {
        name.name: _size(disk, f"{directory}/{name.name}", name)
        for name in names
        if name.base_offset is not None
    }


def _size(disk: Disk, path: str, name: FileName) -> int:
    if name.kind is not FileKind.LOG:
        return 0
    try:
        return disk.size_of(path)
    except FileNotFoundError:
        return -1


def _log_bases(signature: Signature) -> list[int]:
    names = [parse_name(name) for name in signature]
    return [
        name.base_offset
        for name in names
        if name.kind is FileKind.LOG and not name.leftover and name.base_offset is not None
    ]


def _no_progress(count: int) -> None:
    pass
