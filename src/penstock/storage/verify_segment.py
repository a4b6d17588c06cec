"""Checks one segment: every batch of its log file, and its three indexes against these.

Continues after a bad CRC, and after worse damage at the next indexed position. Indexes are read
before the log, which only grows, so that appends of a running broker do not look like a
contradiction; the transaction index is read after it, and entries newer than the log are skipped.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from penstock.io.disk import Disk, read_file
from penstock.protocol.batch import CorruptBatch
from penstock.protocol.records import iter_records
from penstock.storage.errors import MalformedTransactionIndex
from penstock.storage.findings import LogFindings
from penstock.storage.log_files import Damage, SeenBatch, opened, walk_batches
from penstock.storage.segment import MAX_RELATIVE_OFFSET
from penstock.storage.segment_file import LOG_SUFFIX, file_name
from penstock.storage.sparse_index import OFFSET_INDEX, TIME_INDEX, IndexFormat
from penstock.storage.transaction_index import ENTRY_BYTES, TRANSACTION_INDEX_SUFFIX, decode_entries
from penstock.storage.verify_index import IndexFile, OffsetIndexCheck, TimeIndexCheck
from penstock.storage.verify_order import BatchOrder
from penstock.storage.verify_producers import ProducerReplay

Progress = Callable[[int], None]  # bytes of log files that have been read since the last call


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentCheck:
    """The check of one segment; `order` and `producers` belong to the whole log."""

    disk: Disk
    findings: LogFindings
    directory: str
    base_offset: int
    next_base_offset: int | None  # None: this is the active segment
    is_clean_stop: bool
    with_records: bool
    order: BatchOrder
    producers: ProducerReplay
    on_offset: Callable[[int], None]  # called when all batches below that offset are checked
    progress: Progress

    @property
    def path(self) -> str:
        return self._path(LOG_SUFFIX)

    @property
    def is_active(self) -> bool:
        return self.next_base_offset is None

    def _path(self, suffix: str) -> str:
        return f"{self.directory}/{file_name(self.base_offset, suffix)}"

    def run(self) -> None:
        offsets = OffsetIndexCheck(self._read_index(OFFSET_INDEX), self.base_offset)
        times = TimeIndexCheck(self._read_index(TIME_INDEX), self.base_offset)
        self._pass_hole(self.base_offset)
        self.order.start_segment(self.base_offset)
        with opened(self.disk, self.path) as descriptor:
            size = self.disk.size(descriptor)
            self.findings.count_file(size)
            for batch in self._walk(descriptor, size, offsets, times):
                self._take(batch, offsets, times)
            has_grown = self.disk.size(descriptor) > size
        offsets.finish(size)
        times.finish(is_complete=not self.is_active or self.is_clean_stop)
        self._check_transaction_index(has_grown=has_grown)

    def _read_index(self, index_format: IndexFormat) -> IndexFile:
        path = self._path(index_format.suffix)
        content = read_file(self.disk, path)
        if content is None:
            report = self.findings.note if self.is_active else self.findings.problem
            report("missing", path, "is missing; the next start rebuilds it from its segment")
        else:
            self.findings.count_file(len(content))
        return IndexFile(
            self.findings, path, content or b"", index_format, is_active=self.is_active
        )

    # -- batches ---------------------------------------------------------------------------

    def _walk(
        self, descriptor: int, size: int, offsets: OffsetIndexCheck, times: TimeIndexCheck
    ) -> Iterator[SeenBatch]:
        """Every batch with a valid CRC; the others are reported and skipped."""
        start: int | None = 0
        done = 0
        while start is not None and start < size:
            following = None
            for item in walk_batches(self.disk, descriptor, start=start, end=size):
                if isinstance(item, Damage):
                    following = self._pass_damage(item, descriptor, size, offsets)
                elif item.crc_problem is not None:
                    self._pass_bad_crc(item, offsets)
                else:
                    yield item
                    done = self._show_progress(done, item.end_position)
                    continue
                times.skip()
                self._lose_track()
            start = following
        self.progress(size - done)

    def _show_progress(self, done: int, position: int) -> int:
        if position - done < 1 << 20:
            return done
        self.progress(position - done)
        return position

    def _pass_bad_crc(self, item: SeenBatch, offsets: OffsetIndexCheck) -> None:
        assert item.crc_problem is not None
        self.findings.batches += 1
        self.findings.problem("crc", self.path, item.crc_problem, position=item.position)
        offsets.skip(item.position, item.end_position)

    def _pass_damage(
        self, item: Damage, descriptor: int, size: int, offsets: OffsetIndexCheck
    ) -> int | None:
        following = offsets.find_next_position(item.position)
        if following is not None and following >= size:
            following = None
        offsets.skip(item.position, size if following is None else following)
        if self.is_active and following is None and self.disk.size(descriptor) > size:
            self.findings.note(
                "growing",
                self.path,
                "the log is being written to; the rest was not checked",
                position=item.position,
            )
        else:
            self._report_damage(item, size, following)
        return following

    def _report_damage(self, item: Damage, size: int, following: int | None) -> None:
        left = (size if following is None else following) - item.position
        rest = "up to the end" if following is None else f"up to the indexed batch at {following}"
        self.findings.problem(
            "torn-tail" if following is None and self.is_active else "damage",
            self.path,
            f"no batch can be read here: {item.problem}; {left} bytes {rest} are lost",
            position=item.position,
        )

    def _lose_track(self) -> None:
        self.order.lose_track()
        self.producers.lose_track()

    def _take(self, batch: SeenBatch, offsets: OffsetIndexCheck, times: TimeIndexCheck) -> None:
        position, header, content, _, header_problem = batch
        self.findings.batches += 1
        if header_problem is not None:
            self.findings.problem("header", self.path, header_problem, position=position)
        self._check_bounds(batch)
        self._pass_hole(header.base_offset)
        self.order.take(self.path, position, header)
        offsets.take(position, header)
        times.take(header)
        if not self.order.is_whole:
            self.producers.is_exact = False
        if header.producer_id >= 0:
            self.producers.take(self.path, position, header, content)
        if self.with_records:
            self._check_records(batch)
        self.on_offset(self.order.expected_offset)

    def _pass_hole(self, offset: int) -> None:
        """Call it before comparing anything at or after `offset`: a hole's content is unknown."""
        if self.order.expected_offset < offset:
            self.producers.pass_hole(offset)

    def _check_bounds(self, batch: SeenBatch) -> None:
        header, base_offset = batch.header, self.base_offset
        if header.base_offset < base_offset:
            problem = f"before the segment's first, {base_offset}"
        elif header.last_offset - base_offset > MAX_RELATIVE_OFFSET:
            problem = f"too far from the segment's first, {base_offset}, for its indexes"
        elif self.next_base_offset is not None and header.last_offset >= self.next_base_offset:
            problem = f"past the next segment's first, {self.next_base_offset}: they overlap"
        else:
            return
        self.findings.problem(
            "bounds",
            self.path,
            f"batch of offsets {header.base_offset} to {header.last_offset} reaches {problem}",
            position=batch.position,
        )

    def _check_records(self, batch: SeenBatch) -> None:
        try:
            for _ in iter_records(batch.content):
                self.findings.records += 1
        except CorruptBatch as error:
            self.findings.problem("records", self.path, error.reason, position=batch.position)

    # -- aborted transactions --------------------------------------------------------------

    def _check_transaction_index(self, *, has_grown: bool) -> None:
        path = self._path(TRANSACTION_INDEX_SUFFIX)
        content = read_file(self.disk, path)
        if content is not None:
            self.findings.count_file(len(content))
        try:
            entries = decode_entries(content or b"", path)
        except MalformedTransactionIndex as error:
            position = len(error.valid) * ENTRY_BYTES
            self.findings.problem("transaction-index", path, error.problem, position=position)
            self.producers.forget_markers()
            return
        end_offset = self.order.expected_offset if has_grown else None
        self.producers.compare_index(path, entries, end_offset=end_offset)
