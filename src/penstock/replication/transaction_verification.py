"""Transactions that a leader verifies with their coordinator before it appends the first batch.

A late batch, after its transaction has ended, would open a transaction that nobody ends (KIP-890).
Not the request to the coordinator itself. Invariant: a verification counts only if no marker has
ended the producer's transaction here since it began.
"""


class Verification:
    """One verification of one producer, in flight."""

    __slots__ = ("is_void", "producer_epoch", "producer_id")

    def __init__(self, producer_id: int, producer_epoch: int) -> None:
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.is_void = False  # a marker was appended meanwhile


class Verifications:
    """Owned by one `PartitionLeadership` and gone with it."""

    __slots__ = ("_open",)

    def __init__(self) -> None:
        self._open: dict[int, set[Verification]] = {}  # by producer; no empty entries

    def __len__(self) -> int:
        return sum(map(len, self._open.values()))

    def begin(self, producer_id: int, producer_epoch: int) -> Verification:
        verification = Verification(producer_id, producer_epoch)
        self._open.setdefault(producer_id, set()).add(verification)
        return verification

    def end(self, verification: Verification) -> bool:
        """The coordinator has responded; whether the response counts."""
        of_producer = self._open[verification.producer_id]
        of_producer.remove(verification)
        if not of_producer:
            del self._open[verification.producer_id]
        return not verification.is_void

    def on_marker(self, producer_id: int, last_ended_epoch: int) -> None:
        """Void the producer's verifications: their transaction has ended. A late marker may find
        those of a later transaction, with a later epoch, which stay valid."""
        for verification in self._open.get(producer_id, ()):
            if verification.producer_epoch <= last_ended_epoch:
                verification.is_void = True
