"""Checks the batches that a read returns: where the first damaged one is, if any.

For a leader whose follower refuses what it fetched. Reads the file, so that it sees what a follower
gets; `verify` checks whole folders.
"""

from errno import EMFILE, ENFILE, ENOMEM

from penstock.io.disk import Disk, read_fully
from penstock.model.ids import Offset
from penstock.protocol.batch import CorruptBatch, check_header, is_crc_valid, iter_headers
from penstock.storage.engine import DamagedBatch, PartitionLog, Read
from penstock.storage.errors import CorruptRecords


def find_damage(
    log: PartitionLog, disk: Disk, start: Offset, max_bytes: int
) -> DamagedBatch | None:
    """As `PartitionLog.find_damage`."""
    try:
        read = log.read(start, below=log.log_end_offset, max_bytes=max_bytes, at_least_one=True)
        try:
            return find_damaged(disk, read, start)
        finally:
            read.lease.release()
    except CorruptRecords as error:
        return DamagedBatch(start, str(error))
    except OSError as error:
        if error.errno in (EMFILE, ENFILE, ENOMEM):
            raise  # says nothing about the file
        return DamagedBatch(start, f"it cannot be read: {error}")


def find_damaged(disk: Disk, read: Read, start: Offset) -> DamagedBatch | None:
    """The first batch of the read that is not whole; `start` is where the read began."""
    offset = start
    for piece in read.slices:
        content = read_fully(disk, piece.fd, piece.length, piece.position)
        damaged, offset = check_batches(content, offset)
        if damaged is not None:
            return damaged
    return None


def check_batches(content: bytes, offset: Offset) -> tuple[DamagedBatch | None, Offset]:
    """The first damaged batch, and the offset after the last whole one."""
    checked = 0
    try:
        for position, header in iter_headers(content):
            checked = position + header.size
            check_header(header, len(content) - position)
            if not is_crc_valid(content, position, header.size):
                return DamagedBatch(offset, "its CRC does not match"), offset
            if header.last_offset < offset:
                reason = (
                    f"its offsets {header.base_offset} to {header.last_offset} are out of order"
                )
                return DamagedBatch(offset, reason), offset
            offset = Offset(header.next_offset)
    except CorruptBatch as error:
        return DamagedBatch(offset, str(error)), offset
    if checked < len(content):
        return DamagedBatch(
            offset, f"{len(content) - checked} bytes do not form a whole batch"
        ), offset
    return None, offset
