"""A fake transaction verifier: its results come at once, or when the test says so."""

from collections.abc import Sequence
from typing import NamedTuple

from penstock.apis.transaction_service import Verified
from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicPartition


class VerifyRequest(NamedTuple):
    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: tuple[TopicPartition, ...]
    adds: bool
    done: Verified


class FakeVerifier:
    def __init__(self) -> None:
        self.requests: list[VerifyRequest] = []
        self.codes: dict[TopicPartition, ErrorCode] = {}  # NONE for all others
        self.answers_at_once = True

    def verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[TopicPartition],
        *,
        adds: bool,
        done: Verified,
    ) -> None:
        self.requests.append(
            VerifyRequest(
                transactional_id, producer_id, producer_epoch, tuple(partitions), adds, done
            )
        )
        if self.answers_at_once:
            self.answer(-1)

    def answer(self, position: int) -> None:
        requests = self.requests[position]
        requests.done(
            {
                partition: self.codes.get(partition, ErrorCode.NONE)
                for partition in requests.partitions
            }
        )
