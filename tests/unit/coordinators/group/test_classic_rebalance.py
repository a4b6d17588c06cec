"""Rebalances of classic groups: members join, sync, leave, and others take over."""

from tests.unit.coordinators.group.classic_harness import (
    REBALANCE_MS,
    SESSION_MS,
    ClassicGroupHarness,
    Client,
    rejoin,
    settle,
    subscription,
    work_of,
)

from penstock.coordinators.group.classic.state import ClassicState
from penstock.coordinators.group.config import GroupConfig
from penstock.coordinators.group.requests import LeavingMember, MemberProtocol
from penstock.model.errors import ErrorCode

SLOW_START = GroupConfig(initial_rebalance_delay_ms=3000)


def test_without_initial_delay_the_first_member_joins_at_once() -> None:
    harness = ClassicGroupHarness()
    anna = Client(harness, "anna")
    assert anna.join().error is ErrorCode.MEMBER_ID_REQUIRED
    assert anna.id.startswith("anna-")
    reply = anna.join().reply
    assert (reply.error, reply.generation, reply.protocol) == (ErrorCode.NONE, 1, "range")
    assert reply.leader == anna.id
    assert [(member.member, member.metadata) for member in reply.members] == [
        (anna.id, subscription("orders"))
    ]
    assert anna.assign().reply.assignment == work_of(anna.id, 1)
    assert harness.group.state is ClassicState.STABLE


def test_members_that_join_within_the_initial_delay_form_one_generation() -> None:
    harness = ClassicGroupHarness(SLOW_START)
    anna, ben = Client(harness, "anna"), Client(harness, "ben")
    first = anna.come()
    harness.pass_time(2999)
    assert first.waits
    second = ben.come()
    harness.pass_time(1)
    assert first.waits, "where one came another may follow"
    harness.pass_time(3000)
    assert (first.reply.generation, second.reply.generation) == (1, 1)
    assert {member.member for member in first.reply.members} == {anna.id, ben.id}
    assert second.reply.members == ()


def test_the_initial_delay_is_bounded_by_the_rebalance_timeout() -> None:
    harness = ClassicGroupHarness(SLOW_START)
    first = Client(harness, "first", rebalance_timeout_ms=10_000).come()
    for number in range(9):
        harness.pass_time(1000)
        Client(harness, f"late-{number}", rebalance_timeout_ms=10_000).come()
        assert first.waits
    harness.pass_time(1000)
    assert len(first.reply.members) == 10


def test_the_initial_delay_applies_to_an_empty_group_only() -> None:
    harness = ClassicGroupHarness(SLOW_START)
    anna, ben = Client(harness, "anna"), Client(harness, "ben")
    anna.come()
    harness.pass_time(3000)
    arrival = ben.come()
    assert anna.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
    anna.join()
    assert arrival.error is ErrorCode.NONE, "all are there"


def test_a_new_member_starts_a_rebalance_that_heartbeats_announce() -> None:
    harness = ClassicGroupHarness()
    anna, ben = Client(harness, "anna"), Client(harness, "ben")
    settle(anna)
    arrival = ben.come()
    assert arrival.waits
    assert anna.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
    anna.join()
    assert arrival.reply.generation == anna.generation == 2
    follower = ben.sync()
    assert follower.waits
    assert anna.assign().reply.assignment == work_of(anna.id, 2)
    assert follower.reply.assignment == work_of(ben.id, 2)


def test_sync_responses_wait_until_the_assignment_is_committed() -> None:
    harness = ClassicGroupHarness()
    anna, ben = Client(harness, "anna"), Client(harness, "ben")
    settle(anna)
    ben.come()
    anna.join()
    harness.commits_at_once = False
    follower, leader = ben.sync(), anna.assign()
    assert follower.waits
    assert leader.waits
    late = ben.sync()
    assert late.waits, "it rests on the same record"
    harness.commit()
    assert leader.reply.assignment == work_of(anna.id, 2)
    assert late.reply.assignment == follower.reply.assignment == work_of(ben.id, 2)


def test_a_repeated_join_or_sync_does_not_start_a_rebalance() -> None:
    harness = ClassicGroupHarness()
    anna, ben = Client(harness, "anna"), Client(harness, "ben")
    settle(anna)
    ben.come()
    anna.join()
    assert ben.join().reply.generation == 2
    again = anna.join()
    assert len(again.reply.members) == 2, "a leader gets the member list again"
    ben.sync()
    anna.assign()
    assert ben.join().reply.generation == 2
    assert ben.sync().reply.assignment == work_of(ben.id, 2)
    assert anna.heartbeat() is ErrorCode.NONE


