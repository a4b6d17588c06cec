"""Half messages: delivered if, and only if, the first decision is to commit. RocketMQ's nine
reported errors are each a test here (its issues are named)."""

from collections.abc import Sequence
from dataclasses import replace
from uuid import UUID

from tests.unit.coordinators.deferred.harness import (
    CHECKS,
    EXPIRED,
    FIRST,
    SECOND,
    DeferredCoordinatorHarness,
    run_scenario,
)

from penstock.coordinators.deferred.config import DeferredConfig
from penstock.coordinators.deferred.half_rounds import POLL_MS
from penstock.coordinators.deferred.half_values import (
    HalfDecision,
    HalfIntake,
    HalfStatus,
    HalfWord,
    IntakeReply,
    ReadUpTo,
)
from penstock.coordinators.deferred.values import DeferredMessage, HalfKey, Hold, Target
from penstock.model.errors import ErrorCode, Refusal
from penstock.model.ids import TopicId

HALVES = Target(TopicId(UUID(int=10)), 0)
MORE_HALVES = Target(TopicId(UUID(int=10)), 1)
DECISIONS = Target(TopicId(UUID(int=11)), 0)
MORE_DECISIONS = Target(TopicId(UUID(int=11)), 1)
CONFIG = DeferredConfig(
    first_check_ms=6_000, check_interval_ms=30_000, max_check_interval_ms=120_000, max_checks=3
)
COMMIT, ROLLBACK = HalfWord.COMMIT, HalfWord.ROLLBACK


def half(
    half_id: str, value: bytes, *, target: Target = FIRST, delay_ms: int = 0, topic: str = "orders"
) -> DeferredMessage:
    hold = Hold(HalfKey("shop", half_id), topic, delay_ms)
    return DeferredMessage(0, target, None, 0, b"key", value, (("trace", b"1"),), hold)


class Shop:
    """A group of producers at a coordinator: what is read of its halves and decisions."""

    def __init__(self, harness: DeferredCoordinatorHarness) -> None:
        self.harness = harness
        self.read: dict[Target, int] = {}

    async def take(
        self,
        source: Target,
        *,
        messages: Sequence[DeferredMessage] = (),
        decisions: Sequence[HalfDecision] = (),
        after: Sequence[ReadUpTo] = (),
        base: int | None = None,
        topic: str = "orders",
    ) -> IntakeReply:
        base = self.read.get(source, 0) if base is None else base
        end = base + len(messages) + len(decisions)
        intake = HalfIntake(
            "shop", topic, source, base, end, 0, EXPIRED, messages, decisions, after
        )
        reply = await self.harness.coordinator.take_intake(intake)
        assert reply.code is ErrorCode.NONE
        self.read[source] = reply.next_offset
        await self.harness.settle()
        return reply

    async def send(self, *messages: DeferredMessage, source: Target = HALVES) -> None:
        await self.take(source, messages=messages)

    async def decide(
        self, half_id: str, word: HalfWord, *, source: Target = DECISIONS, topic: str = "orders"
    ) -> IntakeReply:
        reply = await self.take(source, decisions=[HalfDecision(half_id, word)], topic=topic)
        await self.harness.advance_ms(0)
        return reply

    async def wait_for_checks(self, count: int) -> None:
        """Time passes until so many have been asked, and each is consumed at once."""
        for _ in range(1_000):
            if len(self.checks) >= count:
                return
            self.harness.cluster.consumed = len(self.checks)
            await self.harness.advance_ms(POLL_MS)
        raise AssertionError(f"{len(self.checks)} checks, not {count}")

    @property
    def checks(self) -> list[bytes | None]:
        return self.harness.targets.values[CHECKS]

    @property
    def delivered(self) -> list[bytes | None]:
        return self.harness.targets.values[FIRST]

    def status(self, half_id: str) -> HalfStatus:
        return self.harness.shard.state.halves.halves[HalfKey("shop", half_id)].status


def harness() -> DeferredCoordinatorHarness:
    return DeferredCoordinatorHarness(config=CONFIG)


