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


class Scene(NamedTuple):
    """A group with a static leader and a follower, both at the current generation."""

    harness: ClassicGroupHarness
    leader: Client
    follower: Client


def scene_in(state: ClassicState) -> Scene:
    harness = ClassicGroupHarness(GroupConfig(initial_rebalance_delay_ms=3000))
    leader = Client(harness, "anna", instance="anna-1")
    follower = Client(harness, "ben")
    other = Client(harness, "cleo")
    for member in (leader, follower, other):
        member.come()
    harness.pass_time(6000)  # the initial delay is extended once members have joined
    if state is ClassicState.COMPLETING_REBALANCE:
        return Scene(harness, leader, follower)
    rejoin(leader, follower, other)
    if state is ClassicState.PREPARING_REBALANCE:
        other.leave()
    elif state is ClassicState.EMPTY:
        harness.leave(
            *(LeavingMember(member.id, member.instance) for member in (leader, follower, other))
        )
    elif state is ClassicState.DEAD:
        harness.release(ErrorCode.NOT_COORDINATOR)
    return Scene(harness, leader, follower)


def join_new(scene: Scene) -> ErrorCode | None:
    return Client(scene.harness, "dora").join().error


def join_new_of_old_client(scene: Scene) -> ErrorCode | None:
    return Client(scene.harness, "dora", requires_known_member=False).join().error


def join_new_static(scene: Scene) -> ErrorCode | None:
    return Client(scene.harness, "dora", instance="dora-1").join().error


def join_of_other_type(scene: Scene) -> ErrorCode | None:
    return Client(scene.harness, "dora").join(protocol_type="connect").error


def join_without_common_protocol(scene: Scene) -> ErrorCode | None:
    return Client(scene.harness, "dora").join(protocols=(MemberProtocol("sticky", b""),)).error


def join_without_protocols(scene: Scene) -> ErrorCode | None:
    return Client(scene.harness, "dora").join(protocols=()).error


def join_without_type(scene: Scene) -> ErrorCode | None:
    return Client(scene.harness, "dora").join(protocol_type="").error


def join_with_short_session(scene: Scene) -> ErrorCode | None:
    return Client(scene.harness, "dora").join(session_timeout_ms=5999).error


def join_with_long_session(scene: Scene) -> ErrorCode | None:
    return Client(scene.harness, "dora").join(session_timeout_ms=1_800_001).error


def join_with_strange_id(scene: Scene) -> ErrorCode | None:
    return Client(scene.harness, "dora", id="dora-0").join().error


def join_with_strange_instance(scene: Scene) -> ErrorCode | None:
    return scene.follower.join(instance="ben-1").error


def join_with_fenced_instance(scene: Scene) -> ErrorCode | None:
    return scene.leader.join(member="anna-1-before").error


def join_follower_again(scene: Scene) -> ErrorCode | None:
    return scene.follower.join().error


def join_follower_changed(scene: Scene) -> ErrorCode | None:
    scene.follower.topics = ("orders", "returns")
    return scene.follower.join().error


def join_leader_again(scene: Scene) -> ErrorCode | None:
    return scene.leader.join().error


def sync_leader(scene: Scene) -> ErrorCode | None:
    return scene.leader.sync({}).error


def sync_follower(scene: Scene) -> ErrorCode | None:
    return scene.follower.sync().error


def sync_of_old_client(scene: Scene) -> ErrorCode | None:
    return scene.follower.sync(protocol_type=None, protocol=None).error


def sync_stranger(scene: Scene) -> ErrorCode | None:
    return scene.follower.sync(member="dora-0").error


def sync_fenced(scene: Scene) -> ErrorCode | None:
    return scene.leader.sync(member="anna-1-before").error


def sync_stale(scene: Scene) -> ErrorCode | None:
    return scene.follower.sync(generation=scene.follower.generation - 1).error


def sync_other_type(scene: Scene) -> ErrorCode | None:
    return scene.follower.sync(protocol_type="connect").error


def sync_other_protocol(scene: Scene) -> ErrorCode | None:
    return scene.follower.sync(protocol="sticky").error


def heartbeat(scene: Scene) -> ErrorCode | None:
    return scene.follower.heartbeat()


def heartbeat_of_stranger(scene: Scene) -> ErrorCode | None:
    return scene.follower.heartbeat(member="dora-0")


def heartbeat_fenced(scene: Scene) -> ErrorCode | None:
    return scene.leader.heartbeat(member="anna-1-before")


def heartbeat_stale(scene: Scene) -> ErrorCode | None:
    return scene.follower.heartbeat(generation=scene.follower.generation + 1)


def leave(scene: Scene) -> ErrorCode | None:
    return leave_as(scene, LeavingMember(scene.follower.id, None))


def leave_by_instance(scene: Scene) -> ErrorCode | None:
    return leave_as(scene, LeavingMember("", "anna-1"))


def leave_strange_instance(scene: Scene) -> ErrorCode | None:
    return leave_as(scene, LeavingMember("", "dora-1"))


def leave_stranger(scene: Scene) -> ErrorCode | None:
    return leave_as(scene, LeavingMember("dora-0", None))


def leave_nobody(scene: Scene) -> ErrorCode | None:
    return leave_as(scene, LeavingMember("", None))


