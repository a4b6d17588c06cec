"""Removing or setting aside the files of a segment that has left its log."""

from contextlib import suppress

from penstock.io.disk import Disk
from penstock.storage.segment import Segment
from penstock.storage.segment_file import SUFFIXES, file_name
from penstock.storage.swap import DELETED


def remove_files(disk: Disk, segment: Segment, stage: str = "") -> None:
    """The log file first: what is left without one is swept up at the next start."""
    for suffix in SUFFIXES:
        with suppress(FileNotFoundError):  # the whole folder may go meanwhile
            disk.unlink(f"{segment.directory}/{file_name(segment.base_offset, suffix)}{stage}")


def set_files_aside(disk: Disk, segment: Segment) -> None:
    for suffix in SUFFIXES:
        path = f"{segment.directory}/{file_name(segment.base_offset, suffix)}"
        if disk.exists(path):
            disk.rename(path, path + DELETED)
