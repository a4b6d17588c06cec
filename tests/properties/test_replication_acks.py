"""Writes, flushes, followers, elections, deletions and time in any order: every request gets one
response, which reports success only once the write is as safe as its acks demand, and comes as soon
as it is.

The model tracks the ISR and the end offset of each follower; the end and durable offset of the
leader's own log are taken from storage.
"""

from __future__ import annotations

from errno import EIO
from functools import partial

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.profile import scaled
from tests.unit.replication.harness import ME, OTHER, P0, P1, THIRD, ReplicationHarness, some_batch

from penstock.model.cluster import BrokerId
from penstock.model.errors import ErrorCode
from penstock.model.ids import Offset, TopicPartition
from penstock.replication.delayed_produce import PartitionAppended
from penstock.testing.simulated_disk import OperationKind

SETTINGS = settings(
    max_examples=scaled(test=100, verify=1000, release=20_000),
    stateful_step_count=40,
    deadline=None,
)
NAMES = (P0, P1)
REPLICAS = (ME, OTHER, THIRD)
SETS = ((ME,), (ME, OTHER), REPLICAS)
NAME = st.sampled_from(NAMES)


class Leadership:
    """One leadership of this broker, as the model sees it."""

    def __init__(self, high_watermark: int) -> None:
        # The high watermark: the largest offset that all in-sync replicas have reached at the same
        # time. It starts at the log's own, which an earlier leader may have advanced.
        self.committed = high_watermark
        self.durable = 0
        self.is_over = False


class PartitionModel:
    """The expected leadership and ISR of a partition."""

    def __init__(self) -> None:
        self.epoch = -1
        self.partition_epoch = 0
        self.in_sync: tuple[BrokerId, ...] = (ME,)
        self.ends: dict[BrokerId, int] = {}  # of all followers, in this epoch
        self.leadership: Leadership | None = None  # None: another broker leads, or none does


class Request:
    def __init__(self, acks: int, deadline_ms: int, is_synchronous: bool) -> None:
        self.acks = acks
        self.deadline_ms = deadline_ms
        self.is_synchronous = is_synchronous
        self.shares: list[tuple[TopicPartition, Leadership | None, int]] = []  # and record count
        self.responses: list[list[PartitionAppended]] = []
        self.ends: list[int] = []  # log end offsets after the write


