"""A classic group after a restart of its coordinator: what was stored is there, the rest is not."""

from tests.unit.coordinators.group.classic_desk import (
    SESSION_MS,
    Client,
    Desk,
    rejoin,
    settle,
    work_of,
)

from penstock.coordinators.group.classic import protocol as classic
from penstock.coordinators.group.classic.protocol import ClassicGroup, ClassicState
from penstock.coordinators.group.config import GroupConfig
from penstock.coordinators.group.records import GroupValue, MemberValue
from penstock.model.errors import ErrorCode


def test_members_of_a_stable_group_go_on_as_if_nothing_happened() -> None:
    desk = Desk()
    anna, ben = Client(desk, "anna"), Client(desk, "ben")
    settle(anna, ben)
    before = classic.describe(desk.group)
    desk.restart()
    assert classic.describe(desk.group) == before
    assert anna.heartbeat() is ErrorCode.NONE
    assert ben.sync().answer.assignment == work_of(ben.id, 2)


def test_members_that_do_not_come_back_are_out_after_their_session() -> None:
    desk = Desk()
    anna, ben = Client(desk, "anna"), Client(desk, "ben")
    settle(anna, ben)
    desk.restart()
    desk.pass_time(SESSION_MS - 1)
    assert anna.heartbeat() is ErrorCode.NONE
    desk.pass_time(1)
    assert list(desk.group.members) == [anna.id]


def test_a_rebalance_that_was_cut_short_begins_again() -> None:
    desk = Desk()
    anna, ben = Client(desk, "anna"), Client(desk, "ben")
    settle(anna)
    waiting = ben.come()
    desk.restart()
    assert waiting.error is ErrorCode.NOT_COORDINATOR
    assert anna.heartbeat() is ErrorCode.NONE
    ben.id = ""
    settle(ben)
    rejoin(anna, ben)
    rejoin(anna, ben)
    assert desk.group.state is ClassicState.STABLE
    assert {anna.id, ben.id} == set(desk.group.members)


def test_a_generation_that_was_not_stored_is_not_known_any_more() -> None:
    desk = Desk()
    anna, ben = Client(desk, "anna"), Client(desk, "ben")
    settle(anna, ben)
    anna.join()
    ben.join()
    assert anna.generation == 3
    desk.restart()
    assert anna.assign().error is ErrorCode.ILLEGAL_GENERATION
    anna.join()
    rejoin(ben, anna)
    ben.join()
    rejoin(anna, ben)
    assert desk.group.state is ClassicState.STABLE


def test_an_assignment_that_could_not_be_stored_is_handed_to_nobody() -> None:
    desk = Desk()
    anna, ben = Client(desk, "anna"), Client(desk, "ben")
    settle(anna)
    ben.come()
    anna.join()
    desk.commits_at_once = False
    follower, leader = ben.sync(), anna.assign()
    desk.fail_writes()
    assert {follower.error, leader.error} == {ErrorCode.COORDINATOR_NOT_AVAILABLE}
    assert anna.heartbeat(generation=1) is ErrorCode.NONE, "the generation before is back"


def test_an_empty_group_and_a_deleted_one_are_so_after_a_restart() -> None:
    desk = Desk()
    anna = Client(desk, "anna")
    settle(anna)
    anna.leave()
    desk.restart()
    assert (desk.group.state, desk.group.generation) == (ClassicState.EMPTY, 2)
    assert not desk.group.is_vacant
    assert desk.delete().error is ErrorCode.NONE
    assert desk.group.state is ClassicState.DEAD
    assert desk.last_value is None
    desk.restart()
    assert desk.group.is_vacant


def test_nobody_is_left_of_a_group_whose_tombstone_is_read() -> None:
    desk = Desk()
    anna, ben = Client(desk, "anna"), Client(desk, "ben", instance="ben-1")
    settle(anna)
    ben.join()
    anna.join()
    Client(desk, "cleo").join()
    group = desk.group
    assert group.unsynced
    assert group.pending
    classic.replay(group, None)
    assert group.state is ClassicState.DEAD
    left = (group.members, group.instances, group.pending, group.unsynced)
    assert not any(left)


def test_a_group_that_is_larger_than_the_limit_by_now_shrinks_to_those_who_come_first() -> None:
    desk = Desk()
    clients = [Client(desk, f"member-{place}") for place in range(3)]
    settle(*clients)
    desk.config = GroupConfig(initial_rebalance_delay_ms=0, max_size=2)
    desk.restart()
    assert desk.group.state is ClassicState.PREPARING_REBALANCE
    errors = [client.join().error for client in clients]
    assert errors == [None, None, ErrorCode.GROUP_MAX_SIZE_REACHED]
    assert {client.id for client in clients[:2]} == set(desk.group.members)


def test_the_last_of_several_records_counts_whole() -> None:
    group = ClassicGroup("billing")
    for session_timeout_ms in (6000, 9000):
        classic.replay(group, group_of_one(session_timeout_ms, leader="anna-1"))
    assert group.members["anna-1"].session_timeout_ms == 9000
    assert (group.leader, group.state) == ("anna-1", ClassicState.STABLE)


def test_a_stored_group_without_a_leader_elects_the_next_who_comes() -> None:
    desk = Desk()
    anna = Client(desk, "anna", id="anna-1", generation=4)
    classic.replay(desk.group, group_of_one(SESSION_MS, leader=None))
    assert anna.heartbeat() is ErrorCode.NONE
    anna.topics = ("orders", "returns")
    assert anna.join().answer.leader == "anna-1"


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
