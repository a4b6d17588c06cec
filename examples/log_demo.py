"""How a log works, step by step on real files: `python examples/log_demo.py`.

Writes events, looks them up by offset and by time, aborts a transaction, kills a writer, recovers,
compacts, and verifies every file at the end. Each step checks its result: the exit code is 0 only
if all of them hold. KEEP=1 keeps the files.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from uuid import uuid4

from penstock.config.log_config import LogConfig, StorageConfig
from penstock.logs.event_logger import message_logger
from penstock.model.ids import LeaderEpoch, Offset, TimestampMs, TopicId, TopicPartition
from penstock.protocol.batch import HEADER_BYTES, iter_headers
from penstock.protocol.compression import Codec
from penstock.protocol.control import build_end_marker_batch, read_end_marker
from penstock.protocol.records import Record, build_batch, iter_records
from penstock.storage.engine import AppendItem, AppendOrigin, LogAppendInfo, PartitionLog
from penstock.storage.errors import StorageError
from penstock.storage.segmented_engine import SegmentedEngine
from penstock.storage.verify import verify_directory

NOW_MS = int(time.time() * 1000)
DAY_MS = 86_400_000
SMALL = LogConfig(segment_bytes=64 * 1024)  # Kafka's default is 1 GiB; small segments show more
EVENTS = 6_000
BATCH = 20


def main() -> None:
    started = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="penstock-demo-"))
    try:
        write_and_look_up(folder / "data")
        kill_and_recover(folder / "crash")
        compact(folder / "compacted")
        print(f"\nAll steps held, in {time.monotonic() - started:.1f} s.")
    finally:
        if os.environ.get("KEEP"):
            print(f"Files kept. Look around: penstock log dump --deep {folder}/data | less")
        else:
            shutil.rmtree(folder)


# -- 1 to 4: one log, from its first record to a transaction -----------------------------------


def write_and_look_up(data: Path) -> None:
    engine, _ = open_engine(data)
    log = create(engine, "orders")
    write_events(engine, log)
    look_up_by_offset(log)
    look_up_by_time(log)
    abort_a_transaction(engine, log)
    engine.close()
    check(data)


def write_events(engine: SegmentedEngine, log: PartitionLog) -> None:
    title("A log is a file to which batches are appended and never changed")
    codecs = list(Codec)
    before = time.perf_counter()
    for first in range(0, EVENTS, BATCH):
        codec = codecs[first // BATCH % len(codecs)]
        append(engine, log, build_batch(orders(first, BATCH), codec=codec))
    seconds = time.perf_counter() - before
    flush(engine, log)
    statistics = log.statistics()
    say(
        f"{EVENTS:,} events were appended as {EVENTS // BATCH} batches in {seconds * 1000:.0f} ms, "
        f"compressed by the producer with {', '.join(codec.name.lower() for codec in codecs)}.",
        f"The log assigned offsets {log.log_start_offset} to {log.log_end_offset - 1}, and stored "
        f"each batch otherwise unchanged: {statistics.size_bytes:,} bytes.",
        f"It rolled a new segment at {SMALL.segment_bytes // 1024} KiB, {statistics.segments} so "
        f"far. A segment's files are named after its base offset:",
    )
    names = sorted(os.listdir(statistics.directory))
    show(*[f"{name:<34}{size_of(statistics.directory, name):>9,} bytes" for name in names[:8]])
    show(f"... and {len(names) - 8} more")
    expect(log.log_end_offset == EVENTS, "every event has an offset")
    expect(log.durable_offset == EVENTS, "flushed: a power cut would lose none of them")
    expect(
        [r.value for r in read(log)] == [order(i) for i in range(EVENTS)],
        "reading returns the same events",
    )


def look_up_by_offset(log: PartitionLog) -> None:
    title("A read can start at any offset, at the same cost")
    wanted = [Offset(EVENTS * part // 5 + 7) for part in range(5)]
    say("A segment's .index has an entry about every 4096 bytes. To find an offset:")
    say("choose the segment by name, the nearest index entry by bisection, then scan a little.")
    for offset in wanted:
        before = time.perf_counter()
        piece = log.read(offset, below=log.log_end_offset, max_bytes=1, at_least_one=True)
        microseconds = (time.perf_counter() - before) * 1e6
        (file_slice,) = piece.slices
        batch = os.pread(file_slice.fd, file_slice.length, file_slice.position)
        piece.lease.release()
        values = {record.offset: record.value for record in iter_records(batch)}
        position = file_slice.position
        show(f"offset {offset:>5}: batch at byte {position:>6,} in {microseconds:4.0f} us")
        expect(values[offset] == order(offset), f"offset {offset} is event {offset}", quiet=True)
    entries = sum(
        os.path.getsize(path) // 8 for path in Path(log.statistics().directory).glob("*.index")
    )
    expect(entries < EVENTS // BATCH, f"{entries} index entries serve {EVENTS // BATCH} batches")


def look_up_by_time(log: PartitionLog) -> None:
    title("Records are also indexed by time")
    wanted_ms = TimestampMs(NOW_MS + 4_321)
    timed_offset = log.find_by_time(wanted_ms)
    assert timed_offset is not None
    say(
        f"Events are one millisecond apart. The .timeindex and a short scan find the first one at "
        f"or after {wanted_ms} at offset {timed_offset.offset}."
    )
    expect(timed_offset.offset == 4_321, "the event of exactly that millisecond")
    expect(log.find_by_time(TimestampMs(NOW_MS + DAY_MS)) is None, "tomorrow: nothing yet")


def abort_a_transaction(engine: SegmentedEngine, log: PartitionLog) -> None:
    title("An aborted transaction stays in the log, and read_committed readers skip it")
    first = log.log_end_offset
    for producer_id, sequence in ((1, 0), (2, 0), (1, 3)):
        append(engine, log, transactional(producer_id, sequence))
    say(f"Producers 1 and 2 write alternately from offset {first} on, each in a transaction.")
    expect(log.last_stable_offset == first, f"open: the last stable offset stays at {first}")
    append(engine, log, marker(1, commit=False), AppendOrigin.COORDINATOR)
    append(engine, log, marker(2, commit=True), AppendOrigin.COORDINATOR)
    say("One marker aborts the first transaction, another commits the second.")
    everything = [r.value for r in read(log, start=first)]
    committed = [r.value for r in read(log, start=first, committed_only=True)]
    expect(len(everything) == 9, "a read_uncommitted reader sees 9 records")
    expect(committed == [b"by producer 2"] * 3, "a read_committed reader sees the 3 of producer 2")
    repeated = append(engine, log, transactional(3, 0)), append(engine, log, transactional(3, 0))
    expect(
        repeated[1].duplicate and repeated[1].base_offset == repeated[0].base_offset,
        "a batch sent twice is stored once",
    )
    append(engine, log, marker(3, commit=True), AppendOrigin.COORDINATOR)


# -- 5: a crash ----------------------------------------------------------------------------------


def kill_and_recover(data: Path) -> None:
    title("A writer is killed")
    flushed = kill_a_writer(data)
    (log_file,) = sorted((data / "orders-0").glob("*.log"))[-1:]
    say(
        f"The writer had reported everything below offset {flushed:,} as flushed when kill -9 hit "
        f"it. A power cut could also leave half a batch, so we append one."
    )
    half = build_batch(orders(0, BATCH))[: HEADER_BYTES + 40]
    end = log_file.stat().st_size
    with log_file.open("ab") as file:
        file.write(half)
    problems = verify_directory(data).problems
    show(f"penstock log verify: {problems[0].kind} at position {problems[0].position:,}")
    # At or before the half batch: the kill may also have cut the writer's last write short.
    expect(
        [p.kind for p in problems] == ["torn-tail"] and (problems[0].position or 0) <= end,
        "the check finds the half batch and nothing else",
    )
    reports: list[str] = []
    before = time.perf_counter()
    engine, logs = open_engine(data, reports.append)
    milliseconds = (time.perf_counter() - before) * 1000
    log = logs[TopicPartition("orders", 0)]
    say("Opening the log dir again recovers what may not have reached the disk. It reports:")
    show(reports[0].replace(f"{data}/", ""))
    say(
        f"It took {milliseconds:.0f} ms; the log end offset is {log.log_end_offset:,}: the "
        f"{log.log_end_offset - flushed} events after the last flush were in the page cache, "
        f"which survives the process but not a power cut."
    )
    expect(log.log_end_offset >= flushed, f"no flushed event is lost ({flushed:,} events)")
    values = [record.value for record in read(log)]
    expect(values == [order(i) for i in range(len(values))], "every event is intact and in order")
    append(engine, log, build_batch(orders(len(values), BATCH)))
    engine.close()
    check(data)


def kill_a_writer(data: Path) -> int:
    """Kills a child process after it has flushed enough; returns the last offset it reported."""
    child = subprocess.Popen([sys.executable, __file__, str(data)], stdout=subprocess.PIPE)
    assert child.stdout is not None
    flushed = 0
    with child.stdout as reports:
        while flushed < 10_000:
            flushed = int(reports.readline())
        enough = log_bytes(data) + 20_000
        while child.poll() is None and log_bytes(data) < enough:
            pass  # the child has appended batches after the flush
        os.kill(child.pid, signal.SIGKILL)
        rest = [
            int(line) for line in reports.read().splitlines(keepends=True) if line.endswith(b"\n")
        ]
    expect(child.wait() == -signal.SIGKILL, "the writer is dead", quiet=True)
    return max([flushed, *rest])


def log_bytes(data: Path) -> int:
    return sum(path.stat().st_size for path in data.glob("orders-0/*.log"))


def write_until_killed(data: Path) -> None:
    """The child: appends forever, and prints each durable offset."""
    engine, _ = open_engine(data)
    log = create(engine, "orders")
    while True:
        for _ in range(5):
            append(engine, log, build_batch(orders(log.log_end_offset, BATCH)))
        flush(engine, log)
        print(log.durable_offset, flush=True)
        for _ in range(40):  # these batches are not flushed: the kill hits among them
            append(engine, log, build_batch(orders(log.log_end_offset, BATCH)))


# -- 6: compaction -------------------------------------------------------------------------------


def compact(data: Path) -> None:
    title("A compacted log keeps the latest record of each key")
    config = LogConfig(segment_bytes=16 * 1024, cleanup_policy=frozenset({"compact"}))
    engine, _ = open_engine(data, config=config)
    log = create(engine, "prices", config)
    for round_number in range(200):
        prices = [
            Record(i, NOW_MS, b"product-%02d" % i, b"%d.%02d EUR" % (round_number, i))
            for i in range(20)
        ]
        append(engine, log, build_batch(prices))
    before, end_offset = log.statistics().size_bytes, log.log_end_offset
    engine.due_jobs(NOW_MS)
    for job in engine.due_jobs(NOW_MS + DAY_MS):
        job.run(lambda function: function())
    after = log.statistics().size_bytes
    latest = {record.key: record.value for record in read(log)}
    say(
        f"4,000 prices of 20 products took {before:,} bytes; after compaction {after:,}. "
        f"Offsets do not change, so readers see only gaps."
    )
    expect(after < before // 4, "most of it is removed")
    expect(
        latest == {b"product-%02d" % i: b"199.%02d EUR" % i for i in range(20)},
        "every product has its latest price",
    )
    expect(log.log_end_offset == end_offset, "the log end offset is unchanged")
    engine.close()
    check(data)


def check(data: Path) -> None:
    findings = verify_directory(data, records=True)
    show(
        f"penstock log verify: {findings.files} files, {findings.batches} batches, "
        f"{findings.records:,} records, {len(findings.problems)} problems"
    )
    expect(findings.is_clean, "all files are consistent")


# -- helpers: an engine, a few kinds of batches, a reader ------------------------------------------


def open_engine(
    data: Path, report: Callable[[str], None] = lambda message: None, config: LogConfig = SMALL
) -> tuple[SegmentedEngine, Mapping[TopicPartition, PartitionLog]]:
    engine = SegmentedEngine(
        StorageConfig(log_dirs=(str(data),)),
        config_of=lambda topic: config,
        logger=message_logger(report),
    )
    return engine, engine.recover(lambda *, done, total: None, NOW_MS)


def create(engine: SegmentedEngine, topic: str, config: LogConfig = SMALL) -> PartitionLog:
    return engine.create(TopicPartition(topic, 0), TopicId(uuid4()), config, NOW_MS)


def append(
    engine: SegmentedEngine,
    log: PartitionLog,
    batch: bytearray,
    origin: AppendOrigin = AppendOrigin.CLIENT,
) -> LogAppendInfo:
    item = AppendItem(log, memoryview(batch), LeaderEpoch(0), origin)
    (result,) = engine.append([item], NOW_MS)
    if isinstance(result, StorageError):
        raise result
    log.advance_high_watermark(log.log_end_offset)  # in a cluster the in-sync replicas decide
    return result


def flush(engine: SegmentedEngine, log: PartitionLog) -> None:
    problems: list[StorageError] = []
    engine.flush(log, log.log_end_offset, lambda error: problems.append(error) if error else None)
    if problems:
        raise problems[0]


def order(number: int) -> bytes:
    return b'{"order": %d, "product": "P-%02d", "amount": %d}' % (number, number % 37, number % 9)


def orders(first: int, count: int) -> list[Record]:
    numbers = range(first, first + count)
    return [Record(n - first, NOW_MS + n, b"customer-%d" % (n % 100), order(n)) for n in numbers]


def transactional(producer_id: int, sequence: int) -> bytearray:
    value = b"by producer %d" % producer_id
    return build_batch(
        [Record(i, NOW_MS, None, value) for i in range(3)],
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=sequence,
        transactional=True,
    )


def marker(producer_id: int, *, commit: bool) -> bytearray:
    return build_end_marker_batch(
        commit=commit,
        coordinator_epoch=0,
        producer_id=producer_id,
        producer_epoch=0,
        timestamp_ms=NOW_MS,
    )


def read(
    log: PartitionLog, start: int | None = None, *, committed_only: bool = False
) -> Iterator[Record]:
    """Every record up to the high watermark, or those of committed transactions only."""
    offset = log.log_start_offset if start is None else Offset(start)
    below = log.last_stable_offset if committed_only else log.high_watermark
    coming = sorted(log.aborted(offset, below), key=lambda aborted: aborted.first_offset)
    skipped: set[int] = set()  # producers within an aborted transaction
    for batch in read_batches(log, offset, below):
        _, header = next(iter_headers(batch))
        while coming and coming[0].first_offset <= header.base_offset:
            skipped.add(coming.pop(0).producer_id)
        if header.is_control:
            end = read_end_marker(batch)
            if end is not None and not end.commit:
                skipped.discard(header.producer_id)
        elif not (committed_only and header.producer_id in skipped):
            yield from (r for r in iter_records(batch) if r.offset >= offset)


def read_batches(log: PartitionLog, offset: Offset, below: Offset) -> Iterator[bytes]:
    while offset < below:
        piece = log.read(offset, below=below, max_bytes=1 << 20, at_least_one=True)
        content = b"".join(os.pread(s.fd, s.length, s.position) for s in piece.slices)
        piece.lease.release()
        for position, header in iter_headers(content):
            yield content[position : position + header.size]
        offset = piece.end_offset


def size_of(directory: str, name: str) -> int:
    return os.path.getsize(os.path.join(directory, name))


# -- helpers: output ------------------------------------------------------------------------------

_INDENT = " " * 3
_steps = iter(range(1, 100))


def title(text: str) -> None:
    print(f"\n{next(_steps)}. {text}")


def say(*lines: str) -> None:
    for line in lines:
        print(textwrap.fill(line, width=92, initial_indent=_INDENT, subsequent_indent=_INDENT))


def show(*lines: str) -> None:
    for line in lines:
        print(textwrap.fill(line, 98, initial_indent=_INDENT * 2, subsequent_indent=_INDENT * 3))


def expect(holds: bool, what: str, *, quiet: bool = False) -> None:
    if not holds:
        sys.exit(f"\nThe demo failed: {what}.")
    if not quiet:
        print(f"   [ok] {what}")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        write_until_killed(Path(sys.argv[1]))
    main()
