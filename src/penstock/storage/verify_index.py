"""Checks the two sparse indexes of one segment against its batches, in one pass over these.

An index may have few entries, but every entry must be right, because look-ups start from it.
"""

from penstock.protocol.batch import BatchHeader
from penstock.storage.findings import LogFindings
from penstock.storage.log_files import IndexContent, decode_index
from penstock.storage.sparse_index import OFFSET_INDEX, TIME_INDEX, IndexEntry, IndexFormat


class IndexFile:
    """One index as it was read. Problems visible without the log are reported at once."""

    def __init__(
        self,
        findings: LogFindings,
        path: str,
        content: bytes,
        index_format: IndexFormat,
        *,
        is_active: bool,
    ) -> None:
        self.path = path
        self._findings = findings
        self._width = index_format.entry.size
        self._is_active = is_active
        self.content: IndexContent = decode_index(content, index_format)
        self.size = len(content)

    @property
    def entries(self) -> list[IndexEntry]:
        return self.content.entries

    @property
    def _kind(self) -> str:
        return "offset-index" if self._width == OFFSET_INDEX.entry.size else "time-index"

    def report(self, number: int, message: str) -> None:
        self._findings.problem(self._kind, self.path, message, position=number * self._width)

    def note(self, number: int, message: str) -> None:
        self._findings.note(self._kind, self.path, message, position=number * self._width)

    def check_shape(self, *, same_value: bool) -> None:
        previous = None
        for number, entry in enumerate(self.entries):
            if previous is not None and not _follows(previous, entry, same_value):
                self.report(number, f"entry {_show(entry)} does not follow {_show(previous)}")
            previous = entry
        if self.content.torn_bytes:
            at = (self.size - self.content.torn_bytes) // self._width
            self.report(at, f"ends mid-entry ({self.content.torn_bytes} bytes)")

    def check_zeros(self, zeros_position: int | None) -> None:
        if zeros_position is None:
            return
        number, count = zeros_position // self._width, self.size - zeros_position
        if self._is_active:
            self._findings.note(
                "zeros",
                self.path,
                f"{count} bytes of zeros at the end, as preallocation leaves them in the active "
                f"segment; the next start removes them",
                position=zeros_position,
            )
        else:
            self.report(number, f"{count} bytes of zeros at the end of a sealed segment's index")


def _follows(previous: IndexEntry, entry: IndexEntry, same_value: bool) -> bool:
    if entry.key <= previous.key:
        return False
    return entry.value > previous.value or (same_value and entry.value == previous.value)


def _show(entry: IndexEntry) -> str:
    return f"{entry.key} -> {entry.value}"


class OffsetIndexCheck:
    """Every entry names the last offset of the batch that starts at its position.

    Kafka's followers write one entry for several batches appended together: the position of the
    first, the last offset of the last. Look-ups work with it, so it is not a problem.
    """

    def __init__(self, index: IndexFile, base_offset: int) -> None:
        self._index = index
        self._base_offset = base_offset
        self._open: dict[int, list[int]] = {}  # position -> entries that name it
        self._late: dict[int, list[tuple[int, str]]] = {}  # offset -> entries, and what is wrong
        self._shared: list[int] = []  # entries for several batches
        for number, entry in enumerate(index.entries):
            self._open.setdefault(entry.value, []).append(number)
        index.check_shape(same_value=False)
        index.check_zeros(index.content.zeros_position)

    def take(self, position: int, header: BatchHeader) -> None:
        if self._late:
            self._shared += [number for number, _ in self._late.pop(header.last_offset, ())]
        for number in self._open.pop(position, ()):
            offset = self._base_offset + self._index.entries[number].key
            message = (
                f"entry names offset {offset}, but the batch at position {position} ends with "
                f"{header.last_offset}"
            )
            if offset > header.last_offset:
                self._late.setdefault(offset, []).append((number, message))
            elif offset < header.last_offset:
                self._index.report(number, message)

    def skip(self, start: int, end: int) -> None:
        """The log could not be read there, so entries that point to it are not checked."""
        for position in [position for position in self._open if start <= position < end]:
            del self._open[position]

    def find_next_position(self, after: int) -> int | None:
        """Where reading can continue after damage."""
        return min((e.value for e in self._index.entries if e.value > after), default=None)

    def finish(self, log_bytes: int) -> None:
        for number, message in sorted(entry for late in self._late.values() for entry in late):
            self._index.report(number, message)
        if self._shared:
            self._index.note(
                min(self._shared),
                f"{len(self._shared)} entries from here on are for several batches",
            )
        for position, numbers in sorted(self._open.items()):
            what = (
                "no batch starts there"
                if position < log_bytes
                else f"the log has {log_bytes} bytes"
            )
            for number in numbers:
                self._index.report(number, f"entry points at position {position}: {what}")


class TimeIndexCheck:
    """Every entry is the largest timestamp up to the batch that holds its offset."""

    def __init__(self, index: IndexFile, base_offset: int) -> None:
        self._index = index
        self._base_offset = base_offset
        order = sorted(range(len(index.entries)), key=lambda number: index.entries[number].value)
        self._open = order[::-1]  # entries by offset, the lowest last
        self._first: BatchHeader | None = None
        self._largest = -1
        self._is_broken = False
        index.check_shape(same_value=True)

    def take(self, header: BatchHeader) -> None:
        if self._first is None:
            self._first = header
        before, self._largest = self._largest, max(self._largest, header.max_timestamp)
        if not self._open:
            return
        entries, reach = self._index.entries, header.last_offset - self._base_offset
        while self._open and entries[self._open[-1]].value <= reach:
            self._compare(self._open.pop(), header, before)

    def _compare(self, number: int, header: BatchHeader, largest_before: int) -> None:
        entry = self._index.entries[number]
        offset = self._base_offset + entry.value
        if offset < header.base_offset:
            if not self._is_broken:
                self._index.report(number, f"entry names offset {offset}, which no batch holds")
        elif entry.key != header.max_timestamp:
            self._index.report(
                number,
                f"entry names timestamp {entry.key}, but the batch of offset {offset} has "
                f"{header.max_timestamp}",
            )
        elif largest_before > entry.key and not self._is_broken:
            self._index.report(
                number, f"entry names timestamp {entry.key} after one of {largest_before}"
            )

    def skip(self) -> None:
        """Some of the log could not be read."""
        self._is_broken = True

    def finish(self, *, is_complete: bool) -> None:
        """`is_complete`: the segment is sealed, so its last entry must be its maximum."""
        zeros, entries = self._index.content.zeros_position, self._index.entries
        if zeros == 0 and self._is_entry_of_zeros():
            entries = [IndexEntry(0, 0)]
            zeros = TIME_INDEX.entry.size
            if zeros >= self._index.size:
                zeros = None
        self._index.check_zeros(zeros)
        if self._is_broken:
            return
        for number in reversed(self._open):
            entry = self._index.entries[number]
            self._index.report(
                number, f"entry names offset {self._base_offset + entry.value}, past the last one"
            )
        last = max((entry.key for entry in entries), default=-1)
        if is_complete and last < self._largest:
            self._index.report(
                len(entries),
                f"the last entry names timestamp {last}, but the segment holds {self._largest}",
            )

    def _is_entry_of_zeros(self) -> bool:
        """An entry for timestamp 0 at the segment's first offset is all zeros."""
        first = self._first
        return first is not None and (first.last_offset, first.max_timestamp) == (
            self._base_offset,
            0,
        )