class Broker(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        # The model has no lag: a replica outside the ISR is not waited for.
        never = {"replica.lag.time.max.ms": "0", "replica.fetch.wait.max.ms": "0"}
        self.harness = ReplicationHarness(max_delayed_operations=10_000, broker=never)
        self.led = {name: PartitionModel() for name in NAMES}
        self.requests: list[Request] = []
        self.is_synchronous = False
        self.has_failed = False
        self.sequence = 0

    @initialize(in_sync=st.sampled_from(SETS), is_synchronous=st.booleans())
    def start(self, in_sync: tuple[BrokerId, ...], is_synchronous: bool) -> None:
        self.set_synchronous(is_synchronous)
        for name in NAMES:
            self.lead(name, in_sync)

    # -- what may happen -------------------------------------------------------------------

    @rule(
        names=st.permutations(NAMES).flatmap(
            lambda order: st.integers(1, len(NAMES)).map(lambda count: order[:count])
        ),
        acks=st.sampled_from([-1, -1, -1, 0, 1]),
        timeout_ms=st.integers(0, 30),
        records=st.integers(1, 3),
        kind=st.sampled_from(["plain", "plain", "idempotent", "damaged"]),
    )
    def append(
        self, names: list[TopicPartition], acks: int, timeout_ms: int, records: int, kind: str
    ) -> None:
        batch = some_batch(records)
        if kind == "idempotent":
            batch = some_batch(records, producer_id=7, sequence=self.sequence % 3)
        if kind == "damaged":
            batch[-1] ^= 1
        self.sequence += 1
        deadline_ms = self.harness.clock.now_ms() + timeout_ms
        request = Request(acks, deadline_ms, self.is_synchronous)
        request.shares = [(name, self.led[name].leadership, records) for name in names]
        self.requests.append(request)
        self.harness.replicas.append(
            [(name, memoryview(batch[:])) for name in names],
            acks=acks,
            timeout_ms=timeout_ms,
            done=partial(self.check_response, request),
        )
        request.ends = [self.end_of(name) for name in names]

    @rule()
    def finish_a_flush(self) -> None:
        self.harness.background.run_one()

    @rule(duration_ms=st.integers(1, 40))
    def pass_time(self, duration_ms: int) -> None:
        self.harness.clock.advance_ms(duration_ms)

    @rule(name=NAME, follower=st.sampled_from([OTHER, THIRD]), behind=st.integers(0, 3))
    def follow_up(self, name: TopicPartition, follower: BrokerId, behind: int) -> None:
        led = self.led[name]
        if led.leadership is None or self.has_failed:
            return
        end = max(0, self.harness.partition(name).log_end_offset - behind)
        led.ends[follower] = end
        self.harness.replicas.update_follower_end_offset(
            self.harness.replicas.get(name), follower, Offset(end)
        )

    @rule(name=NAME, in_sync=st.sampled_from(SETS))
    def lead(self, name: TopicPartition, in_sync: tuple[BrokerId, ...]) -> None:
        """Becomes leader for the first time or again, or stays leader in the next epoch."""
        led = self.led[name]
        led.epoch += 1
        led.partition_epoch = 0
        led.in_sync, led.ends = in_sync, {}
        partition = self.harness.replicas.find(name)
        led.leadership = led.leadership or Leadership(
            0 if partition is None else partition.high_watermark
        )
        self.send_leader_and_isr(name, ME)

    @rule(name=NAME, in_sync=st.sampled_from(SETS))
    def change_the_set(self, name: TopicPartition, in_sync: tuple[BrokerId, ...]) -> None:
        led = self.led[name]
        if led.leadership is None:
            return
        led.partition_epoch += 1
        led.in_sync = in_sync
        self.send_leader_and_isr(name, ME)

    @rule(name=NAME, cut_to=st.none() | st.integers(0, 4))
    def lose_the_lead(self, name: TopicPartition, cut_to: int | None) -> None:
        """Another broker becomes leader, and may lack uncommitted records."""
        led = self.led[name]
        self.end_leadership(name)
        led.epoch += 1
        self.send_leader_and_isr(name, OTHER)
        if cut_to is not None and not self.has_failed:
            log = self.harness.partition(name).log
            log.truncate_to(Offset(log.high_watermark + cut_to), 0)

    @rule(name=NAME, delete=st.booleans())
    def stop(self, name: TopicPartition, delete: bool) -> None:
        if self.harness.replicas.find(name) is None:
            return
        self.end_leadership(name)
        self.harness.stop(name, delete=delete)
        if not delete or self.has_failed:
            return
        self.led[name].epoch += 1
        self.send_leader_and_isr(name, OTHER)  # so that the replica exists again

    @rule(is_synchronous=st.booleans(), min_in_sync=st.integers(1, 3))
    def set_synchronous(self, is_synchronous: bool, min_in_sync: int = 1) -> None:
        for name in NAMES:
            self.observe(name)
        self.is_synchronous = is_synchronous
        self.harness.update_topic(
            flush_messages="1" if is_synchronous else "1000000",
            min_insync_replicas=str(min_in_sync),
        )

    @precondition(lambda self: len(self.requests) > 8 and not self.has_failed)
    @rule()
    def break_the_disk(self) -> None:
        self.has_failed = True
        self.harness.disk.fail_path("/d", EIO, {OperationKind.WRITE, OperationKind.SYNC})

    def end_of(self, name: TopicPartition) -> int:
        partition = self.harness.replicas.find(name)  # None: it was deleted on a failed disk
        return 0 if partition is None else partition.log_end_offset

    # -- what the model knows --------------------------------------------------------------

    def send_leader_and_isr(self, name: TopicPartition, leader: BrokerId) -> None:
        led = self.led[name]
        responses = self.harness.leader_and_isr(
            name,
            leader=leader,
            epoch=led.epoch,
            replicas=REPLICAS,
            in_sync=led.in_sync,
            partition_epoch=led.partition_epoch,
        )
        assert self.has_failed or responses == {name: ErrorCode.NONE}

    def end_leadership(self, name: TopicPartition) -> None:
        self.observe(name)
        led = self.led[name]
        if led.leadership is not None:
            led.leadership.is_over = True
        led.leadership = None

    def observe(self, name: TopicPartition) -> None:
        led, partition = self.led[name], self.harness.replicas.find(name)
        if led.leadership is None or partition is None:
            return
        log = partition.log
        own = log.durable_offset if self.is_synchronous else log.log_end_offset
        ends = [led.ends.get(broker, 0) for broker in led.in_sync if broker != ME]
        led.leadership.committed = max(led.leadership.committed, min([own, *ends]))
        led.leadership.durable = max(led.leadership.durable, log.durable_offset)

    def check_response(self, request: Request, responses: list[PartitionAppended]) -> None:
        request.responses.append(responses)
        assert len(request.responses) == 1
        assert len(responses) == len(request.shares)
        for name in NAMES:
            self.observe(name)
        for (_, leadership, records), response in zip(request.shares, responses, strict=True):
            self.check_write(request, leadership, response, response.base_offset + records)

    def check_write(
        self, request: Request, leadership: Leadership | None, response: PartitionAppended, end: int
    ) -> None:
        if response.code is ErrorCode.NONE:
            assert leadership is not None
            if request.acks == -1:
                assert leadership.committed >= end
            elif request.is_synchronous:
                assert leadership.durable >= end
        elif response.code is ErrorCode.REQUEST_TIMED_OUT:
            assert self.harness.clock.now_ms() >= request.deadline_ms
        elif response.code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
            assert leadership is None or leadership.is_over or self.has_failed
        elif response.code is ErrorCode.KAFKA_STORAGE_ERROR:
            assert self.has_failed
        else:
            assert response.code in EXPECTED

    # -- what always holds -----------------------------------------------------------------

    @invariant()
    def readers_see_what_is_committed_and_all_of_it(self) -> None:
        for name in NAMES:
            partition = self.harness.replicas.find(name)
            leadership = self.led[name].leadership
            if partition is not None and leadership is not None and not self.has_failed:
                self.observe(name)
                assert partition.is_leader
                assert partition.high_watermark == leadership.committed

    @invariant()
    def nobody_waits_past_the_deadline(self) -> None:
        now_ms = self.harness.clock.now_ms()
        for request in self.requests:
            assert request.responses or now_ms <= request.deadline_ms

    @invariant()
    def no_decided_request_is_delayed(self) -> None:
        for request in self.requests:
            assert request.responses or self.has_failed or self.is_undecided(request)

    def is_undecided(self, request: Request) -> bool:
        for (_, leadership, _), end in zip(request.shares, request.ends, strict=True):
            if leadership is not None and not leadership.is_over:
                reached = leadership.committed if request.acks == -1 else leadership.durable
                if reached < end:
                    return True
        return False

    def teardown(self) -> None:
        self.harness.background.drain()
        self.harness.clock.advance_ms(1000)
        assert all(len(request.responses) == 1 for request in self.requests)
        assert self.harness.replicas.statistics().produces.delayed == 0


EXPECTED = (
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode.UNKNOWN_PRODUCER_ID,
    ErrorCode.DUPLICATE_SEQUENCE_NUMBER,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
)

TestBroker = Broker.TestCase
TestBroker.settings = SETTINGS
