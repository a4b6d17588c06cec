"""How offset 1016 is found, step by step on real files: `python examples/find_offset.py`.

Writes a log whose segments begin at 0, 1000 and 3500, and looks a record up as a broker does: by
the names of the files, by the segment's .index, and by a short scan of its .log. The steps read the
files by themselves; the log's own look-up must come to the same place. The exit code is 0 only if
it does, for every offset.
"""

import shutil
import struct
import tempfile
from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

from penstock.config.log_config import LogConfig, StorageConfig
from penstock.logs.event_logger import NO_LOGGER
from penstock.model.ids import LeaderEpoch, Offset, TopicId, TopicPartition
from penstock.protocol.records import Record, build_batch, iter_records
from penstock.storage.engine import AppendItem, PartitionLog
from penstock.storage.errors import StorageError
from penstock.storage.segmented_engine import SegmentedEngine

WANTED = 1016
SEGMENTS = (0, 1000, 3500)  # where they begin
END = 4000
# 1000 batches of 500 bytes fill a segment, and so do 2500 of 200.
CONFIG = LogConfig(segment_bytes=500_000, index_interval_bytes=1000)
BATCH_BYTES = {0: 500, 1000: 200, 3500: 200}
EMPTY_BATCH_BYTES = len(build_batch([Record(0, 0, None, b"")]))
NOW_MS = 1_700_000_000_000
INDEX_ENTRY = struct.Struct(">II")  # relative offset, position in the .log
BATCH_START = struct.Struct(">qi")  # base offset, bytes that follow


class LookUp(NamedTuple):
    segment: int
    position: int
    scanned_bytes: int  # of the .log, before the batch


def main() -> None:
    home = Path(tempfile.mkdtemp(prefix="penstock-find-"))
    try:
        engine = SegmentedEngine(
            StorageConfig(log_dirs=(str(home),)), config_of=lambda topic: CONFIG, logger=NO_LOGGER
        )
        engine.recover(lambda *, done, total: None, NOW_MS)
        log = engine.create(TopicPartition("orders", 0), TopicId(uuid4()), CONFIG, NOW_MS)
        write(engine, log)
        engine.close()  # indexes of open segments are in memory
        explain(home / "orders-0")
        check_all(home)
    finally:
        shutil.rmtree(home)
    print("\nAll steps held.")


def write(engine: SegmentedEngine, log: PartitionLog) -> None:
    """One record in each batch, of a size that begins the next segment where we want it."""
    for offset in range(END):
        value = record_of(offset).ljust(
            size_of(offset) - EMPTY_BATCH_BYTES - 2, b"."
        )  # lengths of more than 63 take a byte more
        batch = build_batch([Record(0, NOW_MS + offset, None, value)])
        assert len(batch) == size_of(offset), (len(batch), offset)
        (result,) = engine.append([AppendItem(log, memoryview(batch), LeaderEpoch(0))], NOW_MS)
        if isinstance(result, StorageError):
            raise result
    log.advance_high_watermark(log.log_end_offset)


def size_of(offset: int) -> int:
    return BATCH_BYTES[SEGMENTS[bisect_right(SEGMENTS, offset) - 1]]


def record_of(offset: int) -> bytes:
    return b"order %d" % offset


# -- The look-up -----------------------------------------------------------------------------------


