"""Handles a fetched batch that a follower refuses: its back-off, and its leader's check.

Pure. Invariant: no replica outside the ISR is ever asked to
lead because of a damaged batch; a leader that is the only in-sync replica stays.
"""

from enum import Enum
from typing import NamedTuple

from penstock.model.cluster import BrokerId, PartitionState
from penstock.model.ids import LeaderEpoch, Offset, TopicPartition
from penstock.storage.engine import DamagedBatch

FIRST_PAUSE_MS = 500
MAX_PAUSE_MS = 60_000  # a batch that is damaged at the leader stays so until somebody acts
_MAX_DOUBLINGS = 16


class RefusedBatch(NamedTuple):
    """A follower got this from its leader and cannot append it."""

    tp: TopicPartition
    leader: BrokerId
    leader_epoch: LeaderEpoch
    offset: Offset  # of the fetch


class DamageVerdict(Enum):
    MOVES = "moves"  # the controller elects another leader from the ISR
    STAYS = "stays"  # no other replica is in sync: nobody else has the records


def refusal_pause_ms(refusals: int) -> int:
    """The pause after so many consecutive refusals of one partition, 1 for the first."""
    doublings = min(max(refusals, 1) - 1, _MAX_DOUBLINGS)
    return min(FIRST_PAUSE_MS << doublings, MAX_PAUSE_MS)


def judge_damage(state: PartitionState, broker: BrokerId) -> DamageVerdict:
    """Decides whether the leader of a damaged log gives up its leadership."""
    has_others = any(replica != broker for replica in state.in_sync)
    return DamageVerdict.MOVES if has_others else DamageVerdict.STAYS


def describe_damage(
    tp: TopicPartition, damaged: DamagedBatch, verdict: DamageVerdict, follower: BrokerId
) -> str:
    what = (
        f"THE LOG OF {tp} IS DAMAGED at offset {damaged.offset}: {damaged.reason} (broker "
        f"{follower} refuses it). "
    )
    if verdict is DamageVerdict.STAYS:
        return what + (
            "This broker is the only in-sync replica and stays the leader; bring another replica "
            "with these records back, or delete the records up to the damage"
        )
    return what + (
        "Asking the controller for another leader from the ISR; check the disk of this broker"
    )


def damaged_offset_to_drop(
    damaged_at: Offset | None, state: PartitionState, broker: BrokerId
) -> Offset | None:
    """Where a follower cuts a log that was found damaged while it led; None: it keeps all.

    Only outside the ISR: a member of it counts as a holder of every committed record.
    """
    if damaged_at is None or broker in state.in_sync or state.leader in (broker, -1):
        return None
    return damaged_at