def leave_fenced(scene: Scene) -> ErrorCode | None:
    return leave_as(scene, LeavingMember("anna-1-before", "anna-1"))


def leave_as(scene: Scene, leaver: LeavingMember) -> ErrorCode:
    error, left = scene.harness.leave(leaver).reply
    reply = left[0].error if left else error
    assert isinstance(reply, ErrorCode)
    return reply


def commit(scene: Scene) -> ErrorCode | None:
    return check_commit(scene, scene.follower.id, None, scene.follower.generation)


def commit_stale(scene: Scene) -> ErrorCode | None:
    return check_commit(scene, scene.follower.id, None, scene.follower.generation - 1)


def commit_fenced(scene: Scene) -> ErrorCode | None:
    return check_commit(scene, "anna-1-before", "anna-1", scene.leader.generation)


def commit_of_stranger(scene: Scene) -> ErrorCode | None:
    return check_commit(scene, "dora-0", None, scene.follower.generation)


def commit_without_group(scene: Scene) -> ErrorCode | None:
    return check_commit(scene, "", None, -1)


def commit_in_transaction(scene: Scene) -> ErrorCode | None:
    return check_commit(scene, scene.follower.id, None, scene.follower.generation, txn=True)


def commit_in_stale_transaction(scene: Scene) -> ErrorCode | None:
    return check_commit(scene, scene.follower.id, None, scene.follower.generation - 1, txn=True)


def commit_in_transaction_without_group(scene: Scene) -> ErrorCode | None:
    return check_commit(scene, "", None, -1, txn=True)


def check_commit(
    scene: Scene, member: str, instance: str | None, generation: int, *, txn: bool = False
) -> ErrorCode:
    return queries.check_commit(
        scene.harness.group, member, instance, generation, is_transactional=txn
    )


def delete_group(scene: Scene) -> ErrorCode | None:
    return scene.harness.delete().error


def delete_offsets_of_subscribed_topic(scene: Scene) -> ErrorCode | None:
    return scene.harness.group.check_delete_offsets("orders")


def delete_offsets_of_other_topic(scene: Scene) -> ErrorCode | None:
    return scene.harness.group.check_delete_offsets("returns")


Row = tuple[Callable[[Scene], ErrorCode | None], tuple[ErrorCode | None, ...]]

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
    (join_with_strange_id, (UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, GONE)),
    (join_with_strange_instance, (UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, GONE)),
    (join_with_fenced_instance, (UNKNOWN, FENCED, FENCED, FENCED, GONE)),
    (join_follower_again, (UNKNOWN, WAITS, NONE, NONE, GONE)),
    (join_follower_changed, (UNKNOWN, WAITS, WAITS, WAITS, GONE)),
    (join_leader_again, (UNKNOWN, WAITS, NONE, WAITS, GONE)),
    (sync_leader, (UNKNOWN, REBALANCE, NONE, NONE, GONE)),
    (sync_follower, (UNKNOWN, REBALANCE, WAITS, NONE, GONE)),
    (sync_of_old_client, (UNKNOWN, REBALANCE, WAITS, NONE, GONE)),
    (sync_stranger, (UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, GONE)),
    (sync_fenced, (UNKNOWN, FENCED, FENCED, FENCED, GONE)),
    (sync_stale, (UNKNOWN, STALE, STALE, STALE, GONE)),
    (sync_other_type, (UNKNOWN, INCONSISTENT, INCONSISTENT, INCONSISTENT, GONE)),
    (sync_other_protocol, (UNKNOWN, INCONSISTENT, INCONSISTENT, INCONSISTENT, GONE)),
    (heartbeat, (UNKNOWN, REBALANCE, NONE, NONE, GONE)),
    (heartbeat_of_stranger, (UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, GONE)),
    (heartbeat_fenced, (UNKNOWN, FENCED, FENCED, FENCED, GONE)),
    (heartbeat_stale, (UNKNOWN, STALE, STALE, STALE, GONE)),
    (leave, (UNKNOWN, NONE, NONE, NONE, GONE)),
    (leave_by_instance, (UNKNOWN, NONE, NONE, NONE, GONE)),
    (leave_strange_instance, (UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, GONE)),
    (leave_stranger, (UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, GONE)),
    (leave_nobody, (UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, GONE)),
    (leave_fenced, (UNKNOWN, FENCED, FENCED, FENCED, GONE)),
    (commit, (UNKNOWN, NONE, REBALANCE, NONE, GONE)),
    (commit_stale, (UNKNOWN, STALE, STALE, STALE, GONE)),
    (commit_fenced, (UNKNOWN, FENCED, FENCED, FENCED, GONE)),
    (commit_of_stranger, (UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, GONE)),
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
    ask: Callable[[Scene], ErrorCode | None], state: ClassicState, expected: ErrorCode | None
) -> None:
    scene = scene_in(state)
    assert scene.harness.group.state is state
    assert ask(scene) is expected


def test_the_helper_brings_a_group_into_each_state() -> None:
    harness = ClassicGroupHarness()
    settle(Client(harness, "anna"), Client(harness, "ben"))
    assert harness.group.state is ClassicState.STABLE
