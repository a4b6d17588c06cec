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


class GroupScenario(NamedTuple):
    """A group in which anna is static and bob is not, both at their current epoch."""

    harness: ConsumerGroupHarness
    anna: Consumer
    bob: Consumer


def scenario_in(state: ConsumerState) -> GroupScenario:
    harness = ConsumerGroupHarness(orders=6, returns=1)
    anna, bob = Consumer(harness, "anna", instance="anna-1"), Consumer(harness, "bob")
    cleo = Consumer(harness, "cleo")
    settle(anna, bob)
    if state is ConsumerState.RECONCILING:
        cleo.join()
        return GroupScenario(harness, anna, bob)
    settle(anna, bob, cleo)
    if state is ConsumerState.ASSIGNING:
        cleo.leave()
    elif state is ConsumerState.EMPTY:
        for member in (anna, bob, cleo):
            member.leave()
    return GroupScenario(harness, anna, bob)


def join_new(scenario: GroupScenario) -> ErrorCode:
    return Consumer(scenario.harness, "dora").join().error


def join_again(scenario: GroupScenario) -> ErrorCode:
    return scenario.bob.join().error


def join_with_instance_of_another(scenario: GroupScenario) -> ErrorCode:
    return Consumer(scenario.harness, "dora", instance="anna-1").join().error


def join_with_unknown_assignor(scenario: GroupScenario) -> ErrorCode:
    return Consumer(scenario.harness, "dora", assignor="best").join().error


def join_with_partitions(scenario: GroupScenario) -> ErrorCode:
    return Consumer(scenario.harness, "dora").join(owned=None).error


def beat(scenario: GroupScenario) -> ErrorCode:
    return scenario.bob.beat().error


def beat_of_another_epoch(scenario: GroupScenario) -> ErrorCode:
    return scenario.bob.beat(member_epoch=scenario.bob.epoch + 7).error


def beat_of_unknown_member(scenario: GroupScenario) -> ErrorCode:
    return Consumer(scenario.harness, "dora", epoch=scenario.bob.epoch).beat().error


def beat_with_fenced_instance(scenario: GroupScenario) -> ErrorCode:
    return scenario.anna.beat(member="anna before").error


def beat_with_unknown_instance(scenario: GroupScenario) -> ErrorCode:
    return scenario.bob.beat(instance="bob-1").error


def leave(scenario: GroupScenario) -> ErrorCode:
    return scenario.bob.leave().error


def leave_temporarily(scenario: GroupScenario) -> ErrorCode:
    return scenario.anna.pause().error


def leave_temporarily_without_instance(scenario: GroupScenario) -> ErrorCode:
    return scenario.bob.pause().error


def leave_of_unknown_member(scenario: GroupScenario) -> ErrorCode:
    return Consumer(scenario.harness, "dora").leave().error


def commit(scenario: GroupScenario) -> ErrorCode:
    return check_commit(scenario, "bob", scenario.bob.epoch)


def commit_stale(scenario: GroupScenario) -> ErrorCode:
    return check_commit(scenario, "bob", scenario.bob.epoch - 1)


def commit_of_old_client(scenario: GroupScenario) -> ErrorCode:
    return check_commit(scenario, "bob", scenario.bob.epoch, knows_epochs=False)


def commit_of_unknown_member(scenario: GroupScenario) -> ErrorCode:
    return check_commit(scenario, "dora", scenario.bob.epoch)


def commit_without_group(scenario: GroupScenario) -> ErrorCode:
    return check_commit(scenario, "", -1)


def commit_in_transaction(scenario: GroupScenario) -> ErrorCode:
    return check_commit(scenario, "bob", scenario.bob.epoch, knows_epochs=False, txn=True)


def commit_in_stale_transaction(scenario: GroupScenario) -> ErrorCode:
    return check_commit(scenario, "bob", scenario.bob.epoch - 1, knows_epochs=False, txn=True)