def test_a_half_is_delivered_when_it_is_committed_and_not_before() -> None:
    async def scenario() -> None:
        async with harness().running() as running:
            shop = Shop(running)
            await shop.send(half("a", b"one"), half("a", b"two", target=SECOND))
            await running.advance_ms(5_000)
            assert shop.delivered == []
            await shop.decide("a", COMMIT)
            assert shop.delivered == [b"one"]
            assert running.targets.values[SECOND] == [b"two"]
            assert running.coordinator.statistics().halves.committed == 1
            assert running.coordinator.statistics().halves.pending == 0

    run_scenario(scenario)


def test_what_is_rolled_back_is_never_delivered_and_its_records_are_removed() -> None:
    async def scenario() -> None:
        async with harness().running() as running:
            shop = Shop(running)
            await shop.send(half("a", b"one"), half("a", b"two"))
            await shop.decide("a", ROLLBACK)
            assert len(running.shard.state.halves.dropped) == 2
            await running.advance_ms(CONFIG.forget_interval_ms)
            assert not running.shard.state.halves.dropped
            await running.advance_ms(CONFIG.decided_retention_ms + 2 * CONFIG.forget_interval_ms)
            assert not running.shard.state.halves.halves, "forgotten, after a while"
            assert shop.delivered == []
            assert shop.checks == []

    run_scenario(scenario)


def test_a_delay_counts_from_the_commit() -> None:
    async def scenario() -> None:
        async with harness().running() as running:
            shop = Shop(running)
            await shop.send(half("a", b"one", delay_ms=2_000))
            await running.advance_ms(5_000)
            await shop.decide("a", COMMIT)
            await running.advance_ms(1_999)
            assert shop.delivered == []
            await running.advance_ms(1)
            assert shop.delivered == [b"one"]

    run_scenario(scenario)


def test_the_next_leader_knows_what_is_held_decided_and_read() -> None:
    async def scenario() -> None:
        before = harness()
        async with before.running():
            shop = Shop(before)
            await shop.send(half("a", b"one"), half("b", b"two"), half("c", b"three"))
            before.targets.loses_answers = True
            await shop.decide("a", COMMIT)
            await shop.decide("b", ROLLBACK)
        before.targets.loses_answers = False
        after = DeferredCoordinatorHarness(
            before.log, clock=before.clock, targets=before.targets, config=CONFIG
        )
        async with after.running():
            later = Shop(after)
            assert (await later.take(HALVES, base=0)).next_offset == 3
            assert (await later.take(DECISIONS, base=0)).next_offset == 2
            await later.decide("c", COMMIT)
            assert later.delivered == [b"one", b"three"]

    run_scenario(scenario)


def test_what_was_read_twice_is_taken_once() -> None:
    async def scenario() -> None:
        async with harness().running() as running:
            shop = Shop(running)
            await shop.send(half("a", b"one"))
            await shop.take(HALVES, messages=[half("a", b"one")], base=0)
            await shop.decide("a", COMMIT)
            assert shop.delivered == [b"one"]

    run_scenario(scenario)


def test_a_decision_waits_until_all_half_topics_are_read_as_of_it() -> None:
    """Otherwise an id would commit in part."""

    async def scenario() -> None:
        async with harness().running() as running:
            shop = Shop(running)
            await shop.send(half("a", b"one"))
            ends = [ReadUpTo(HALVES, 1), ReadUpTo(MORE_HALVES, 1)]
            commit = [HalfDecision("a", COMMIT)]
            early = await shop.take(DECISIONS, decisions=commit, after=ends)
            assert early.next_offset == 0, "nothing is taken"
            await shop.send(half("a", b"two"), source=MORE_HALVES)
            await shop.take(DECISIONS, decisions=commit, after=ends)
            await running.advance_ms(0)
            assert shop.delivered == [b"one", b"two"]

    run_scenario(scenario)


def test_whoever_decides_for_one_topic_decides_nothing_about_others() -> None:
    async def scenario() -> None:
        async with harness().running() as running:
            shop = Shop(running)
            await shop.send(half("a", b"one"))
            assert (await shop.decide("a", COMMIT, topic="payments")).ignored == 1
            assert shop.delivered == []

    run_scenario(scenario)


def test_an_id_has_records_of_several_topics() -> None:
    async def scenario() -> None:
        async with harness().running() as running:
            shop = Shop(running)
            await shop.send(half("a", b"one"), half("a", b"two", target=SECOND, topic="payments"))
            await shop.decide("a", COMMIT, topic="payments")
            assert shop.delivered == [b"one"]
            assert running.targets.values[SECOND] == [b"two"]

    run_scenario(scenario)


