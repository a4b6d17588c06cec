"""The error code of every request to a consumer group in every state, as one table.

A group without members and offsets is removed, so there is no dead group.
"""

from collections.abc import Callable
from typing import NamedTuple

import pytest
from tests.unit.coordinators.group.consumer_harness import (
    GROUP,
    Consumer,
    ConsumerGroupHarness,
    settle,
)

from penstock.coordinators.group.consumer.state import ConsumerState
from penstock.coordinators.group.requests import CommitOffsets, FetchOffsets
from penstock.model.errors import ErrorCode

NONE = ErrorCode.NONE
UNKNOWN = ErrorCode.UNKNOWN_MEMBER_ID
FENCED = ErrorCode.FENCED_MEMBER_EPOCH
FENCED_INSTANCE = ErrorCode.FENCED_INSTANCE_ID
UNRELEASED = ErrorCode.UNRELEASED_INSTANCE_ID
STALE = ErrorCode.STALE_MEMBER_EPOCH
STALE_GENERATION = ErrorCode.ILLEGAL_GENERATION
INVALID = ErrorCode.INVALID_REQUEST
NO_ASSIGNOR = ErrorCode.UNSUPPORTED_ASSIGNOR
TOO_OLD = ErrorCode.UNSUPPORTED_VERSION
NON_EMPTY = ErrorCode.NON_EMPTY_GROUP
SUBSCRIBED = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC

STATES = tuple(state for state in ConsumerState if state is not ConsumerState.DEAD)


class Scene(NamedTuple):
    """A group in which anna is static and bob is not, both at their current epoch."""

    harness: ConsumerGroupHarness
    anna: Consumer
    bob: Consumer


def scene_in(state: ConsumerState) -> Scene:
    harness = ConsumerGroupHarness(orders=6, returns=1)
    anna, bob = Consumer(harness, "anna", instance="anna-1"), Consumer(harness, "bob")
    cleo = Consumer(harness, "cleo")
    settle(anna, bob)
    if state is ConsumerState.RECONCILING:
        cleo.join()
        return Scene(harness, anna, bob)
    settle(anna, bob, cleo)
    if state is ConsumerState.ASSIGNING:
        cleo.leave()
    elif state is ConsumerState.EMPTY:
        for member in (anna, bob, cleo):
            member.leave()
    return Scene(harness, anna, bob)


def join_new(scene: Scene) -> ErrorCode:
    return Consumer(scene.harness, "dora").join().error


def join_again(scene: Scene) -> ErrorCode:
    return scene.bob.join().error


def join_with_instance_of_another(scene: Scene) -> ErrorCode:
    return Consumer(scene.harness, "dora", instance="anna-1").join().error


def join_with_strange_assignor(scene: Scene) -> ErrorCode:
    return Consumer(scene.harness, "dora", assignor="best").join().error


def join_with_partitions(scene: Scene) -> ErrorCode:
    return Consumer(scene.harness, "dora").join(owned=None).error


def beat(scene: Scene) -> ErrorCode:
    return scene.bob.beat().error


def beat_of_another_epoch(scene: Scene) -> ErrorCode:
    return scene.bob.beat(member_epoch=scene.bob.epoch + 7).error


def beat_of_stranger(scene: Scene) -> ErrorCode:
    return Consumer(scene.harness, "dora", epoch=scene.bob.epoch).beat().error


def beat_with_fenced_instance(scene: Scene) -> ErrorCode:
    return scene.anna.beat(member="anna before").error


def beat_with_strange_instance(scene: Scene) -> ErrorCode:
    return scene.bob.beat(instance="bob-1").error


def leave(scene: Scene) -> ErrorCode:
    return scene.bob.leave().error


def leave_for_a_while(scene: Scene) -> ErrorCode:
    return scene.anna.pause().error


def leave_for_a_while_without_instance(scene: Scene) -> ErrorCode:
    return scene.bob.pause().error


def leave_of_stranger(scene: Scene) -> ErrorCode:
    return Consumer(scene.harness, "dora").leave().error


def commit(scene: Scene) -> ErrorCode:
    return check_commit(scene, "bob", scene.bob.epoch)


def commit_stale(scene: Scene) -> ErrorCode:
    return check_commit(scene, "bob", scene.bob.epoch - 1)


def commit_of_old_client(scene: Scene) -> ErrorCode:
    return check_commit(scene, "bob", scene.bob.epoch, knows_epochs=False)


def commit_of_stranger(scene: Scene) -> ErrorCode:
    return check_commit(scene, "dora", scene.bob.epoch)


def commit_without_group(scene: Scene) -> ErrorCode:
    return check_commit(scene, "", -1)


