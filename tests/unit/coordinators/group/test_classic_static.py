"""Static members (KIP-345): a restart is no departure, and of two with one name the last counts."""

from tests.unit.coordinators.group.classic_desk import (
    SESSION_MS,
    Client,
    Desk,
    rejoin,
    settle,
    subscription,
    work_of,
)

from penstock.coordinators.group.classic.protocol import ClassicState
from penstock.coordinators.group.requests import MemberProtocol
from penstock.model.errors import ErrorCode


def static(desk: Desk, name: str, **changes: object) -> Client:
    return Client(desk, name, instance=f"{name}-1", **changes)  # type: ignore[arg-type]


def test_a_static_member_is_let_in_without_asking_for_an_id_first() -> None:
    desk = Desk()
    anna = static(desk, "anna")
    assert anna.join().error is ErrorCode.NONE
    assert anna.id.startswith("anna-1-")


def test_a_restart_takes_the_same_work_and_disturbs_nobody() -> None:
    desk = Desk()
    anna, ben = Client(desk, "anna"), static(desk, "ben")
    settle(anna, ben)
    old_id, generation = ben.id, ben.generation
    again = static(desk, "ben")
    answer = again.join().answer
    assert (answer.generation, answer.leader, answer.skip_assignment) == (
        generation,
        anna.id,
        False,
    )
    assert again.sync().answer.assignment == work_of(old_id, generation)
    assert anna.heartbeat() is ErrorCode.NONE
    assert ben.heartbeat() is ErrorCode.FENCED_INSTANCE_ID
    value = desk.last_value
    assert value is not None
    assert [member.member for member in value.members if member.instance == "ben-1"] == [again.id]


def test_a_restart_is_answered_when_its_new_id_is_committed() -> None:
    desk = Desk()
    ben = static(desk, "ben")
    settle(Client(desk, "anna"), ben)
    desk.commits_at_once = False
    again = static(desk, "ben")
    call = again.join()
    assert call.waits
    desk.commit()
    assert call.error is ErrorCode.NONE


def test_a_restart_whose_id_could_not_be_stored_leaves_the_old_one() -> None:
    desk = Desk()
    ben = static(desk, "ben")
    settle(Client(desk, "anna"), ben)
    desk.commits_at_once = False
    again = static(desk, "ben")
    call = again.join()
    desk.fail_writes()
    assert call.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert ben.heartbeat() is ErrorCode.NONE


def test_a_leader_that_restarts_is_told_to_skip_the_assignment() -> None:
    desk = Desk()
    anna, ben = static(desk, "anna"), Client(desk, "ben")
    settle(anna, ben)
    again = static(desk, "anna")
    answer = again.join().answer
    assert answer.leader == again.id
    assert answer.skip_assignment
    assert {member.member for member in answer.members} == {again.id, ben.id}
    assert again.sync().answer.assignment == work_of(anna.id, 2)
    assert ben.heartbeat() is ErrorCode.NONE


def test_a_leader_whose_client_cannot_skip_is_told_that_its_old_id_leads() -> None:
    desk = Desk()
    anna, ben = static(desk, "anna", supports_skipping=False), Client(desk, "ben")
    settle(anna, ben)
    again = static(desk, "anna", supports_skipping=False)
    answer = again.join().answer
    assert (answer.leader, answer.members, answer.skip_assignment) == (anna.id, (), False)
    assert again.sync().answer.assignment == work_of(anna.id, 2)


def test_a_restart_with_other_topics_is_a_new_generation() -> None:
    desk = Desk()
    anna, ben = Client(desk, "anna"), static(desk, "ben")
    settle(anna, ben)
    again = static(desk, "ben", topics=("returns",))
    assert again.join().waits
    assert anna.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
    rejoin(anna, again)
    assert again.synced
    assert again.synced.assignment == work_of(again.id, 3)


def test_what_a_consumer_owned_before_its_restart_is_no_change_of_topics() -> None:
    desk = Desk()
    anna, ben = Client(desk, "anna"), static(desk, "ben")
    settle(anna, ben)
    metadata = subscription("orders", user_data=b"owned nothing yet")
    call = static(desk, "ben").join(protocols=(MemberProtocol("range", metadata),))
    assert call.error is ErrorCode.NONE
    assert anna.heartbeat() is ErrorCode.NONE


