"""The error code of every request to a classic group in every state, as one table."""

from collections.abc import Callable
from typing import NamedTuple

import pytest
from tests.unit.coordinators.group.classic_harness import (
    ClassicGroupHarness,
    Client,
    rejoin,
    settle,
)

from penstock.coordinators.group.classic import queries
from penstock.coordinators.group.classic.state import ClassicState
from penstock.coordinators.group.config import GroupConfig
from penstock.coordinators.group.requests import LeavingMember, MemberProtocol
from penstock.model.errors import ErrorCode

NONE = ErrorCode.NONE
UNKNOWN = ErrorCode.UNKNOWN_MEMBER_ID
GONE = ErrorCode.COORDINATOR_NOT_AVAILABLE
REBALANCE = ErrorCode.REBALANCE_IN_PROGRESS
STALE = ErrorCode.ILLEGAL_GENERATION
FENCED = ErrorCode.FENCED_INSTANCE_ID
INCONSISTENT = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
ID_REQUIRED = ErrorCode.MEMBER_ID_REQUIRED
BAD_SESSION = ErrorCode.INVALID_SESSION_TIMEOUT
NON_EMPTY = ErrorCode.NON_EMPTY_GROUP
SUBSCRIBED = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
NOT_FOUND = ErrorCode.GROUP_ID_NOT_FOUND
WAITS = None

STATES = tuple(ClassicState)


class GroupScenario(NamedTuple):
    """A group with a static leader and a follower, both at the current generation."""

    harness: ClassicGroupHarness
    leader: Client
    follower: Client


def scenario_in(state: ClassicState) -> GroupScenario:
    harness = ClassicGroupHarness(GroupConfig(initial_rebalance_delay_ms=3000))
    leader = Client(harness, "anna", instance="anna-1")
    follower = Client(harness, "ben")
    other = Client(harness, "cleo")
    for member in (leader, follower, other):
        member.come()
    harness.pass_time(6000)  # members that join extend the initial delay once
    if state is ClassicState.COMPLETING_REBALANCE:
        return GroupScenario(harness, leader, follower)
    rejoin(leader, follower, other)
    if state is ClassicState.PREPARING_REBALANCE:
        other.leave()
    elif state is ClassicState.EMPTY:
        harness.leave(
            *(LeavingMember(member.id, member.instance) for member in (leader, follower, other))
        )
    elif state is ClassicState.DEAD:
        harness.release(ErrorCode.NOT_COORDINATOR)
    return GroupScenario(harness, leader, follower)


def join_new(scenario: GroupScenario) -> ErrorCode | None:
    return Client(scenario.harness, "dora").join().error


def join_new_of_old_client(scenario: GroupScenario) -> ErrorCode | None:
    return Client(scenario.harness, "dora", requires_known_member=False).join().error


def join_new_static(scenario: GroupScenario) -> ErrorCode | None:
    return Client(scenario.harness, "dora", instance="dora-1").join().error


def join_of_other_type(scenario: GroupScenario) -> ErrorCode | None:
    return Client(scenario.harness, "dora").join(protocol_type="connect").error


def join_without_common_protocol(scenario: GroupScenario) -> ErrorCode | None:
    return Client(scenario.harness, "dora").join(protocols=(MemberProtocol("sticky", b""),)).error


def join_without_protocols(scenario: GroupScenario) -> ErrorCode | None:
    return Client(scenario.harness, "dora").join(protocols=()).error


def join_without_type(scenario: GroupScenario) -> ErrorCode | None:
    return Client(scenario.harness, "dora").join(protocol_type="").error


def join_with_short_session(scenario: GroupScenario) -> ErrorCode | None:
    return Client(scenario.harness, "dora").join(session_timeout_ms=5999).error


def join_with_long_session(scenario: GroupScenario) -> ErrorCode | None:
    return Client(scenario.harness, "dora").join(session_timeout_ms=1_800_001).error


def join_with_unknown_id(scenario: GroupScenario) -> ErrorCode | None:
    return Client(scenario.harness, "dora", id="dora-0").join().error


def join_with_unknown_instance(scenario: GroupScenario) -> ErrorCode | None:
    return scenario.follower.join(instance="ben-1").error


def join_with_fenced_instance(scenario: GroupScenario) -> ErrorCode | None:
    return scenario.leader.join(member="anna-1-before").error


def join_follower_again(scenario: GroupScenario) -> ErrorCode | None:
    return scenario.follower.join().error


def join_follower_changed(scenario: GroupScenario) -> ErrorCode | None:
    scenario.follower.topics = ("orders", "returns")
    return scenario.follower.join().error


def join_leader_again(scenario: GroupScenario) -> ErrorCode | None:
    return scenario.leader.join().error


def sync_leader(scenario: GroupScenario) -> ErrorCode | None:
    return scenario.leader.sync({}).error


def sync_follower(scenario: GroupScenario) -> ErrorCode | None:
    return scenario.follower.sync().error