def commit_in_transaction(scene: Scene) -> ErrorCode:
    return check_commit(scene, "bob", scene.bob.epoch, knows_epochs=False, txn=True)


def commit_in_stale_transaction(scene: Scene) -> ErrorCode:
    return check_commit(scene, "bob", scene.bob.epoch - 1, knows_epochs=False, txn=True)


def commit_in_transaction_without_group(scene: Scene) -> ErrorCode:
    return check_commit(scene, "", -1, txn=True)


def check_commit(
    scene: Scene, member: str, epoch: int, *, knows_epochs: bool = True, txn: bool = False
) -> ErrorCode:
    request = CommitOffsets(
        group=GROUP,
        member=member,
        instance=None,
        generation=epoch,
        offsets=(),
        is_consumer_protocol=knows_epochs,
    )
    return scene.harness.consumer.check_commit(request, is_transactional=txn)


def fetch_as_member(scene: Scene) -> ErrorCode:
    return check_fetch(scene, "bob", scene.bob.epoch)


def fetch_as_stale_member(scene: Scene) -> ErrorCode:
    return check_fetch(scene, "bob", scene.bob.epoch - 1)


def fetch_as_stranger(scene: Scene) -> ErrorCode:
    return check_fetch(scene, "dora", scene.bob.epoch)


def fetch_as_nobody(scene: Scene) -> ErrorCode:
    return check_fetch(scene, None, -1)


def check_fetch(scene: Scene, member: str | None, epoch: int) -> ErrorCode:
    request = FetchOffsets(group=GROUP, member=member, member_epoch=epoch, partitions=None)
    return scene.harness.consumer.check_fetch(request)


def delete_group(scene: Scene) -> ErrorCode:
    harness = scene.harness
    reply = harness.consumer.delete(harness.environment).reply
    assert isinstance(reply, ErrorCode)
    return reply


def delete_offsets_of_subscribed_topic(scene: Scene) -> ErrorCode:
    return scene.harness.consumer.check_delete_offsets("orders")


def delete_offsets_of_other_topic(scene: Scene) -> ErrorCode:
    return scene.harness.consumer.check_delete_offsets("returns")


# Without members, and with members in any state: pending reconciliations change no code.
TABLE = (
    (join_new, NONE, NONE),
    (join_again, NONE, NONE),
    (join_with_instance_of_another, NONE, UNRELEASED),
    (join_with_strange_assignor, NO_ASSIGNOR, NO_ASSIGNOR),
    (join_with_partitions, INVALID, INVALID),
    (beat, UNKNOWN, NONE),
    (beat_of_another_epoch, UNKNOWN, FENCED),
    (beat_of_stranger, UNKNOWN, UNKNOWN),
    (beat_with_fenced_instance, UNKNOWN, FENCED_INSTANCE),
    (beat_with_strange_instance, UNKNOWN, UNKNOWN),
    (leave, UNKNOWN, NONE),
    (leave_for_a_while, UNKNOWN, NONE),
    (leave_for_a_while_without_instance, INVALID, INVALID),
    (leave_of_stranger, UNKNOWN, UNKNOWN),
    (commit, UNKNOWN, NONE),
    (commit_stale, UNKNOWN, STALE),
    (commit_of_old_client, UNKNOWN, TOO_OLD),
    (commit_of_stranger, UNKNOWN, UNKNOWN),
    (commit_without_group, NONE, UNKNOWN),
    (commit_in_transaction, UNKNOWN, NONE),
    (commit_in_stale_transaction, UNKNOWN, STALE_GENERATION),
    (commit_in_transaction_without_group, NONE, NONE),
    (fetch_as_member, UNKNOWN, NONE),
    (fetch_as_stale_member, UNKNOWN, STALE),
    (fetch_as_stranger, UNKNOWN, UNKNOWN),
    (fetch_as_nobody, NONE, NONE),
    (delete_group, NONE, NON_EMPTY),
    (delete_offsets_of_subscribed_topic, NONE, SUBSCRIBED),
    (delete_offsets_of_other_topic, NONE, NONE),
)


@pytest.mark.parametrize(
    ("ask", "state", "expected"),
    [
        pytest.param(ask, state, alone if state is ConsumerState.EMPTY else together)
        for ask, alone, together in TABLE
        for state in STATES
    ],
    ids=[f"{ask.__name__}-{state}" for ask, _, _ in TABLE for state in STATES],
)
def test_each_request_gets_the_error_code_of_the_group_state(
    ask: Callable[[Scene], ErrorCode], state: ConsumerState, expected: ErrorCode
) -> None:
    scene = scene_in(state)
    assert scene.harness.consumer.state is state
    assert ask(scene) is expected
