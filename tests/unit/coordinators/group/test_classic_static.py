"""Static members (KIP-345): a restart is no leave, and the latest member of an instance wins."""

from tests.unit.coordinators.group.classic_harness import (
    SESSION_MS,
    ClassicGroupHarness,
    Client,
    rejoin,
    settle,
    subscription,
    work_of,
)

from penstock.coordinators.group.classic.state import ClassicState
from penstock.coordinators.group.requests import MemberProtocol
from penstock.model.errors import ErrorCode


def static(harness: ClassicGroupHarness, name: str, **changes: object) -> Client:
    return Client(harness, name, instance=f"{name}-1", **changes)  # type: ignore[arg-type]


def test_a_static_member_joins_without_member_id_required() -> None:
    harness = ClassicGroupHarness()
    anna = static(harness, "anna")
    assert anna.join().error is ErrorCode.NONE
    assert anna.id.startswith("anna-1-")


def test_a_restarted_static_member_keeps_its_assignment_without_a_rebalance() -> None:
    harness = ClassicGroupHarness()
    anna, ben = Client(harness, "anna"), static(harness, "ben")
    settle(anna, ben)
    old_id, generation = ben.id, ben.generation
    again = static(harness, "ben")
    reply = again.join().reply
    assert (reply.generation, reply.leader, reply.skip_assignment) == (
        generation,
        anna.id,
        False,
    )
    assert again.sync().reply.assignment == work_of(old_id, generation)
    assert anna.heartbeat() is ErrorCode.NONE
    assert ben.heartbeat() is ErrorCode.FENCED_INSTANCE_ID
    value = harness.last_value
    assert value is not None
    assert [member.member for member in value.members if member.instance == "ben-1"] == [again.id]


def test_a_restarted_static_member_gets_its_response_when_its_new_id_is_committed() -> None:
    harness = ClassicGroupHarness()
    ben = static(harness, "ben")
    settle(Client(harness, "anna"), ben)
    harness.commits_at_once = False
    again = static(harness, "ben")
    call = again.join()
    assert call.waits
    harness.commit()
    assert call.error is ErrorCode.NONE


def test_the_old_id_stays_if_the_new_one_could_not_be_stored() -> None:
    harness = ClassicGroupHarness()
    ben = static(harness, "ben")
    settle(Client(harness, "anna"), ben)
    harness.commits_at_once = False
    again = static(harness, "ben")
    call = again.join()
    harness.fail_writes()
    assert call.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert ben.heartbeat() is ErrorCode.NONE


def test_a_restarted_leader_skips_the_assignment() -> None:
    harness = ClassicGroupHarness()
    anna, ben = static(harness, "anna"), Client(harness, "ben")
    settle(anna, ben)
    again = static(harness, "anna")
    reply = again.join().reply
    assert reply.leader == again.id
    assert reply.skip_assignment
    assert {member.member for member in reply.members} == {again.id, ben.id}
    assert again.sync().reply.assignment == work_of(anna.id, 2)
    assert ben.heartbeat() is ErrorCode.NONE


def test_a_restarted_leader_before_v9_gets_its_old_id_as_the_leader() -> None:
    harness = ClassicGroupHarness()
    anna, ben = static(harness, "anna", supports_skipping=False), Client(harness, "ben")
    settle(anna, ben)
    again = static(harness, "anna", supports_skipping=False)
    reply = again.join().reply
    assert (reply.leader, reply.members, reply.skip_assignment) == (anna.id, (), False)
    assert again.sync().reply.assignment == work_of(anna.id, 2)


def test_a_restart_with_other_topics_starts_a_rebalance() -> None:
    harness = ClassicGroupHarness()
    anna, ben = Client(harness, "anna"), static(harness, "ben")
    settle(anna, ben)
    again = static(harness, "ben", topics=("returns",))
    assert again.join().waits
    assert anna.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
    rejoin(anna, again)
    assert again.synced
    assert again.synced.assignment == work_of(again.id, 3)


def test_owned_partitions_do_not_count_as_a_changed_subscription() -> None:
    harness = ClassicGroupHarness()
    anna, ben = Client(harness, "anna"), static(harness, "ben")
    settle(anna, ben)
    metadata = subscription("orders", user_data=b"owned nothing yet")
    call = static(harness, "ben").join(protocols=(MemberProtocol("range", metadata),))
    assert call.error is ErrorCode.NONE
    assert anna.heartbeat() is ErrorCode.NONE