def test_a_half_that_comes_after_the_decision_can_be_seen_among_the_expired() -> None:
    async def scenario() -> None:
        async with harness().running() as running:
            shop = Shop(running)
            await shop.send(half("a", b"one"))
            await shop.decide("a", COMMIT)
            await shop.send(half("a", b"late"))
            await running.advance_ms(0)
            assert shop.delivered == [b"one"]
            assert running.targets.values[EXPIRED] == [b"late"]

    run_scenario(scenario)


def test_checks_come_after_6_s_and_then_every_30_s_with_back_off() -> None:
    async def scenario() -> None:
        async with harness().running() as running:
            shop = Shop(running)
            await shop.send(half("a", b"one"))
            await running.advance_ms(5_999)
            await running.advance_ms(0)
            assert shop.checks == []
            await running.advance_ms(1)
            await running.advance_ms(0)
            assert shop.checks == [b"one"]
            for count, interval_ms in ((1, 30_000), (2, 60_000)):
                running.cluster.consumed = count
                await running.advance_ms(POLL_MS)
                await running.advance_ms(interval_ms - 1)
                await running.advance_ms(0)
                assert len(shop.checks) == count
                await running.advance_ms(1)
                await running.advance_ms(0)
                assert len(shop.checks) == count + 1

    run_scenario(scenario)


# -- what RocketMQ got wrong ---------------------------------------------------------------


def test_a_second_commit_delivers_nothing_twice() -> None:
    """rocketmq#5574: a client's retry, or the answer to a check beside a late one."""

    async def scenario() -> None:
        async with harness().running() as running:
            shop = Shop(running)
            await shop.send(half("a", b"one"))
            await shop.decide("a", COMMIT)
            await shop.decide("a", COMMIT, source=MORE_DECISIONS)
            await running.advance_ms(10_000)
            assert shop.delivered == [b"one"]
            assert running.coordinator.statistics().halves.committed == 1

    run_scenario(scenario)


def test_a_commit_after_a_rollback_by_check_delivers_nothing() -> None:
    """rocketmq#8158(2), #2694."""

    async def scenario() -> None:
        async with harness().running() as running:
            shop = Shop(running)
            await shop.send(half("a", b"one"))
            await shop.wait_for_checks(1)
            await shop.decide("a", ROLLBACK)
            assert (await shop.decide("a", COMMIT, source=MORE_DECISIONS)).ignored == 1
            assert shop.delivered == []
            assert shop.status("a") is HalfStatus.ROLLED_BACK

    run_scenario(scenario)


def test_checks_end_with_the_decision() -> None:
    """rocketmq#8158(3), #1517: once checked, it was checked up to the limit."""

    async def scenario() -> None:
        async with harness().running() as running:
            shop = Shop(running)
            await shop.send(half("a", b"one"))
            await shop.wait_for_checks(1)
            running.cluster.consumed = 1
            await shop.decide("a", COMMIT)
            await running.advance_ms(10 * CONFIG.max_check_interval_ms)
            assert shop.checks == [b"one"]
            assert shop.delivered == [b"one"]

    run_scenario(scenario)


def test_a_commit_after_it_has_expired_delivers_nothing() -> None:
    """rocketmq#8158(4)."""

    async def scenario() -> None:
        async with harness().running() as running:
            shop = await expired_shop(running)
            assert (await shop.decide("a", COMMIT)).ignored == 1
            assert shop.delivered == []
            assert shop.status("a") is HalfStatus.EXPIRED

    run_scenario(scenario)


async def expired_shop(running: DeferredCoordinatorHarness) -> Shop:
    shop = Shop(running)
    await shop.send(half("a", b"one"))
    await shop.wait_for_checks(CONFIG.max_checks)
    running.cluster.consumed = CONFIG.max_checks
    await running.advance_ms(POLL_MS)
    await running.advance_ms(CONFIG.max_check_interval_ms)
    await running.advance_ms(POLL_MS)
    assert shop.status("a") is HalfStatus.EXPIRED
    return shop