def commit_in_transaction_without_group(scenario: GroupScenario) -> ErrorCode:
    return check_commit(scenario, "", -1, txn=True)


def check_commit(
    scenario: GroupScenario,
    member: str,
    epoch: int,
    *,
    knows_epochs: bool = True,
    txn: bool = False,
) -> ErrorCode:
    request = CommitOffsets(
        group=GROUP,
        member=member,
        instance=None,
        generation=epoch,
        offsets=(),
        is_consumer_protocol=knows_epochs,
    )
    return scenario.harness.consumer.check_commit(request, is_transactional=txn)


def fetch_as_member(scenario: GroupScenario) -> ErrorCode:
    return check_fetch(scenario, "bob", scenario.bob.epoch)


def fetch_as_stale_member(scenario: GroupScenario) -> ErrorCode:
    return check_fetch(scenario, "bob", scenario.bob.epoch - 1)


def fetch_as_unknown_member(scenario: GroupScenario) -> ErrorCode:
    return check_fetch(scenario, "dora", scenario.bob.epoch)


def fetch_without_member(scenario: GroupScenario) -> ErrorCode:
    return check_fetch(scenario, None, -1)


def check_fetch(scenario: GroupScenario, member: str | None, epoch: int) -> ErrorCode:
    request = FetchOffsets(group=GROUP, member=member, member_epoch=epoch, partitions=None)
    return scenario.harness.consumer.check_fetch(request)


def delete_group(scenario: GroupScenario) -> ErrorCode:
    harness = scenario.harness
    reply = harness.consumer.delete(harness.environment).reply
    assert isinstance(reply, ErrorCode)
    return reply


def delete_offsets_of_subscribed_topic(scenario: GroupScenario) -> ErrorCode:
    return scenario.harness.consumer.check_delete_offsets("orders")


def delete_offsets_of_other_topic(scenario: GroupScenario) -> ErrorCode:
    return scenario.harness.consumer.check_delete_offsets("returns")


# Without members, and with members in any state: pending reconciliations change no code.
TABLE = (
    (join_new, NONE, NONE),
    (join_again, NONE, NONE),
    (join_with_instance_of_another, NONE, UNRELEASED),
    (join_with_unknown_assignor, NO_ASSIGNOR, NO_ASSIGNOR),
    (join_with_partitions, INVALID, INVALID),
    (beat, UNKNOWN, NONE),
    (beat_of_another_epoch, UNKNOWN, FENCED),
    (beat_of_unknown_member, UNKNOWN, UNKNOWN),
    (beat_with_fenced_instance, UNKNOWN, FENCED_INSTANCE),
    (beat_with_unknown_instance, UNKNOWN, UNKNOWN),
    (leave, UNKNOWN, NONE),
    (leave_temporarily, UNKNOWN, NONE),
    (leave_temporarily_without_instance, INVALID, INVALID),
    (leave_of_unknown_member, UNKNOWN, UNKNOWN),
    (commit, UNKNOWN, NONE),
    (commit_stale, UNKNOWN, STALE),
    (commit_of_old_client, UNKNOWN, TOO_OLD),
    (commit_of_unknown_member, UNKNOWN, UNKNOWN),
    (commit_without_group, NONE, UNKNOWN),
    (commit_in_transaction, UNKNOWN, NONE),
    (commit_in_stale_transaction, UNKNOWN, STALE_GENERATION),
    (commit_in_transaction_without_group, NONE, NONE),
    (fetch_as_member, UNKNOWN, NONE),
    (fetch_as_stale_member, UNKNOWN, STALE),
    (fetch_as_unknown_member, UNKNOWN, UNKNOWN),
    (fetch_without_member, NONE, NONE),
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
    ask: Callable[[GroupScenario], ErrorCode], state: ConsumerState, expected: ErrorCode
) -> None:
    scenario = scenario_in(state)
    assert scenario.harness.consumer.state is state
    assert ask(scenario) is expected
