"""Inodes of a simulated disk: the content of the page cache, and the durable content.

No system calls and no errors. Invariant: a file's durable bytes plus its pending operations are its
current bytes; durable names plus the journal are the current names.
"""

from collections.abc import Iterable
from typing import NamedTuple

# Not yet synced, in order: appended bytes, or the length of a truncation.
Pending = bytes | int


class File:
    """Bytes that are appended or truncated; copies share them until one side changes."""

    __slots__ = (
        "_durable_length",
        "_durable_tail",
        "_lost",
        "_shared",
        "content",
        "locked_by",
        "pending",
    )

    def __init__(self, content: bytes | bytearray = b"") -> None:
        self.content = bytearray(content)  # what a read sees
        self.pending: list[Pending] = []
        self.locked_by: int | None = None  # a descriptor
        # Durable are content[:_durable_length] with the lost ranges as zeros, then the tail, so
        # that appending and syncing never copy the file.
        self._durable_length = len(self.content)
        self._durable_tail = b""
        self._lost: list[tuple[int, int]] = []
        self._shared = False

    def append(self, data: bytes) -> None:
        if not data:
            return
        self._own()
        self.content += data
        self.pending.append(data)

    def truncate(self, length: int) -> None:
        self._own()
        if length < self._durable_length:
            self._durable_tail = bytes(memoryview(self.durable())[length:])
            self._durable_length = length
        # Lost ranges past the cut stay as zeros, in the tail or in pending operations.
        self._lost = [(start, min(end, length)) for start, end in self._lost if start < length]
        if length < len(self.content):
            del self.content[length:]
        else:
            self.content += bytes(length - len(self.content))
        self.pending.append(length)

    def sync(self) -> None:
        self._own()
        self.pending.clear()
        self._durable_length = len(self.content)
        self._durable_tail = b""

    def lose_pending(self) -> None:
        """The write-back failed: reads still return the bytes, but no later sync writes them."""
        self._own()
        end = len(self.content)
        for position, operation in enumerate(self.pending):
            if isinstance(operation, bytes):
                self.pending[position] = bytes(len(operation))
        if self._durable_length < end:
            self._lost.append((self._durable_length, end))

    def durable(self) -> bytearray:
        image = self.content[: self._durable_length]
        for start, end in self._lost:
            end = min(end, len(image))
            if start < end:
                image[start:end] = bytes(end - start)
        image += self._durable_tail
        return image

    def tamper(self, position: int, data: bytes) -> None:
        """Change bytes in the cache and on the disk; everything else becomes durable."""
        self.sync()
        self._lost.clear()
        self.content[position : position + len(data)] = data

    def copy(self) -> "File":
        copy = File()
        self._shared = copy._shared = True
        copy.content = self.content
        copy.pending = self.pending
        copy._durable_length = self._durable_length
        copy._durable_tail = self._durable_tail
        copy._lost = self._lost
        return copy

    def _own(self) -> None:
        if self._shared:
            self.content = bytearray(self.content)
            self.pending = list(self.pending)
            self._lost = list(self._lost)
            self._shared = False


class Directory:
    __slots__ = ("durable", "locked_by", "names")

    def __init__(self) -> None:
        self.names: dict[str, Node] = {}
        self.durable: dict[str, Node] = {}
        self.locked_by: int | None = None


Node = File | Directory


class Edit(NamedTuple):
    directory: Directory
    name: str
    node: Node | None  # None removes the name


class NameChange(NamedTuple):
    """Edits that become durable together or not at all."""

    edits: tuple[Edit, ...]
    # Directories whose earlier changes must be durable before this one.
    ordered_in: tuple[Directory, ...]


class Namespace:
    """The directory tree, and the changes that no directory sync has made durable yet."""

    def __init__(self) -> None:
        self.root = Directory()
        self.journal: list[NameChange] = []

    def change(self, edits: Iterable[Edit], ordered_in: Iterable[Directory] = ()) -> None:
        edits = tuple(edits)
        touched = {id(d): d for d in (*(edit.directory for edit in edits), *ordered_in)}
        for directory, name, node in edits:
            _set(directory.names, name, node)
        self.journal.append(NameChange(edits, tuple(touched.values())))

    def sync(self, directory: Directory) -> None:
        """Make its names durable, with every earlier change elsewhere that they depend on."""
        needed = {id(directory)}
        kept: list[NameChange] = []
        synced: list[NameChange] = []
        for change in reversed(self.journal):
            if any(id(d) in needed for d in change.ordered_in):
                needed.update(id(d) for d in change.ordered_in)
                synced.append(change)
            else:
                kept.append(change)
        for change in reversed(synced):
            apply_durably(change)
        self.journal = kept[::-1]

    def copy(self) -> "Namespace":
        copies: dict[int, Node] = {}
        copy = Namespace()
        copy.root = _copy_directory(self.root, copies)
        for edits, ordered_in in self.journal:
            copy.journal.append(
                NameChange(
                    tuple(
                        Edit(_copy_directory(d, copies), name, node and _copy_node(node, copies))
                        for d, name, node in edits
                    ),
                    tuple(_copy_directory(d, copies) for d in ordered_in),
                )
            )
        return copy


def apply_durably(change: NameChange) -> None:
    for directory, name, node in change.edits:
        _set(directory.durable, name, node)


def files_below(directory: Directory, path: str) -> Iterable[tuple[str, File]]:
    for name, node in sorted(directory.names.items()):
        if isinstance(node, File):
            yield f"{path}/{name}", node
        else:
            yield from files_below(node, f"{path}/{name}")


def _set(names: dict[str, Node], name: str, node: Node | None) -> None:
    if node is None:
        names.pop(name, None)
    else:
        names[name] = node


def _copy_node(node: Node, copies: dict[int, Node]) -> Node:
    if isinstance(node, Directory):
        return _copy_directory(node, copies)
    if id(node) not in copies:
        copies[id(node)] = node.copy()
    return copies[id(node)]


def _copy_directory(directory: Directory, copies: dict[int, Node]) -> Directory:
    existing = copies.get(id(directory))
    if isinstance(existing, Directory):
        return existing
    copy = copies[id(directory)] = Directory()
    copy.names = {name: _copy_node(node, copies) for name, node in directory.names.items()}
    copy.durable = {name: _copy_node(node, copies) for name, node in directory.durable.items()}
    return copy
