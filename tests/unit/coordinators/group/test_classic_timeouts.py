"""Timeouts of classic groups: no state waits for a silent member forever."""

from tests.unit.coordinators.group.classic_harness import (
    REBALANCE_MS,
    SESSION_MS,
    ClassicGroupHarness,
    Client,
    rejoin,
    settle,
)

from penstock.coordinators.group.classic.state import ClassicState
from penstock.coordinators.group.config import GroupConfig
from penstock.coordinators.group.timer_key import TimerKey
from penstock.model.errors import ErrorCode


def keep_alive(harness: ClassicGroupHarness, *clients: Client, for_ms: int) -> None:
    """Let time pass while these members send heartbeats."""
    for _ in range(for_ms // 3000):
        harness.pass_time(3000)
        for client in clients:
            client.heartbeat()


def test_a_member_that_sends_heartbeats_stays() -> None:
    harness = ClassicGroupHarness()
    anna = Client(harness, "anna")
    settle(anna)
    keep_alive(harness, anna, for_ms=10 * SESSION_MS)
    assert anna.heartbeat() is ErrorCode.NONE


def test_a_member_without_heartbeats_is_removed_and_the_group_rebalances() -> None:
    harness = ClassicGroupHarness()
    anna, ben = Client(harness, "anna"), Client(harness, "ben")
    settle(anna, ben)
    harness.pass_time(SESSION_MS - 1)
    anna.heartbeat()
    harness.pass_time(1)
    assert anna.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
    rejoin(anna)
    assert list(harness.group.members) == [anna.id]
    assert ben.heartbeat() is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_group_without_heartbeats_becomes_empty() -> None:
    harness = ClassicGroupHarness()
    settle(Client(harness, "anna"), Client(harness, "ben"))
    harness.pass_time(SESSION_MS + REBALANCE_MS)
    assert harness.group.state is ClassicState.EMPTY
    assert not harness.timers


def test_members_that_do_not_join_the_rebalance_in_time_are_removed() -> None:
    harness = ClassicGroupHarness()
    anna, ben, cleo = (Client(harness, name) for name in ("anna", "ben", "cleo"))
    settle(anna, ben)
    arrival = cleo.come()
    call = ben.join()
    keep_alive(harness, anna, for_ms=REBALANCE_MS - 3000)
    assert arrival.waits, "the one that is awaited is alive"
    keep_alive(harness, anna, for_ms=3000)
    assert {member.id for member in (ben, cleo)} == set(harness.group.members)
    assert call.reply.leader == ben.id, "a leader that did not come leads no more"
    assert anna.heartbeat() is ErrorCode.UNKNOWN_MEMBER_ID


def test_the_session_of_a_member_does_not_expire_while_its_request_waits() -> None:
    harness = ClassicGroupHarness()
    anna, ben = Client(harness, "anna"), Client(harness, "ben")
    settle(anna, ben)
    call = ben.join(protocols=ben.join_request().protocols * 2)
    keep_alive(harness, anna, for_ms=3 * SESSION_MS)
    assert call.waits
    anna.join()
    assert call.error is ErrorCode.NONE
    waiting = ben.sync()
    keep_alive(harness, anna, for_ms=3 * SESSION_MS)
    assert waiting.waits
    anna.assign()
    assert waiting.error is ErrorCode.NONE


def test_a_member_that_joined_and_does_not_sync_is_removed() -> None:
    harness = ClassicGroupHarness()
    anna, ben = Client(harness, "anna"), Client(harness, "ben")
    settle(anna)
    ben.come()
    anna.join()
    anna.assign()
    keep_alive(harness, anna, ben, for_ms=REBALANCE_MS)
    assert anna.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
    assert ben.heartbeat() is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_leader_that_does_not_assign_is_removed_and_the_group_rebalances() -> None:
    harness = ClassicGroupHarness()
    anna, ben = Client(harness, "anna"), Client(harness, "ben")
    settle(anna)
    ben.come()
    anna.join()
    waiting = ben.sync()
    keep_alive(harness, anna, for_ms=REBALANCE_MS)
    assert waiting.error is ErrorCode.REBALANCE_IN_PROGRESS
    rejoin(ben)
    assert ben.leads
    assert harness.group.state is ClassicState.STABLE


def test_a_member_that_must_rejoin_and_sends_nothing_is_removed() -> None:
    harness = ClassicGroupHarness()
    anna, ben, cleo = (Client(harness, name) for name in ("anna", "ben", "cleo"))
    settle(anna)
    ben.come()
    anna.join()
    ben.sync()
    keep_alive(harness, anna, for_ms=SESSION_MS + 3000)
    cleo.come()
    anna.join()
    keep_alive(harness, anna, for_ms=SESSION_MS + 3000)
    assert set(harness.group.members) == {anna.id, cleo.id}


def test_the_sync_timer_stops_when_all_have_synced() -> None:
    harness = ClassicGroupHarness()
    settle(Client(harness, "anna"), Client(harness, "ben"))
    assert {key.kind for key in harness.timers} == {"session"}


def test_a_pending_member_delays_the_rebalance_for_its_session_at_most() -> None:
    harness = ClassicGroupHarness()
    anna, ben = Client(harness, "anna"), Client(harness, "ben")
    settle(anna)
    ben.join()
    call = anna.join()
    assert call.waits, "one more is about to come"
    harness.pass_time(SESSION_MS)
    assert call.error is ErrorCode.NONE
    assert ben.join().error is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_new_member_without_a_response_expires_eventually() -> None:
    harness = ClassicGroupHarness(
        GroupConfig(initial_rebalance_delay_ms=0, new_member_join_timeout_ms=20_000)
    )
    anna, ben = Client(harness, "anna"), Client(harness, "ben")
    settle(anna)
    call = ben.come()
    keep_alive(harness, anna, for_ms=21_000)
    assert call.error is ErrorCode.UNKNOWN_MEMBER_ID
    rejoin(anna)
    assert list(harness.group.members) == [anna.id]


def test_the_join_phase_repeats_while_only_absent_static_members_are_left() -> None:
    harness = ClassicGroupHarness()
    anna = Client(harness, "anna", instance="anna-1", session_timeout_ms=300_000)
    ben = Client(harness, "ben", rebalance_timeout_ms=REBALANCE_MS)
    settle(anna, ben)
    ben.leave()
    harness.pass_time(2 * REBALANCE_MS)
    assert list(harness.group.members) == [anna.id]
    assert anna.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
    harness.pass_time(300_000 + REBALANCE_MS)
    assert harness.group.state is ClassicState.EMPTY


def test_a_late_timer_changes_nothing() -> None:
    harness = ClassicGroupHarness()
    anna = Client(harness, "anna")
    settle(anna)
    for kind, member in (("join", ""), ("sync", ""), ("session", "ben-1"), ("other", "")):
        key = TimerKey(harness.group.name, kind, member)
        harness.timers[key] = harness.now_ms
        harness.fire(key)
    assert anna.heartbeat() is ErrorCode.NONE
    assert len(harness.log) == 1
