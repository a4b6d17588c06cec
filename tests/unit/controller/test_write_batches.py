"""Write steps batched into transactions: in order, never split, within the limit if possible."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tests.unit.controller.cluster import Cluster, code_of, run_scenario
from tests.unit.controller.crashing_session import CrashingSession

from penstock.controller.interface import CreatableTopic
from penstock.controller.state import WriteStep
from penstock.controller.write_batches import TRANSACTION_BYTES, batch_writes, request_bytes
from penstock.metadata_store.interface import Create
from penstock.model.errors import ErrorCode

LIMIT = 1000

steps = st.lists(
    st.lists(st.integers(0, 900), min_size=1, max_size=3).map(
        lambda sizes: tuple(Create(path=f"/{n}", data=bytes(n)) for n in sizes)
    ),
    max_size=20,
)


def length(step: WriteStep) -> int:
    return sum(map(request_bytes, step))


@given(steps=steps)
def test_steps_are_batched_whole_and_in_order(
    steps: list[WriteStep],
) -> None:
    left = list(steps)
    batches = list(batch_writes(steps, LIMIT))
    for batch in batches:
        gathered: list[WriteStep] = []
        while sum(map(len, gathered)) < len(batch):
            gathered.append(left.pop(0))
        assert [create for step in gathered for create in step] == batch
        size = sum(map(length, gathered))
        assert size <= LIMIT or len(gathered) == 1
        assert not left or size + length(left[0]) > LIMIT
    assert left == []


def test_a_topic_too_large_for_one_transaction_takes_several() -> None:
    async def scenario(cluster: Cluster) -> None:
        session = CrashingSession(cluster.sessions[0])
        async with cluster.controlled(session=session) as controller:
            before = session.transactions
            [answer] = await controller.create_topics(
                [CreatableTopic(name="t" * 249, partitions=1000)],
                validate_only=False,
                timeout_ms=60_000,
            )
            assert code_of(answer) is ErrorCode.NONE
            nodes = 2 * 1000 * 249
            assert session.transactions - before > nodes / TRANSACTION_BYTES
            assert (await cluster.reread()).writes == ()

    run_scenario(scenario)
