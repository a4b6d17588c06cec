"""Any history of transactions: state, log and compacted log always agree.

A transaction ends the same way in every partition, and no pair of producer id and epoch is assigned
twice.
"""

import asyncio
from typing import NamedTuple

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.profile import scaled
from tests.unit.coordinators.group.coordinator_harness import START_MS, TableLog
from tests.unit.coordinators.transaction.harness import (
    T0,
    T1,
    U0,
    FakePartitions,
    FakeProducerIds,
    TransactionCoordinatorHarness,
    replay_log,
)

from penstock.coordinators.transaction.producer_epochs import LAST_EPOCH, MAX_EPOCH
from penstock.coordinators.transaction.records import (
    State,
    Transaction,
    TransactionRecord,
    encode_record,
)
from penstock.coordinators.transaction.requests import NO_PRODUCER, ProducerIdAndEpoch
from penstock.coordinators.transaction.transaction_version import BUMPING
from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicPartition
from penstock.testing.manual_clock import ManualClock

NAMES = ["a", "b"]
PARTITIONS = [T0, T1, U0]
DAY_MS = 86_400_000
NONE = ErrorCode.NONE
# The error codes that a client may get.
CODES = {
    NONE,
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.TRANSACTION_ABORTABLE,
}

names = st.sampled_from(NAMES)
handles = st.sampled_from([0, 0, 0, 0, 1, 2])  # the newest handle, or an older one
partitions = st.frozensets(st.sampled_from(PARTITIONS), min_size=1)


class Init(NamedTuple):
    name: str
    claims: int | None  # index of a handle; None: the request has no producer id
    two_phase: bool
    keep_prepared: bool


class Add(NamedTuple):
    name: str
    handle: int
    partitions: frozenset[TopicPartition]
    version: int


class Verify(NamedTuple):
    name: str
    handle: int


class End(NamedTuple):
    name: str
    handle: int
    commit: bool
    version: int


class Wait(NamedTuple):
    duration_ms: int


class Hold(NamedTuple):
    is_held: bool  # whether markers to partitions are held back


class RefuseMarkers(NamedTuple):
    partition: TopicPartition
    code: ErrorCode | None


class RefuseWrites(NamedTuple):
    is_refused: bool


class HoldWrites(NamedTuple):
    is_held: bool


class Compact(NamedTuple):
    is_all: bool


class Restart(NamedTuple):
    pass


steps = st.one_of(
    st.builds(Init, names, st.none() | handles, st.booleans(), st.booleans()),
    st.builds(Add, names, handles, partitions, st.sampled_from([3, 4])),
    st.builds(Add, names, handles, partitions, st.sampled_from([3, 4])),
    st.builds(Verify, names, handles),
    st.builds(End, names, handles, st.booleans(), st.sampled_from([4, 5, 5])),
    st.builds(End, names, handles, st.booleans(), st.sampled_from([4, 5, 5])),
    st.builds(Wait, st.sampled_from([1, 1_000, 11_000, DAY_MS, 8 * DAY_MS])),
    st.builds(Hold, st.booleans()),
    st.builds(
        RefuseMarkers,
        st.sampled_from(PARTITIONS),
        st.none() | st.just(ErrorCode.NOT_LEADER_OR_FOLLOWER),
    ),
    st.builds(RefuseWrites, st.booleans()),
    st.builds(HoldWrites, st.booleans()),
    st.builds(Compact, st.booleans()),
    st.builds(Restart),
)
histories = st.lists(steps, min_size=20, max_size=50)
first_epochs = st.sampled_from([None, None, 0, LAST_EPOCH - 2, LAST_EPOCH, MAX_EPOCH])