def test_a_restart_that_changes_the_elected_protocol_starts_a_rebalance() -> None:
    harness = ClassicGroupHarness()
    both = ("range", "sticky")
    anna = Client(harness, "anna", assignors=both)
    ben = static(harness, "ben", assignors=both)
    settle(anna, ben)
    assert harness.group.protocol == "range"
    again = static(harness, "ben", assignors=("sticky",))
    assert again.join().waits
    rejoin(anna, again)
    assert harness.group.protocol == "sticky"


def test_the_first_of_two_waiting_members_of_one_instance_is_fenced() -> None:
    harness = ClassicGroupHarness()
    anna, ben = Client(harness, "anna"), static(harness, "ben")
    settle(anna)
    first = ben.join()
    second = static(harness, "ben").join()
    assert first.error is ErrorCode.FENCED_INSTANCE_ID
    anna.join()
    assert second.error is ErrorCode.NONE
    assert len(harness.group.members) == 2


def test_a_restart_before_the_assignment_starts_a_rebalance() -> None:
    harness = ClassicGroupHarness()
    anna, ben = Client(harness, "anna"), static(harness, "ben")
    settle(anna)
    ben.join()
    anna.join()
    waiting = ben.sync()
    again = static(harness, "ben")
    call = again.join()
    assert waiting.error is ErrorCode.FENCED_INSTANCE_ID
    assert call.waits
    assert anna.assign().error is ErrorCode.REBALANCE_IN_PROGRESS, "it names an id that is gone"
    rejoin(anna, again)
    assert again.synced
    assert again.synced.assignment == work_of(again.id, again.generation)


def test_a_static_member_stays_until_its_session_expires() -> None:
    harness = ClassicGroupHarness()
    anna, ben = Client(harness, "anna"), static(harness, "ben")
    settle(anna, ben)
    harness.pass_time(SESSION_MS - 1)
    anna.heartbeat()
    again = static(harness, "ben")
    again.join()
    harness.pass_time(SESSION_MS - 1)
    assert again.heartbeat() is ErrorCode.NONE
    assert anna.heartbeat() is ErrorCode.NONE
    assert harness.group.state is ClassicState.STABLE
    harness.pass_time(SESSION_MS)
    assert again.heartbeat() is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_new_static_id_from_a_rebalance_survives_a_coordinator_restart() -> None:
    harness = ClassicGroupHarness()
    anna, ben = Client(harness, "anna"), static(harness, "ben")
    settle(anna, ben)
    Client(harness, "cleo").come()
    again = static(harness, "ben")
    assert again.join().waits
    anna.join()
    assert again.generation == 3
    harness.restart()
    assert harness.group.state is ClassicState.STABLE
    assert again.sync().error is ErrorCode.ILLEGAL_GENERATION, "sent back, but not fenced"
    assert ben.heartbeat() is ErrorCode.FENCED_INSTANCE_ID
    assert again.join().reply.generation == 2
    assert again.sync().reply.assignment == work_of(ben.id, 2)


def test_a_restarted_leader_still_leads_after_a_coordinator_restart() -> None:
    harness = ClassicGroupHarness()
    anna, ben = static(harness, "anna"), Client(harness, "ben")
    settle(anna, ben)
    Client(harness, "cleo").come()
    again = static(harness, "anna")
    again.join()
    ben.join()
    harness.restart()
    assert again.joined
    assert harness.group.leader == again.joined.member


def test_a_static_member_that_left_may_return_before_a_coordinator_restart() -> None:
    harness = ClassicGroupHarness()
    anna, ben = Client(harness, "anna"), static(harness, "ben")
    settle(anna, ben)
    ben.leave()
    again = static(harness, "ben")
    again.join()
    anna.join()
    assert again.generation == 3
    harness.restart()
    assert again.join().reply.generation == 2


def test_a_rebalance_continues_while_a_static_id_is_stored() -> None:
    harness = ClassicGroupHarness()
    anna, ben, cleo = Client(harness, "anna"), static(harness, "ben"), Client(harness, "cleo")
    settle(anna, ben)
    arrival = cleo.come()
    again = static(harness, "ben")
    again.join()
    assert anna.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
    assert arrival.waits
    rejoin(anna, again, cleo)
    assert harness.group.state is ClassicState.STABLE
    assert set(harness.group.members) == {anna.id, again.id, cleo.id}
