"""Checks the batches that a read returns: where the first damaged one is, if any.

For a leader whose follower refuses what it fetched. Reads the file, so that it sees what a follower
gets; `verify` checks whole folders.
"""

from penstock.io.disk import Disk, read_fully
from penstock.model.ids import Offset
from penstock.protocol.batch import CorruptBatch, check_header, is_crc_valid, iter_headers
from penstock.storage.engine import DamagedBatch, Read


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