class Life:
    """Successive coordinators over the same log, and what clients remember."""

    def __init__(self, first_epoch: int | None) -> None:
        self.log = TableLog(
            segment_bytes=1_000, min_cleanable_dirty_ratio=0.0, delete_retention_ms=DAY_MS
        )
        self.clock = ManualClock()
        self.partitions = FakePartitions()
        self.ids = FakeProducerIds()
        self.leader_epoch = 0
        self.given: dict[str, list[ProducerIdAndEpoch]] = {name: [] for name in NAMES}
        if first_epoch is not None:
            self._begin_at(first_epoch)
        self.harness = self._open()

    def _begin_at(self, epoch: int) -> None:
        """Makes the transactional id look old."""
        value = Transaction(
            producer_id=2**63 - 1,
            producer_epoch=epoch,
            timeout_ms=60_000,
            state=State.COMPLETE_COMMIT,
            updated_ms=START_MS,
            started_ms=START_MS,
        )
        self.log.tables[0].put(encode_record(TransactionRecord("a", value)))
        self.given["a"].append(ProducerIdAndEpoch(value.producer_id, min(epoch, LAST_EPOCH)))

    def _open(self) -> TransactionCoordinatorHarness:
        return TransactionCoordinatorHarness(
            self.log, clock=self.clock, partitions=self.partitions, ids=self.ids
        )

    async def live(self, history: list[tuple[object, ...]]) -> None:
        async with asyncio.TaskGroup() as tasks:
            run = tasks.create_task(self.harness.coordinator.run())
            await self.harness.take_all(self.leader_epoch)
            for step in history:
                await self.take(step)
                if isinstance(step, Restart):
                    self.harness.coordinator.close()
                    await run
                    self.log.lead()
                    self.leader_epoch += 1
                    self.harness = self._open()
                    run = tasks.create_task(self.harness.coordinator.run())
                    await self.harness.take_all(self.leader_epoch)
                await self.harness.turns()
                self.check()
            await self.heal()
            self.check()
            self.harness.coordinator.close()

    async def heal(self) -> None:
        """Once all partitions accept markers, every decision reaches every partition."""
        self.log.refusal = None
        self.log.is_held = self.partitions.is_held = False
        self.partitions.refusals.clear()
        for _ in range(4):
            self.log.commit()
            self.partitions.let_go()
            self.clock.advance_ms(11_000)
            await self.harness.turns()
        assert self.harness.shard.pending_markers == 0
        assert not self.harness.shard.state.prepared()

    # -- what must hold --------------------------------------------------------------------

    def check(self) -> None:
        assert not self.harness.reports, self.harness.reports
        live, stored = self.harness.shard.state, replay_log(self.log)
        assert live.snapshot() == stored.snapshot()
        for transaction in live.transactions.values():
            is_open = transaction.state is State.ONGOING or transaction.state.is_prepared
            assert bool(transaction.partitions) == is_open
        self.check_markers()

    def check_markers(self) -> None:
        """Checks that no marker is older than what a partition has seen, and that one end is one
        decision, whichever coordinator sends it. (Older clients use one epoch for many
        transactions.)"""
        for written in self.partitions.markers.values():
            latest: dict[int, int] = {}
            for producer, _, coordinator_epoch in written:
                assert producer.epoch >= latest.get(producer.id, 0)
                assert coordinator_epoch <= self.leader_epoch
                latest[producer.id] = producer.epoch
        ends: dict[tuple[str, int, int], bool] = {}
        for marker in self.partitions.sent:
            if marker.transaction_version == BUMPING:
                assert ends.setdefault(marker[:3], marker.commit) == marker.commit

    def note(self, name: str, producer: ProducerIdAndEpoch, *, is_fresh: bool) -> None:
        assert 0 <= producer.epoch <= LAST_EPOCH
        if is_fresh:
            assert all(producer not in owners for owners in self.given.values())
        if producer not in self.given[name]:
            self.given[name].append(producer)

    # -- what happens ----------------------------------------------------------------------

    def handle(self, name: str, number: int) -> ProducerIdAndEpoch:
        given = self.given[name]
        return given[-1 - number] if number < len(given) else NO_PRODUCER

    async def take(self, step: object) -> None:
        table = self.log.tables[0]
        table.now_ms = self.clock.wall_ms()
        match step:
            case Wait(duration_ms):
                self.clock.advance_ms(duration_ms)
            case Hold(is_held):
                self.partitions.is_held = is_held
                if not is_held:
                    self.partitions.let_go()
            case RefuseMarkers(partition, None):
                self.partitions.refusals.pop(partition, None)
            case RefuseMarkers(partition, code):
                assert code is not None
                self.partitions.refusals[partition] = code
            case RefuseWrites(is_refused):
                self.log.refusal = ErrorCode.NOT_ENOUGH_REPLICAS if is_refused else None
            case HoldWrites(is_held):
                self.log.is_held = is_held
                if not is_held:
                    self.log.commit()
            case Compact(is_all):
                self.compact(is_all)
            case Restart():
                self.log.commit()  # the written records stay, because the disk was not lost
            case _:
                await self.ask(step)

    def compact(self, is_all: bool) -> None:
        table = self.log.tables[0]
        if is_all:
            table.roll()
        before = replay_log(self.log).snapshot()
        table.compact()
        assert replay_log(self.log).snapshot() == before

    async def ask(self, step: object) -> None:
        asking = asyncio.create_task(self.request(step))
        await self.harness.turns()
        if not asking.done():
            self.log.time_out()  # its writes have been held back
        await asking

    async def request(self, step: object) -> None:
        harness = self.harness
        match step:
            case Init(name, claims, is_two_phase, keep_prepared):
                claimed = None if claims is None else self.handle(name, claims)
                reply = await harness.init(
                    name,
                    claimed=claimed,
                    two_phase=is_two_phase,
                    keep_prepared=is_two_phase and keep_prepared,
                )
                assert reply.code in CODES, reply
                if reply.code is NONE:
                    who = ProducerIdAndEpoch(reply.producer_id, reply.producer_epoch)
                    self.note(name, who, is_fresh=claimed in (None, NO_PRODUCER))
            case Add(name, handle, some, version):
                who = self.handle(name, handle)
                assert await harness.add(who, *some, name=name, version=version) in CODES
            case Verify(name, handle):
                who = self.handle(name, handle)
                codes = await harness.coordinator.verify_partitions(
                    name, who.id, who.epoch, PARTITIONS
                )
                assert CODES.issuperset(codes.values())
            case End(name, handle, commit, version):
                who = self.handle(name, handle)
                ended = await harness.end(who, commit=commit, name=name, version=version)
                assert ended.code in CODES, ended
                if ended.code is NONE:
                    self.note(
                        name,
                        ProducerIdAndEpoch(ended.producer_id, ended.producer_epoch),
                        is_fresh=False,
                    )


@settings(
    max_examples=scaled(test=100, verify=1_000, release=20_000),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(histories, first_epochs)
def test_state_log_and_compacted_log_agree_after_every_step(
    history: list[tuple[object, ...]], first_epoch: int | None
) -> None:
    asyncio.run(Life(first_epoch).live(history))