def sync_of_old_client(scenario: GroupScenario) -> ErrorCode | None:
    return scenario.follower.sync(protocol_type=None, protocol=None).error


def sync_unknown_member(scenario: GroupScenario) -> ErrorCode | None:
    return scenario.follower.sync(member="dora-0").error


def sync_fenced(scenario: GroupScenario) -> ErrorCode | None:
    return scenario.leader.sync(member="anna-1-before").error


def sync_stale(scenario: GroupScenario) -> ErrorCode | None:
    return scenario.follower.sync(generation=scenario.follower.generation - 1).error


def sync_other_type(scenario: GroupScenario) -> ErrorCode | None:
    return scenario.follower.sync(protocol_type="connect").error


def sync_other_protocol(scenario: GroupScenario) -> ErrorCode | None:
    return scenario.follower.sync(protocol="sticky").error


def heartbeat(scenario: GroupScenario) -> ErrorCode | None:
    return scenario.follower.heartbeat()


def heartbeat_of_unknown_member(scenario: GroupScenario) -> ErrorCode | None:
    return scenario.follower.heartbeat(member="dora-0")


def heartbeat_fenced(scenario: GroupScenario) -> ErrorCode | None:
    return scenario.leader.heartbeat(member="anna-1-before")


def heartbeat_stale(scenario: GroupScenario) -> ErrorCode | None:
    return scenario.follower.heartbeat(generation=scenario.follower.generation + 1)


def leave(scenario: GroupScenario) -> ErrorCode | None:
    return leave_as(scenario, LeavingMember(scenario.follower.id, None))


def leave_by_instance(scenario: GroupScenario) -> ErrorCode | None:
    return leave_as(scenario, LeavingMember("", "anna-1"))


def leave_unknown_instance(scenario: GroupScenario) -> ErrorCode | None:
    return leave_as(scenario, LeavingMember("", "dora-1"))


def leave_unknown_member(scenario: GroupScenario) -> ErrorCode | None:
    return leave_as(scenario, LeavingMember("dora-0", None))


def leave_without_id(scenario: GroupScenario) -> ErrorCode | None:
    return leave_as(scenario, LeavingMember("", None))


def leave_fenced(scenario: GroupScenario) -> ErrorCode | None:
    return leave_as(scenario, LeavingMember("anna-1-before", "anna-1"))


def leave_as(scenario: GroupScenario, leaver: LeavingMember) -> ErrorCode:
    error, left = scenario.harness.leave(leaver).reply
    reply = left[0].error if left else error
    assert isinstance(reply, ErrorCode)
    return reply


def commit(scenario: GroupScenario) -> ErrorCode | None:
    return check_commit(scenario, scenario.follower.id, None, scenario.follower.generation)


def commit_stale(scenario: GroupScenario) -> ErrorCode | None:
    return check_commit(scenario, scenario.follower.id, None, scenario.follower.generation - 1)


def commit_fenced(scenario: GroupScenario) -> ErrorCode | None:
    return check_commit(scenario, "anna-1-before", "anna-1", scenario.leader.generation)


def commit_of_unknown_member(scenario: GroupScenario) -> ErrorCode | None:
    return check_commit(scenario, "dora-0", None, scenario.follower.generation)


def commit_without_group(scenario: GroupScenario) -> ErrorCode | None:
    return check_commit(scenario, "", None, -1)


def commit_in_transaction(scenario: GroupScenario) -> ErrorCode | None:
    return check_commit(
        scenario, scenario.follower.id, None, scenario.follower.generation, txn=True
    )


def commit_in_stale_transaction(scenario: GroupScenario) -> ErrorCode | None:
    return check_commit(
        scenario, scenario.follower.id, None, scenario.follower.generation - 1, txn=True
    )


def commit_in_transaction_without_group(scenario: GroupScenario) -> ErrorCode | None:
    return check_commit(scenario, "", None, -1, txn=True)


def check_commit(
    scenario: GroupScenario,
    member: str,
    instance: str | None,
    generation: int,
    *,
    txn: bool = False,
) -> ErrorCode:
    return queries.check_commit(
        scenario.harness.group, member, instance, generation, is_transactional=txn
    )


def delete_group(scenario: GroupScenario) -> ErrorCode | None:
    return scenario.harness.delete().error


def delete_offsets_of_subscribed_topic(scenario: GroupScenario) -> ErrorCode | None:
    return scenario.harness.group.check_delete_offsets("orders")


def delete_offsets_of_other_topic(scenario: GroupScenario) -> ErrorCode | None:
    return scenario.harness.group.check_delete_offsets("returns")


Row = tuple[Callable[[GroupScenario], ErrorCode | None], tuple[ErrorCode | None, ...]]