def explain(folder: Path) -> None:
    print(f"Offset {WANTED} in {folder.name}, whose segments are")
    for base in segments_of(folder):
        print(f"  {base:020}.log  {log_of(folder, base).stat().st_size:>7,} bytes,", end=" ")
        print(f"{len(entries_of(folder, base)):>3} index entries")

    bases = segments_of(folder)
    at = bisect_right(bases, WANTED) - 1
    base = bases[at]
    print("\n1. Which segment? A file has the name of its first offset. By bisection:")
    print(f"   the last name that is not above {WANTED} is {base:020}")

    relative = WANTED - base
    print(f"\n2. Within it: {WANTED} - {base} = {relative}")

    entries = entries_of(folder, base)
    print("\n3. Where in the file, about? Its .index says for some offsets where their batch is:")
    for entry in entries[:5]:
        print(f"   {entry[0]:>4}: {entry[1]}")
    print(f"   ... {len(entries)} entries of {INDEX_ENTRY.size} bytes, one for about")
    print(f"   {CONFIG.index_interval_bytes} bytes of log. By bisection:")
    low, high = 0, len(entries)
    while low < high:
        middle = (low + high) // 2
        is_above = entries[middle][0] > relative
        print(f"   {entries[middle][0]:>6} {'> ' if is_above else '<='} {relative}")
        low, high = (low, middle) if is_above else (middle + 1, high)
    start = entries[low - 1][1] if low else 0
    print(f"   the last entry that is not above {relative} is {entries[low - 1][0]}: {start}")

    print(f"\n4. From position {start} on the batches are read one after the other:")
    for position, offset in batches_from(log_of(folder, base), start):
        print(f"   {position:>6}: offset {offset}")
        if offset == WANTED:
            break
    value = read_value(log_of(folder, base), position)
    print(f"   there it is: {value.decode()}")
    assert value == record_of(WANTED)


def find(folder: Path, wanted: int) -> LookUp:
    """The same without words."""
    bases = segments_of(folder)
    base = bases[bisect_right(bases, wanted) - 1]
    entries = entries_of(folder, base)
    floor = bisect_right(entries, wanted - base, key=lambda entry: entry[0]) - 1
    start = entries[floor][1] if floor >= 0 else 0
    for position, offset in batches_from(log_of(folder, base), start):
        if offset == wanted:
            return LookUp(base, position, position - start)
    raise AssertionError(f"offset {wanted} is not there")


def segments_of(folder: Path) -> list[int]:
    return sorted(int(path.stem) for path in folder.glob("*.log"))


def log_of(folder: Path, base: int) -> Path:
    return folder / f"{base:020}.log"


def entries_of(folder: Path, base: int) -> list[tuple[int, int]]:
    return list(INDEX_ENTRY.iter_unpack((folder / f"{base:020}.index").read_bytes()))


def batches_from(log: Path, position: int) -> Iterator[tuple[int, int]]:
    """Positions and first offsets. A batch begins with its offset and its length."""
    with log.open("rb") as file:
        file.seek(position)
        while start := file.read(BATCH_START.size):
            offset, length = BATCH_START.unpack(start)
            yield position, offset
            position = file.seek(length, 1)


def read_value(log: Path, position: int) -> bytes:
    with log.open("rb") as file:
        file.seek(position)
        start = file.read(BATCH_START.size)
        batch = start + file.read(BATCH_START.unpack(start)[1])
    (record,) = iter_records(batch)
    return (record.value or b"").rstrip(b".")


# -- Every other offset, and the look-up of the log itself -----------------------------------------


def check_all(home: Path) -> None:
    engine = SegmentedEngine(
        StorageConfig(log_dirs=(str(home),)), config_of=lambda topic: CONFIG, logger=NO_LOGGER
    )
    log = engine.recover(lambda *, done, total: None, NOW_MS)[TopicPartition("orders", 0)]
    folder = home / "orders-0"
    assert segments_of(folder) == list(SEGMENTS)
    most = 0
    for offset in range(0, END, 7):
        look_up = find(folder, offset)
        most = max(most, look_up.scanned_bytes)
        assert look_up.segment == SEGMENTS[bisect_right(SEGMENTS, offset) - 1]
        assert read_value(log_of(folder, look_up.segment), look_up.position) == record_of(offset)
        piece = log.read(Offset(offset), below=log.log_end_offset, max_bytes=1, at_least_one=True)
        (file_slice,) = piece.slices
        assert file_slice.position == look_up.position
        piece.lease.release()
    engine.close()
    assert most <= CONFIG.index_interval_bytes + max(BATCH_BYTES.values())
    print(f"\nThe log finds every offset at the same position. At most {most} bytes were scanned,")
    print("however long the log is.")


if __name__ == "__main__":
    main()