def test_a_pending_request_gets_a_response_when_its_member_repeats_it() -> None:
    harness = ClassicGroupHarness()
    anna, ben, cleo = (Client(harness, name) for name in ("anna", "ben", "cleo"))
    settle(anna, ben)
    cleo.come()
    first = ben.join()
    second = ben.join()
    assert first.error is ErrorCode.REBALANCE_IN_PROGRESS
    anna.join()
    assert second.error is ErrorCode.NONE
    first_sync = ben.sync()
    second_sync = ben.sync()
    assert first_sync.error is ErrorCode.REBALANCE_IN_PROGRESS
    anna.assign()
    assert second_sync.reply.assignment == work_of(ben.id, 3)


def test_a_leader_that_joins_again_starts_a_rebalance() -> None:
    harness = ClassicGroupHarness()
    anna, ben = Client(harness, "anna"), Client(harness, "ben")
    settle(anna, ben)
    assert anna.leads
    call = anna.join()
    assert call.waits
    rejoin(ben)
    assert call.reply.generation == 3


def test_a_follower_with_a_new_subscription_starts_a_rebalance() -> None:
    harness = ClassicGroupHarness()
    anna, ben = Client(harness, "anna"), Client(harness, "ben")
    settle(anna, ben)
    ben.topics = ("orders", "returns")
    assert ben.join().waits
    assert anna.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
    members = anna.join().reply.members
    assert {member.member: member.metadata for member in members}[ben.id] == subscription(
        "orders", "returns"
    )


def test_members_waiting_to_sync_rejoin_when_a_member_joins() -> None:
    harness = ClassicGroupHarness()
    anna, ben, cleo = (Client(harness, name) for name in ("anna", "ben", "cleo"))
    settle(anna)
    ben.come()
    anna.join()
    waiting = ben.sync()
    cleo.come()
    assert waiting.error is ErrorCode.REBALANCE_IN_PROGRESS
    assert anna.assign().error is ErrorCode.REBALANCE_IN_PROGRESS
    rejoin(anna, ben, cleo)
    assert [client.synced.assignment for client in (anna, ben, cleo) if client.synced] == [
        work_of(client.id, 3) for client in (anna, ben, cleo)
    ]


def test_the_most_preferred_common_protocol_is_elected() -> None:
    harness = ClassicGroupHarness(SLOW_START)
    likes = [("sticky", "range"), ("range", "sticky"), ("newest", "sticky", "range")]
    clients = [
        Client(harness, f"member-{index}", assignors=assignor_names)
        for index, assignor_names in enumerate(likes)
    ]
    for client in clients:
        client.come()
    harness.pass_time(2 * 3000)
    assert {client.joined.protocol for client in clients if client.joined} == {"sticky"}


def test_members_change_the_assignor_in_two_rolling_restarts() -> None:
    harness = ClassicGroupHarness()
    anna = Client(harness, "anna", assignors=("range",))
    ben = Client(harness, "ben", assignors=("range",))
    settle(anna, ben)
    for assignors in (("sticky", "range"), ("sticky",)):
        for client in (anna, ben):
            client.assignors = assignors
            client.join()
            rejoin(anna, ben)
    assert harness.group.protocol == "sticky"
    assert harness.group.state is ClassicState.STABLE


def test_a_leave_gets_its_response_at_once_and_starts_a_rebalance() -> None:
    harness = ClassicGroupHarness()
    anna, ben = Client(harness, "anna"), Client(harness, "ben")
    settle(anna, ben)
    assert anna.leave() is ErrorCode.NONE
    assert ben.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
    rejoin(ben)
    assert ben.leads
    assert ben.synced
    assert ben.synced.assignment == work_of(ben.id, 3)


def test_several_members_leave_in_one_request_with_one_rebalance() -> None:
    harness = ClassicGroupHarness()
    anna = Client(harness, "anna")
    ben = Client(harness, "ben", instance="ben-1")
    cleo = Client(harness, "cleo", instance="cleo-1")
    settle(anna, ben, cleo)
    generation = harness.group.generation
    error, left = harness.leave(
        LeavingMember("", "ben-1"), LeavingMember(cleo.id, "cleo-1"), LeavingMember("", "dora-1")
    ).reply
    assert error is ErrorCode.NONE
    assert [(result.instance, result.error) for result in left] == [
        ("ben-1", ErrorCode.NONE),
        ("cleo-1", ErrorCode.NONE),
        ("dora-1", ErrorCode.UNKNOWN_MEMBER_ID),
    ]
    rejoin(anna)
    assert anna.generation == generation + 1
    assert list(harness.group.members) == [anna.id]


