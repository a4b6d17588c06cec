"""Both kinds of election, and helpers that show the leader."""

import asyncio
from collections.abc import Callable, Sequence

import pytest

from penstock.metadata_store.election import (
    Candidate,
    Election,
    ElectionResult,
    QueueElection,
    RaceElection,
)
from penstock.metadata_store.errors import BadVersion, MultiFailed
from penstock.metadata_store.interface import Session, SetData

LEADER, QUEUE, EPOCH = "/controller", "/election/controller", "/controller_epoch"


def race(session: Session, name: str) -> Election:
    return RaceElection(
        session, Candidate(data=name.encode()), leader_path=LEADER, epoch_path=EPOCH
    )


def queue(session: Session, name: str) -> Election:
    return QueueElection(
        session,
        Candidate(data=name.encode()),
        queue_path=QUEUE,
        leader_path=LEADER,
        epoch_path=EPOCH,
    )


Recipe = Callable[[Session, str], Election]
both = pytest.mark.parametrize("recipe", [race, queue])


async def can_write(session: Session, leadership: ElectionResult) -> bool:
    try:
        await session.multi(leadership.fence([SetData(path="/", data=b"%d" % leadership.epoch)]))
    except MultiFailed as failed:
        if not isinstance(failed.error, BadVersion):
            raise
        return False
    return True


async def cancel(
    tasks: Sequence[asyncio.Task[ElectionResult]] | Sequence[asyncio.Task[None]],
) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
