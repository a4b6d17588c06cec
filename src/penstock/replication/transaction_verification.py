"""Transactions that a leader asks their coordinator about before it takes their first batch.

A batch that comes late, after its transaction was ended, would open another one that nobody ends
(KIP-890): so the coordinator is asked. Not the asking itself. Invariant: an answer counts only if
no marker has ended the producer's transaction here since the question.
"""


class Verification:
    """One question about one producer, under way."""

    __slots__ = ("is_void", "producer_epoch", "producer_id")

    def __init__(self, producer_id: int, producer_epoch: int) -> None:
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.is_void = False  # a marker has come meanwhile


class Verifications:
    """Owned by one leadership of a partition, and gone with it."""

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
        """Its answer is here; whether it counts."""
        of_producer = self._open[verification.producer_id]
        of_producer.remove(verification)
        if not of_producer:
            del self._open[verification.producer_id]
        return not verification.is_void

    def on_marker(self, producer_id: int, last_ended_epoch: int) -> None:
        """What was asked about has ended, whatever its coordinator still says. A marker that comes
        late may find questions of a later transaction, with a later epoch: those stand."""
        for verification in self._open.get(producer_id, ()):
            if verification.producer_epoch <= last_ended_epoch:
                verification.is_void = True