def test_a_member_that_leaves_gets_responses_to_its_pending_requests() -> None:
    harness = ClassicGroupHarness()
    anna, ben = Client(harness, "anna"), Client(harness, "ben")
    settle(anna)
    joining = ben.come()
    harness.leave(LeavingMember(_id_of_waiting(harness), None))
    assert joining.error is ErrorCode.UNKNOWN_MEMBER_ID
    ben.id = ""
    ben.come()
    anna.join()
    syncing = ben.sync()
    harness.leave(LeavingMember(ben.id, None))
    assert syncing.error is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_group_without_members_is_stored_as_empty() -> None:
    harness = ClassicGroupHarness()
    anna = Client(harness, "anna")
    settle(anna)
    harness.pass_time(500)
    anna.leave()
    assert harness.group.state is ClassicState.EMPTY
    value = harness.last_value
    assert value is not None
    assert (value.generation, value.members, value.leader) == (2, (), None)
    assert (value.protocol_type, value.state_since_ms) == ("consumer", harness.now_ms)
    assert not harness.timers


def test_an_empty_group_accepts_another_protocol_type() -> None:
    harness = ClassicGroupHarness()
    anna, worker = Client(harness, "anna"), Client(harness, "worker", requires_known_member=False)
    settle(anna)
    anna.leave()
    protocols = (MemberProtocol("compatible", b"me"),)
    reply = worker.join(protocol_type="connect", protocols=protocols).reply
    assert (reply.generation, reply.protocol_type) == (3, "connect")


def test_a_full_group_rejects_new_members_and_keeps_its_own() -> None:
    harness = ClassicGroupHarness(GroupConfig(initial_rebalance_delay_ms=0, max_size=2))
    anna, ben = Client(harness, "anna"), Client(harness, "ben", instance="ben-1")
    settle(anna, ben)
    reply = Client(harness, "cleo").join().reply
    assert (reply.error, reply.member) == (ErrorCode.GROUP_MAX_SIZE_REACHED, "")
    again = Client(harness, "ben", instance="ben-1")
    assert again.join().error is ErrorCode.NONE, "it takes its own place"
    anna.join()
    rejoin(again)
    assert harness.group.state is ClassicState.COMPLETING_REBALANCE
    assert len(harness.group.members) == 2


def test_a_pending_member_is_rejected_if_the_group_is_full_by_then() -> None:
    harness = ClassicGroupHarness(GroupConfig(initial_rebalance_delay_ms=0, max_size=1))
    anna, ben = Client(harness, "anna"), Client(harness, "ben")
    ben.join()
    settle(anna)
    assert ben.join().error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert not harness.group.pending
    assert harness.group.state is ClassicState.STABLE


def test_pending_members_are_bounded() -> None:
    harness = ClassicGroupHarness(GroupConfig(initial_rebalance_delay_ms=0, max_pending_members=3))
    for _ in range(3):
        assert Client(harness, "loop").join().error is ErrorCode.MEMBER_ID_REQUIRED
    assert Client(harness, "loop").join().error is ErrorCode.GROUP_MAX_SIZE_REACHED
    harness.pass_time(SESSION_MS)
    assert Client(harness, "loop").join().error is ErrorCode.MEMBER_ID_REQUIRED


def test_an_assignment_too_large_to_store_fails_its_own_group_only() -> None:
    harness = ClassicGroupHarness(
        GroupConfig(initial_rebalance_delay_ms=0, max_record_bytes=10_000)
    )
    anna = Client(harness, "anna")
    anna.come()
    reply = anna.sync({anna.id: b"x" * 10_000}).reply
    assert reply.error is ErrorCode.UNKNOWN_SERVER_ERROR
    assert harness.log == []
    assert harness.group.state is ClassicState.PREPARING_REBALANCE
    anna.join()
    assert anna.sync({anna.id: b"x" * 1000}).reply.assignment == b"x" * 1000


def test_generations_wrap_around_at_the_largest_int() -> None:
    harness = ClassicGroupHarness()
    anna = Client(harness, "anna")
    anna.join()
    harness.group.generation = 2**31 - 1
    assert anna.join().reply.generation == 1


def test_without_a_rebalance_timeout_the_session_timeout_is_used() -> None:
    harness = ClassicGroupHarness()
    settle(Client(harness, "anna", rebalance_timeout_ms=-1))
    value = harness.last_value
    assert value is not None
    assert value.members[0].rebalance_timeout_ms == SESSION_MS
    assert REBALANCE_MS != SESSION_MS


def _id_of_waiting(harness: ClassicGroupHarness) -> str:
    return next(harness.group.waiting_to_join()).id
