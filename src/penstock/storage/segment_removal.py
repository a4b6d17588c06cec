"""Removes or renames the files of a segment that is no longer part of its log."""

from contextlib import suppress

from penstock.io.disk import Disk
from penstock.storage.segment import Segment
from penstock.storage.segment_file import SUFFIXES, file_name
from penstock.storage.swap import DELETED


def remove_files(disk: Disk, segment: Segment, state: str = "") -> None:
    """Remove the log file first, because the next start removes indexes without one."""
    for suffix in SUFFIXES:
        with suppress(FileNotFoundError):  # the whole folder may be removed meanwhile
            disk.unlink(f"{segment.directory}/{file_name(segment.base_offset, suffix)}{state}")


def set_files_aside(disk: Disk, segment: Segment) -> None:
    for suffix in SUFFIXES:
        path = f"{segment.directory}/{file_name(segment.base_offset, suffix)}"
        if disk.exists(path):
            disk.rename(path, path + DELETED)
