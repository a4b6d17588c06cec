"""The numbers of messages that wait, a bit each.

Numbers are given in order and end in nearly any, so that whole blocks of them become empty and
are dropped. Invariant: no block is empty.
"""

_BLOCK_BITS = 13
_BLOCK_NUMBERS = 1 << _BLOCK_BITS
_IN_BLOCK = _BLOCK_NUMBERS - 1


class PendingNumbers:
    """Owned by its shard's state."""

    def __init__(self) -> None:
        self._blocks: dict[int, bytearray] = {}
        self._counts: dict[int, int] = {}  # of the bits that are set in a block
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __contains__(self, number: int) -> bool:
        block = self._blocks.get(number >> _BLOCK_BITS)
        if block is None:
            return False
        position = number & _IN_BLOCK
        return bool(block[position >> 3] & (1 << (position & 7)))

    def add(self, number: int) -> None:
        if number in self:
            return
        index, position = number >> _BLOCK_BITS, number & _IN_BLOCK
        block = self._blocks.get(index)
        if block is None:
            block = self._blocks[index] = bytearray(_BLOCK_NUMBERS >> 3)
            self._counts[index] = 0
        block[position >> 3] |= 1 << (position & 7)
        self._counts[index] += 1
        self._count += 1

    def discard(self, number: int) -> None:
        if number not in self:
            return
        index, position = number >> _BLOCK_BITS, number & _IN_BLOCK
        self._blocks[index][position >> 3] &= ~(1 << (position & 7)) & 0xFF
        self._counts[index] -= 1
        self._count -= 1
        if not self._counts[index]:
            del self._blocks[index], self._counts[index]