def test_a_shard_says_that_it_holds_as_many_halves_as_it_may() -> None:
    async def scenario() -> None:
        config = replace(CONFIG, max_held=2)
        async with DeferredCoordinatorHarness(config=config).running() as running:
            shop = Shop(running)
            one = await shop.take(HALVES, messages=[half("a", b"one")])
            two = await shop.take(HALVES, messages=[half("b", b"two")])
            three = await shop.take(HALVES, messages=[half("a", b"three")])
            assert [reply.is_full for reply in (one, two, three)] == [False, True, True]
            assert (await shop.decide("b", ROLLBACK)).is_full
            assert not (await shop.decide("a", COMMIT)).is_full
            assert shop.delivered == [b"one", b"three"], "what was stored is not lost"

    run_scenario(scenario)


def test_a_round_that_fails_writes_nothing_again() -> None:
    """rocketmq#1568, #9500: halves were renewed for ever, until the disk was full."""

    async def scenario() -> None:
        async with harness().running() as running:
            shop = Shop(running)
            await shop.send(half("a", b"one"))
            await shop.wait_for_checks(1)
            running.cluster.refusal = Refusal(ErrorCode.NETWORK_EXCEPTION)
            end_before = running.log.ends(0).end
            for _ in range(50):
                await running.advance_ms(POLL_MS)
            assert running.log.ends(0).end == end_before
            assert len(shop.checks) == 1
            running.cluster.refusal = None
            await shop.wait_for_checks(2)

    run_scenario(scenario)


def test_a_group_that_is_away_costs_no_checks() -> None:
    """rocketmq#8311: tries were spent without a check being sent."""

    async def scenario() -> None:
        async with harness().running() as running:
            shop = Shop(running)
            running.cluster.has_checks_topic = False
            await shop.send(half("a", b"one"))
            for _ in range(20):
                await running.advance_ms(60_000)
            assert shop.checks == []
            assert any("there is no topic shop.half.checks" in line for line in running.reports)
            running.cluster.has_checks_topic = True
            await running.advance_ms(POLL_MS)
            for _ in range(20):
                await running.advance_ms(60_000)
            assert shop.checks == [b"one"], "one waits for a member, and counts when it has it"
            assert shop.status("a") is HalfStatus.PENDING

    run_scenario(scenario)


def test_it_does_not_expire_before_every_decision_is_read() -> None:
    """rocketmq#8311: the last try was judged before that."""

    async def scenario() -> None:
        async with harness().running() as running:
            shop = Shop(running)
            await shop.send(half("a", b"one"))
            await shop.wait_for_checks(CONFIG.max_checks)
            running.cluster.consumed = CONFIG.max_checks
            running.cluster.ends = [ReadUpTo(DECISIONS, 1)]
            await running.advance_ms(10 * CONFIG.max_check_interval_ms)
            await running.advance_ms(POLL_MS)
            assert shop.status("a") is HalfStatus.PENDING
            await shop.decide("a", COMMIT)
            assert shop.delivered == [b"one"]

    run_scenario(scenario)


def test_halves_of_the_same_millisecond_are_all_asked_about() -> None:
    """rocketmq#544: a comparison of equal times skipped a check for ever."""

    async def scenario() -> None:
        async with harness().running() as running:
            shop = Shop(running)
            await shop.send(*(half(str(number), b"%d" % number) for number in range(150)))
            await running.advance_ms(6_000)
            for _ in range(5):
                await running.advance_ms(POLL_MS)
            assert sorted(shop.checks, key=str) == sorted(
                (b"%d" % number for number in range(150)), key=str
            )

    run_scenario(scenario)


def test_what_has_expired_can_be_seen_and_revived() -> None:
    """rocketmq-dashboard#4435."""

    async def scenario() -> None:
        async with harness().running() as running:
            shop = await expired_shop(running)
            await running.advance_ms(POLL_MS)
            assert running.targets.values[EXPIRED] == [b"one"]
            assert running.coordinator.statistics().halves.expired == 1
            await shop.decide("a", HalfWord.REVIVE)
            await running.advance_ms(POLL_MS)
            assert len(shop.checks) == CONFIG.max_checks + 1, "it is asked about at once"
            await shop.decide("a", COMMIT)
            assert shop.delivered == [b"one"]

    run_scenario(scenario)


def test_a_check_can_be_asked_for() -> None:
    async def scenario() -> None:
        async with harness().running() as running:
            shop = Shop(running)
            await shop.send(half("a", b"one"))
            await shop.decide("a", HalfWord.CHECK)
            await running.advance_ms(POLL_MS)
            assert shop.checks == [b"one"]

    run_scenario(scenario)
