"""A classic group after a coordinator restart: stored state is restored, volatile state is lost."""

from tests.unit.coordinators.group.classic_harness import (
    SESSION_MS,
    ClassicGroupHarness,
    Client,
    rejoin,
    settle,
    work_of,
)

from penstock.coordinators.group.classic.group import ClassicGroup
from penstock.coordinators.group.classic.state import ClassicState, replay
from penstock.coordinators.group.config import GroupConfig
from penstock.coordinators.group.records import GroupValue, MemberValue
from penstock.model.errors import ErrorCode


def test_members_of_a_stable_group_are_not_affected() -> None:
    harness = ClassicGroupHarness()
    anna, ben = Client(harness, "anna"), Client(harness, "ben")
    settle(anna, ben)
    before = harness.group.describe()
    harness.restart()
    assert harness.group.describe() == before
    assert anna.heartbeat() is ErrorCode.NONE
    assert ben.sync().reply.assignment == work_of(ben.id, 2)


def test_members_that_do_not_return_are_removed_after_their_session() -> None:
    harness = ClassicGroupHarness()
    anna, ben = Client(harness, "anna"), Client(harness, "ben")
    settle(anna, ben)
    harness.restart()
    harness.pass_time(SESSION_MS - 1)
    assert anna.heartbeat() is ErrorCode.NONE
    harness.pass_time(1)
    assert list(harness.group.members) == [anna.id]


def test_an_interrupted_rebalance_starts_again() -> None:
    harness = ClassicGroupHarness()
    anna, ben = Client(harness, "anna"), Client(harness, "ben")
    settle(anna)
    waiting = ben.come()
    harness.restart()
    assert waiting.error is ErrorCode.NOT_COORDINATOR
    assert anna.heartbeat() is ErrorCode.NONE
    ben.id = ""
    settle(ben)
    rejoin(anna, ben)
    rejoin(anna, ben)
    assert harness.group.state is ClassicState.STABLE
    assert {anna.id, ben.id} == set(harness.group.members)


def test_a_generation_that_was_not_stored_is_lost() -> None:
    harness = ClassicGroupHarness()
    anna, ben = Client(harness, "anna"), Client(harness, "ben")
    settle(anna, ben)
    anna.join()
    ben.join()
    assert anna.generation == 3
    harness.restart()
    assert anna.assign().error is ErrorCode.ILLEGAL_GENERATION
    anna.join()
    rejoin(ben, anna)
    ben.join()
    rejoin(anna, ben)
    assert harness.group.state is ClassicState.STABLE


def test_an_assignment_that_could_not_be_stored_is_not_sent() -> None:
    harness = ClassicGroupHarness()
    anna, ben = Client(harness, "anna"), Client(harness, "ben")
    settle(anna)
    ben.come()
    anna.join()
    harness.commits_at_once = False
    follower, leader = ben.sync(), anna.assign()
    harness.fail_writes()
    assert {follower.error, leader.error} == {ErrorCode.COORDINATOR_NOT_AVAILABLE}
    assert anna.heartbeat(generation=1) is ErrorCode.NONE, "the generation before is back"


def test_empty_and_deleted_groups_stay_so_after_a_restart() -> None:
    harness = ClassicGroupHarness()
    anna = Client(harness, "anna")
    settle(anna)
    anna.leave()
    harness.restart()
    assert (harness.group.state, harness.group.generation) == (ClassicState.EMPTY, 2)
    assert not harness.group.is_vacant
    assert harness.delete().error is ErrorCode.NONE
    assert harness.group.state is ClassicState.DEAD
    assert harness.last_value is None
    harness.restart()
    assert harness.group.is_vacant


def test_a_tombstone_removes_all_members_of_its_group() -> None:
    harness = ClassicGroupHarness()
    anna, ben = Client(harness, "anna"), Client(harness, "ben", instance="ben-1")
    settle(anna)
    ben.join()
    anna.join()
    Client(harness, "cleo").join()
    group = harness.group
    assert group.unsynced
    assert group.pending
    replay(group, None)
    assert group.state is ClassicState.DEAD
    left = (group.members, group.instances, group.pending, group.unsynced)
    assert not any(left)


def test_a_group_above_max_size_keeps_the_first_members_to_join() -> None:
    harness = ClassicGroupHarness()
    clients = [Client(harness, f"member-{index}") for index in range(3)]
    settle(*clients)
    harness.config = GroupConfig(initial_rebalance_delay_ms=0, max_size=2)
    harness.restart()
    assert harness.group.state is ClassicState.PREPARING_REBALANCE
    errors = [client.join().error for client in clients]
    assert errors == [None, None, ErrorCode.GROUP_MAX_SIZE_REACHED]
    assert {client.id for client in clients[:2]} == set(harness.group.members)


def test_the_last_record_replaces_earlier_ones() -> None:
    group = ClassicGroup("billing")
    for session_timeout_ms in (6000, 9000):
        replay(group, group_of_one(session_timeout_ms, leader="anna-1"))
    assert group.members["anna-1"].session_timeout_ms == 9000
    assert (group.leader, group.state) == ("anna-1", ClassicState.STABLE)


def test_a_stored_group_without_a_leader_elects_the_next_joining_member() -> None:
    harness = ClassicGroupHarness()
    anna = Client(harness, "anna", id="anna-1", generation=4)
    replay(harness.group, group_of_one(SESSION_MS, leader=None))
    assert anna.heartbeat() is ErrorCode.NONE
    anna.topics = ("orders", "returns")
    assert anna.join().reply.leader == "anna-1"


def group_of_one(session_timeout_ms: int, leader: str | None) -> GroupValue:
    member = MemberValue(
        member="anna-1",
        instance=None,
        client_id="anna",
        client_host="/127.0.0.1",
        rebalance_timeout_ms=60_000,
        session_timeout_ms=session_timeout_ms,
        subscription=b"\x00\x00",
        assignment=b"work",
    )
    return GroupValue(
        protocol_type="consumer",
        generation=4,
        protocol="range",
        leader=leader,
        state_since_ms=7,
        members=(member,),
    )
