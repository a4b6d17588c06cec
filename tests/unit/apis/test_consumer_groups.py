"""ConsumerGroupHeartbeat and ConsumerGroupDescribe: every version, decoded and encoded."""

from datetime import timedelta
from typing import Any

import pytest
from tests.unit.apis.harness import ApiHarness, topic_id_of

from penstock.apis.registry import APIS
from penstock.coordinators.group.consumer.requests import (
    ConsumerHeartbeat,
    ConsumerHeartbeatReply,
    DescribedConsumerGroup,
    DescribedConsumerMember,
    MemberKind,
    NamedPartitions,
)
from penstock.coordinators.group.records import TopicPartitions
from penstock.model.errors import ErrorCode
from penstock.protocol.api_keys import ApiKey
from penstock.security.authorizer import AclOperation, ResourceType

BEAT, DESCRIBE = ApiKey.CONSUMER_GROUP_HEARTBEAT, ApiKey.CONSUMER_GROUP_DESCRIBE
ORDERS = topic_id_of("orders")
NOTHING_ASKED = -(2**31)


def test_all_advertised_versions_are_served() -> None:
    """librdkafka uses version 1 of the heartbeat only."""
    assert APIS[BEAT].versions == range(2)
    assert APIS[DESCRIBE].versions == range(2)


# -- ConsumerGroupHeartbeat ----------------------------------------------------------------

WHOLE: dict[str, Any] = {
    "group_id": "g",
    "member_id": "m-1",
    "member_epoch": 3,
    "instance_id": "static-1",
    "rack_id": "rack-1",
    "rebalance_timeout": timedelta(seconds=60),
    "subscribed_topic_names": ["orders", "absent"],
    "subscribed_topic_regex": "or.*",
    "server_assignor": "range",
    "topic_partitions": [{"topic_id": ORDERS, "partitions": [2, 0]}],
}


@pytest.mark.parametrize("version", APIS[BEAT].versions)
def test_a_heartbeat_is_decoded_in_every_version(harness: ApiHarness, version: int) -> None:
    harness.ask(BEAT, version, **WHOLE)
    assert harness.groups.requests == [
        ConsumerHeartbeat(
            group="g",
            member="m-1",
            member_epoch=3,
            client_id="test",
            client_host="/10.0.0.9",
            instance="static-1",
            rack="rack-1",
            rebalance_timeout_ms=60_000,
            topics=("orders", "absent"),
            topic_regex="or.*" if version >= 1 else None,
            assignor="range",
            owned=(TopicPartitions(ORDERS, (2, 0)),),
            requires_member=version >= 1,
        )
    ]


@pytest.mark.parametrize("version", APIS[BEAT].versions)
@pytest.mark.parametrize(
    "values",
    [
        {"subscribed_topic_names": ["t"] * 20_001},
        {"topic_partitions": [{"topic_id": ORDERS, "partitions": []}] * 20_001},
        {"topic_partitions": [{"topic_id": ORDERS, "partitions": range(200_001)}]},
    ],
    ids=["topics", "owned topics", "owned partitions"],
)
def test_a_heartbeat_with_more_entries_than_allowed_is_refused(
    harness: ApiHarness, version: int, values: dict[str, Any]
) -> None:
    reply = harness.ask(BEAT, version, **(WHOLE | values))
    assert reply.error_code == ErrorCode.INVALID_REQUEST
    assert "at most" in reply.error_message
    assert harness.groups.requests == []


@pytest.mark.parametrize("version", APIS[BEAT].versions)
def test_unchanged_fields_are_none(harness: ApiHarness, version: int) -> None:
    harness.ask(BEAT, version, group_id="g", member_id="m-1", member_epoch=-2)
    assert harness.groups.requests == [
        ConsumerHeartbeat(
            group="g",
            member="m-1",
            member_epoch=-2,
            client_id="test",
            client_host="/10.0.0.9",
            requires_member=version >= 1,
        )
    ]


@pytest.mark.parametrize("version", APIS[BEAT].versions)
def test_an_empty_list_is_not_the_same_as_no_change(harness: ApiHarness, version: int) -> None:
    nothing = {"subscribed_topic_names": [], "topic_partitions": [], "server_assignor": ""}
    harness.ask(BEAT, version, **{**WHOLE, **nothing, "subscribed_topic_regex": ""})
    (request,) = harness.groups.requests
    assert isinstance(request, ConsumerHeartbeat)
    assert (request.topics, request.owned, request.assignor) == ((), (), "")
    assert request.topic_regex == ("" if version >= 1 else None)


def test_a_zero_topic_id_is_not_owned(harness: ApiHarness) -> None:
    owned = [{"topic_id": None, "partitions": [0]}, {"topic_id": ORDERS, "partitions": []}]
    harness.ask(BEAT, 1, **{**WHOLE, "topic_partitions": owned})
    (request,) = harness.groups.requests
    assert isinstance(request, ConsumerHeartbeat)
    assert request.owned == (TopicPartitions(ORDERS, ()),)


@pytest.mark.parametrize("version", APIS[BEAT].versions)
def test_a_changed_assignment_is_encoded(harness: ApiHarness, version: int) -> None:
    harness.groups.heartbeat_reply = ConsumerHeartbeatReply(
        error=ErrorCode.NONE,
        member="m-1",
        member_epoch=4,
        heartbeat_interval_ms=5000,
        assignment=(TopicPartitions(ORDERS, (0, 2)),),
    )
    reply = harness.ask(BEAT, version, **WHOLE)
    assert (reply.error_code, reply.error_message) == (0, None)
    assert (reply.member_id, reply.member_epoch) == ("m-1", 4)
    assert reply.heartbeat_interval == timedelta(seconds=5)
    (assigned,) = reply.assignment.topic_partitions
    assert (assigned.topic_id, assigned.partitions) == (ORDERS, (0, 2))