# In the order of STATES:      empty, preparing, completing, stable, dead
TABLE: tuple[Row, ...] = (
    (join_new, (ID_REQUIRED, ID_REQUIRED, ID_REQUIRED, ID_REQUIRED, GONE)),
    (join_new_of_old_client, (WAITS, WAITS, WAITS, WAITS, GONE)),
    (join_new_static, (WAITS, WAITS, WAITS, WAITS, GONE)),
    (join_of_other_type, (ID_REQUIRED, INCONSISTENT, INCONSISTENT, INCONSISTENT, GONE)),
    (join_without_common_protocol, (ID_REQUIRED, INCONSISTENT, INCONSISTENT, INCONSISTENT, GONE)),
    (join_without_protocols, (INCONSISTENT, INCONSISTENT, INCONSISTENT, INCONSISTENT, GONE)),
    (join_without_type, (INCONSISTENT, INCONSISTENT, INCONSISTENT, INCONSISTENT, GONE)),
    (join_with_short_session, (BAD_SESSION,) * 5),
    (join_with_long_session, (BAD_SESSION,) * 5),
    (join_with_unknown_id, (UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, GONE)),
    (join_with_unknown_instance, (UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, GONE)),
    (join_with_fenced_instance, (UNKNOWN, FENCED, FENCED, FENCED, GONE)),
    (join_follower_again, (UNKNOWN, WAITS, NONE, NONE, GONE)),
    (join_follower_changed, (UNKNOWN, WAITS, WAITS, WAITS, GONE)),
    (join_leader_again, (UNKNOWN, WAITS, NONE, WAITS, GONE)),
    (sync_leader, (UNKNOWN, REBALANCE, NONE, NONE, GONE)),
    (sync_follower, (UNKNOWN, REBALANCE, WAITS, NONE, GONE)),
    (sync_of_old_client, (UNKNOWN, REBALANCE, WAITS, NONE, GONE)),
    (sync_unknown_member, (UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, GONE)),
    (sync_fenced, (UNKNOWN, FENCED, FENCED, FENCED, GONE)),
    (sync_stale, (UNKNOWN, STALE, STALE, STALE, GONE)),
    (sync_other_type, (UNKNOWN, INCONSISTENT, INCONSISTENT, INCONSISTENT, GONE)),
    (sync_other_protocol, (UNKNOWN, INCONSISTENT, INCONSISTENT, INCONSISTENT, GONE)),
    (heartbeat, (UNKNOWN, REBALANCE, NONE, NONE, GONE)),
    (heartbeat_of_unknown_member, (UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, GONE)),
    (heartbeat_fenced, (UNKNOWN, FENCED, FENCED, FENCED, GONE)),
    (heartbeat_stale, (UNKNOWN, STALE, STALE, STALE, GONE)),
    (leave, (UNKNOWN, NONE, NONE, NONE, GONE)),
    (leave_by_instance, (UNKNOWN, NONE, NONE, NONE, GONE)),
    (leave_unknown_instance, (UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, GONE)),
    (leave_unknown_member, (UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, GONE)),
    (leave_without_id, (UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, GONE)),
    (leave_fenced, (UNKNOWN, FENCED, FENCED, FENCED, GONE)),
    (commit, (UNKNOWN, NONE, REBALANCE, NONE, GONE)),
    (commit_stale, (UNKNOWN, STALE, STALE, STALE, GONE)),
    (commit_fenced, (UNKNOWN, FENCED, FENCED, FENCED, GONE)),
    (commit_of_unknown_member, (UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, GONE)),
    (commit_without_group, (NONE, UNKNOWN, UNKNOWN, UNKNOWN, GONE)),
    (commit_in_transaction, (UNKNOWN, NONE, NONE, NONE, GONE)),
    (commit_in_stale_transaction, (UNKNOWN, STALE, STALE, STALE, GONE)),
    (commit_in_transaction_without_group, (NONE, NONE, NONE, NONE, GONE)),
    (delete_group, (NONE, NON_EMPTY, NON_EMPTY, NON_EMPTY, NOT_FOUND)),
    (delete_offsets_of_subscribed_topic, (NONE, SUBSCRIBED, SUBSCRIBED, SUBSCRIBED, NOT_FOUND)),
    (delete_offsets_of_other_topic, (NONE, NONE, NONE, NONE, NOT_FOUND)),
)


@pytest.mark.parametrize(
    ("ask", "state", "expected"),
    [
        pytest.param(ask, state, expected, id=f"{ask.__name__}-{state}")
        for ask, answers in TABLE
        for state, expected in zip(STATES, answers, strict=True)
    ],
)
def test_each_request_gets_the_error_code_of_the_group_state(
    ask: Callable[[GroupScenario], ErrorCode | None],
    state: ClassicState,
    expected: ErrorCode | None,
) -> None:
    scenario = scenario_in(state)
    assert scenario.harness.group.state is state
    assert ask(scenario) is expected


def test_settle_makes_a_group_stable() -> None:
    harness = ClassicGroupHarness()
    settle(Client(harness, "anna"), Client(harness, "ben"))
    assert harness.group.state is ClassicState.STABLE