def test_a_restart_that_changes_the_elected_protocol_is_a_new_generation() -> None:
    desk = Desk()
    both = ("range", "sticky")
    anna = Client(desk, "anna", assignors=both)
    ben = static(desk, "ben", assignors=both)
    settle(anna, ben)
    assert desk.group.protocol == "range"
    again = static(desk, "ben", assignors=("sticky",))
    assert again.join().waits
    rejoin(anna, again)
    assert desk.group.protocol == "sticky"


def test_of_two_that_wait_under_one_name_the_first_is_fenced() -> None:
    desk = Desk()
    anna, ben = Client(desk, "anna"), static(desk, "ben")
    settle(anna)
    first = ben.join()
    second = static(desk, "ben").join()
    assert first.error is ErrorCode.FENCED_INSTANCE_ID
    anna.join()
    assert second.error is ErrorCode.NONE
    assert len(desk.group.members) == 2


def test_a_restart_before_the_assignment_begins_a_new_generation() -> None:
    desk = Desk()
    anna, ben = Client(desk, "anna"), static(desk, "ben")
    settle(anna)
    ben.join()
    anna.join()
    waiting = ben.sync()
    again = static(desk, "ben")
    call = again.join()
    assert waiting.error is ErrorCode.FENCED_INSTANCE_ID
    assert call.waits
    assert anna.assign().error is ErrorCode.REBALANCE_IN_PROGRESS, "it names an id that is gone"
    rejoin(anna, again)
    assert again.synced
    assert again.synced.assignment == work_of(again.id, again.generation)


def test_a_static_member_away_for_less_than_its_session_keeps_its_place() -> None:
    desk = Desk()
    anna, ben = Client(desk, "anna"), static(desk, "ben")
    settle(anna, ben)
    desk.pass_time(SESSION_MS - 1)
    anna.heartbeat()
    again = static(desk, "ben")
    again.join()
    desk.pass_time(SESSION_MS - 1)
    assert again.heartbeat() is ErrorCode.NONE
    assert anna.heartbeat() is ErrorCode.NONE
    assert desk.group.state is ClassicState.STABLE
    desk.pass_time(SESSION_MS)
    assert again.heartbeat() is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_restart_during_a_rebalance_outlives_a_restart_of_the_coordinator() -> None:
    desk = Desk()
    anna, ben = Client(desk, "anna"), static(desk, "ben")
    settle(anna, ben)
    Client(desk, "cleo").come()
    again = static(desk, "ben")
    assert again.join().waits
    anna.join()
    assert again.generation == 3
    desk.restart()
    assert desk.group.state is ClassicState.STABLE
    assert again.sync().error is ErrorCode.ILLEGAL_GENERATION, "sent back, but not fenced"
    assert ben.heartbeat() is ErrorCode.FENCED_INSTANCE_ID
    assert again.join().answer.generation == 2
    assert again.sync().answer.assignment == work_of(ben.id, 2)


def test_a_restarted_leader_leads_after_a_restart_of_the_coordinator() -> None:
    desk = Desk()
    anna, ben = static(desk, "anna"), Client(desk, "ben")
    settle(anna, ben)
    Client(desk, "cleo").come()
    again = static(desk, "anna")
    again.join()
    ben.join()
    desk.restart()
    assert again.joined
    assert desk.group.leader == again.joined.member


def test_a_static_member_that_left_may_come_back_before_a_restart_of_the_coordinator() -> None:
    desk = Desk()
    anna, ben = Client(desk, "anna"), static(desk, "ben")
    settle(anna, ben)
    ben.leave()
    again = static(desk, "ben")
    again.join()
    anna.join()
    assert again.generation == 3
    desk.restart()
    assert again.join().answer.generation == 2


def test_a_rebalance_goes_on_while_the_id_of_a_static_member_is_stored() -> None:
    desk = Desk()
    anna, ben, cleo = Client(desk, "anna"), static(desk, "ben"), Client(desk, "cleo")
    settle(anna, ben)
    arrival = cleo.come()
    again = static(desk, "ben")
    again.join()
    assert anna.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
    assert arrival.waits
    rejoin(anna, again, cleo)
    assert desk.group.state is ClassicState.STABLE
    assert set(desk.group.members) == {anna.id, again.id, cleo.id}