@pytest.mark.parametrize("version", APIS[BEAT].versions)
def test_an_empty_assignment_is_not_the_same_as_no_change(
    harness: ApiHarness, version: int
) -> None:
    harness.groups.heartbeat_reply = ConsumerHeartbeatReply(error=ErrorCode.NONE, assignment=None)
    assert harness.ask(BEAT, version, **WHOLE).assignment is None
    harness.groups.heartbeat_reply = ConsumerHeartbeatReply(error=ErrorCode.NONE, assignment=())
    assert harness.ask(BEAT, version, **WHOLE).assignment.topic_partitions == ()


@pytest.mark.parametrize("version", APIS[BEAT].versions)
def test_an_error_has_a_message(harness: ApiHarness, version: int) -> None:
    code = ErrorCode.FENCED_MEMBER_EPOCH
    harness.groups.heartbeat_reply = ConsumerHeartbeatReply(error=code, message="too old")
    reply = harness.ask(BEAT, version, **WHOLE)
    assert (reply.error_code, reply.error_message, reply.member_id) == (code, "too old", None)


@pytest.mark.parametrize("version", APIS[BEAT].versions)
def test_subscribing_requires_describe_on_the_topics(harness: ApiHarness, version: int) -> None:
    harness.guard.deny(AclOperation.DESCRIBE, ResourceType.TOPIC, "absent")
    reply = harness.ask(BEAT, version, **WHOLE)
    assert reply.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert harness.groups.requests == []


# -- ConsumerGroupDescribe -----------------------------------------------------------------

MEMBER = DescribedConsumerMember(
    member="m-1",
    instance="static-1",
    rack=None,
    member_epoch=4,
    client_id="c",
    client_host="/10.0.0.9",
    topics=("orders",),
    topic_regex="or.*",
    assignment=(NamedPartitions(ORDERS, "orders", (0,)),),
    target=(NamedPartitions(ORDERS, "orders", (0, 1)),),
    kind=MemberKind.CLASSIC,
)
GROUP = DescribedConsumerGroup(
    group="g",
    error=ErrorCode.NONE,
    state="Reconciling",
    group_epoch=5,
    assignment_epoch=4,
    assignor="uniform",
    members=(MEMBER,),
)


@pytest.mark.parametrize("version", APIS[DESCRIBE].versions)
def test_a_group_is_described_in_every_version(harness: ApiHarness, version: int) -> None:
    harness.groups.consumer_described = {"g": GROUP}
    (group,) = harness.ask(DESCRIBE, version, group_ids=["g"]).groups
    assert (group.error_code, group.error_message, group.group_id) == (0, None, "g")
    assert (group.group_state, group.assignor_name) == ("Reconciling", "uniform")
    assert (group.group_epoch, group.assignment_epoch) == (5, 4)
    assert group.authorized_operations == NOTHING_ASKED
    (member,) = group.members
    assert (member.member_id, member.instance_id, member.rack_id) == ("m-1", "static-1", None)
    assert (member.member_epoch, member.client_id, member.client_host) == (4, "c", "/10.0.0.9")
    assert (member.subscribed_topic_names, member.subscribed_topic_regex) == (("orders",), "or.*")
    (assigned,) = member.assignment.topic_partitions
    assert (assigned.topic_id, assigned.topic_name, assigned.partitions) == (ORDERS, "orders", (0,))
    (target,) = member.target_assignment.topic_partitions
    assert (target.topic_id, target.topic_name, target.partitions) == (ORDERS, "orders", (0, 1))
    if version >= 1:
        assert member.member_type == 0


@pytest.mark.parametrize("version", APIS[DESCRIBE].versions)
def test_several_groups_are_described_each_once_in_order(harness: ApiHarness, version: int) -> None:
    harness.guard.deny(AclOperation.DESCRIBE, ResourceType.GROUP, "theirs")
    absent = DescribedConsumerGroup(
        group="absent", error=ErrorCode.GROUP_ID_NOT_FOUND, message="no such group"
    )
    harness.groups.consumer_described = {"g": GROUP, "absent": absent}
    reply = harness.ask(DESCRIBE, version, group_ids=["absent", "theirs", "g", "absent"])
    groups = [(group.group_id, group.error_code, group.error_message) for group in reply.groups]
    assert groups == [
        ("absent", ErrorCode.GROUP_ID_NOT_FOUND, "no such group"),
        ("theirs", ErrorCode.GROUP_AUTHORIZATION_FAILED, None),
        ("g", 0, None),
    ]


@pytest.mark.parametrize("version", APIS[DESCRIBE].versions)
def test_authorized_operations_are_returned_on_request(harness: ApiHarness, version: int) -> None:
    harness.groups.consumer_described = {"g": GROUP}
    harness.guard.deny(AclOperation.DELETE, ResourceType.GROUP, "g")
    (group,) = harness.ask(
        DESCRIBE, version, group_ids=["g"], include_authorized_operations=True
    ).groups
    others = (
        *(AclOperation.READ, AclOperation.DESCRIBE),
        *(AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS),
    )
    assert group.authorized_operations == sum(1 << operation for operation in others)


@pytest.mark.parametrize("version", APIS[DESCRIBE].versions)
def test_members_are_hidden_if_a_topic_may_not_be_described(
    harness: ApiHarness, version: int
) -> None:
    harness.groups.consumer_described = {"g": GROUP}
    harness.guard.deny(AclOperation.DESCRIBE, ResourceType.TOPIC, "orders")
    (group,) = harness.ask(DESCRIBE, version, group_ids=["g"]).groups
    assert group.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert (group.members, group.group_state, group.group_epoch) == ((), "", 0)
