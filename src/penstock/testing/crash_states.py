"""The states that a power cut may leave on ext4 and xfs, and strategies to pick one of them.

Not those that a kill leaves, because the page cache survives it. Invariant: synced data is in every
state.
"""

import random
from collections.abc import Iterator
from typing import Protocol

from penstock.testing.simulated_files import (
    Directory,
    File,
    NameChange,
    Namespace,
    Node,
    Pending,
    apply_durably,
)


class CrashChoice(Protocol):
    def pick(self, low: int, high: int) -> int: ...  # both included; low loses more


class SeededChoice:
    """The same picks for the same seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def pick(self, low: int, high: int) -> int:
        return self._random.randint(low, high)


class LoseEverything:
    """Only what was synced survives."""

    def pick(self, low: int, high: int) -> int:
        return low


class KeepEverything:
    """The page cache was written to the disk just in time."""

    def pick(self, low: int, high: int) -> int:
        return high


class _Script:
    """Picks by a script, and the lowest after its end; records the upper bound of each pick."""

    def __init__(self, script: list[int]) -> None:
        self.picks: list[int] = []
        self.highs: list[int] = []
        self._script = script

    def pick(self, low: int, high: int) -> int:
        index = len(self.picks)
        self.picks.append(self._script[index] if index < len(self._script) else low)
        self.highs.append(high)
        return self.picks[index]

    def find_next(self) -> list[int] | None:
        for index in reversed(range(len(self.picks))):
            if self.picks[index] < self.highs[index]:
                return [*self.picks[:index], self.picks[index] + 1]
        return None


def every_choice() -> Iterator[CrashChoice]:
    """One choice per legal outcome; use each for one power cut of the same disk."""
    script: list[int] | None = []
    while script is not None:
        choice = _Script(script)
        yield choice
        script = choice.find_next()


def after_power_cut(namespace: Namespace, choose: CrashChoice) -> Namespace:
    """The files after the next boot, all durable. Consumes the namespace, so pass a copy."""
    for change in _surviving_changes(namespace.journal, choose):
        apply_durably(change)
    survivor = Namespace()
    survivor.root = _reread(namespace.root, choose)
    return survivor


def content_after_power_cut(file: File, choose: CrashChoice) -> bytearray:
    """The durable bytes, then a prefix of the pending ones, whose end may be torn or zeros."""
    content = file.durable()
    kept = choose.pick(0, len(file.pending))
    for operation in file.pending[:kept]:
        _redo(content, operation)
    rest = file.pending[kept:]
    if rest and isinstance(rest[0], bytes):
        torn = choose.pick(0, 1) and choose.pick(1, len(rest[0]))
        content += rest[0][:torn]
        if choose.pick(0, 1):
            # The size was updated before the blocks were written, so zeros are read.
            content += bytes(choose.pick(0, _appended_bytes(rest) - torn))
    return content


def _surviving_changes(journal: list[NameChange], choose: CrashChoice) -> Iterator[NameChange]:
    """A prefix of each directory's changes; a shared change survives in all of them or none."""
    changes: dict[int, int] = {}
    for change in journal:
        for directory in change.ordered_in:
            changes[id(directory)] = changes.get(id(directory), 0) + 1
    budget = {key: choose.pick(0, count) for key, count in changes.items()}
    for change in journal:
        keys = [id(directory) for directory in change.ordered_in]
        survives = all(budget[key] for key in keys)
        for key in keys:
            budget[key] = budget[key] - 1 if survives else 0
        if survives:
            yield change


def _reread(directory: Directory, choose: CrashChoice) -> Directory:
    survivor = Directory()
    for name, node in sorted(directory.durable.items()):
        survivor.names[name] = _reread_node(node, choose)
    survivor.durable = dict(survivor.names)
    return survivor


def _reread_node(node: Node, choose: CrashChoice) -> Node:
    if isinstance(node, Directory):
        return _reread(node, choose)
    return File(content_after_power_cut(node, choose))


def _redo(content: bytearray, operation: Pending) -> None:
    if isinstance(operation, bytes):
        content += operation
    elif operation < len(content):
        del content[operation:]
    else:
        content += bytes(operation - len(content))


def _appended_bytes(operations: list[Pending]) -> int:
    """How far these operations grew the file before it was truncated again."""
    total = 0
    for operation in operations:
        if not isinstance(operation, bytes):
            break
        total += len(operation)
    return total
