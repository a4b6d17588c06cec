"""Requests about consumer groups as plain values. No connections here."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from penstock.client.call import Call
from penstock.client.data_calls import group_by_topic, group_numbers
from penstock.client.errors import RefusedByBroker
from penstock.client.group_values import (
    CLASSIC,
    CONSUMER,
    CommittedOffset,
    GroupDescription,
    GroupMember,
    ListedGroup,
)
from penstock.client.item_results import settle
from penstock.client.metadata import BrokerMetadata, read_error
from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicPartition
from penstock.protocol.api_keys import ApiKey
from penstock.protocol.coordinator_values import MalformedRecord, ValueReader

LIST_CALL = Call(ApiKey.LIST_GROUPS, range(6), {})
_NO_GENERATION = -1
_NO_OFFSET = -1
_DEAD = "Dead"  # sent by brokers before DescribeGroups 6 for an unknown group


# List and describe groups.


def read_listed(answer: Any) -> list[ListedGroup]:
    code = read_error(answer.error_code)
    if code:
        raise RefusedByBroker("list groups", code)
    return [
        ListedGroup(
            group.group_id,
            getattr(group, "group_type", "").lower(),
            getattr(group, "group_state", ""),
            group.protocol_type,
        )
        for group in answer.groups
    ]


def describe_classic_call(group: str) -> Call:
    return Call(ApiKey.DESCRIBE_GROUPS, range(7), {"groups": [group]})


def read_classic(answer: Any, coordinator: BrokerMetadata) -> GroupDescription | None:
    """None: the group does not exist."""
    (group,) = answer.groups
    code = read_error(group.error_code)
    if code is ErrorCode.GROUP_ID_NOT_FOUND or (not code and group.group_state == _DEAD):
        return None
    _check(group, code)
    return GroupDescription(
        group=group.group_id,
        kind=CLASSIC,
        state=group.group_state,
        assignor=group.protocol_data,
        members=tuple(_read_classic_member(member) for member in group.members),
        coordinator=coordinator,
    )


def describe_consumer_call(group: str) -> Call:
    return Call(ApiKey.CONSUMER_GROUP_DESCRIBE, range(2), {"group_ids": [group]})


def read_consumer(answer: Any, coordinator: BrokerMetadata) -> GroupDescription | None:
    """None: no consumer group (KIP-848) has this id."""
    (group,) = answer.groups
    code = read_error(group.error_code)
    if code in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION):
        return None
    _check(group, code)
    return GroupDescription(
        group=group.group_id,
        kind=CONSUMER,
        state=group.group_state,
        assignor=group.assignor_name,
        members=tuple(_read_consumer_member(member) for member in group.members),
        coordinator=coordinator,
        epoch=group.group_epoch,
    )


def _check(group: Any, code: ErrorCode) -> None:
    if code:
        message = getattr(group, "error_message", None)
        raise RefusedByBroker(f"describe group {group.group_id!r}", code, message)


def _read_classic_member(member: Any) -> GroupMember:
    return GroupMember(
        member=member.member_id,
        instance=getattr(member, "group_instance_id", None),
        client_id=member.client_id,
        host=member.client_host,
        assignment=read_assignment(member.member_assignment),
    )


def read_assignment(data: bytes | memoryview) -> tuple[TopicPartition, ...]:
    """The partitions that the group's leader assigned to a consumer. Members of other kinds (Kafka
    Connect) have another format, so no partitions are shown for them."""
    if not data:
        return ()
    reader = ValueReader(data, flexible=False)
    try:
        reader.int16()  # the version; all versions start alike
        topics = reader.array(lambda one: (one.string(), one.array(ValueReader.int32)))
    except MalformedRecord:
        return ()
    return tuple(
        sorted(TopicPartition(name, number) for name, numbers in topics for number in numbers)
    )


def _read_consumer_member(member: Any) -> GroupMember:
    assignment = [
        TopicPartition(topic.topic_name, partition)
        for topic in member.assignment.topic_partitions
        for partition in topic.partitions
    ]
    return GroupMember(
        member=member.member_id,
        instance=member.instance_id,
        client_id=member.client_id,
        host=member.client_host,
        assignment=tuple(sorted(assignment)),
        epoch=member.member_epoch,
    )


# Committed offsets.


def fetch_offsets_call(group: str, partitions: Iterable[TopicPartition] | None) -> Call:
    """None requests all offsets of the group. Version 10 names topics by id and is not sent."""
    topics = None if partitions is None else group_numbers(partitions, "partition_indexes")
    fields = {
        "group_id": group,
        "topics": topics,
        "groups": [{"group_id": group, "topics": topics}],
    }
    return Call(ApiKey.OFFSET_FETCH, range(2, 10), fields)


def read_offsets(group: str, answer: Any) -> dict[TopicPartition, CommittedOffset]:
    """Omits partitions that have no committed offset."""
    what = f"committed offsets of group {group!r}"
    result = answer.groups[0] if hasattr(answer, "groups") else answer
    code = read_error(result.error_code)
    if code:
        raise RefusedByBroker(what, code)
    offsets = {}
    for topic in result.topics:
        for partition in topic.partitions:
            code = read_error(partition.error_code)
            if code:
                raise RefusedByBroker(f"{what} in {topic.name}-{partition.partition_index}", code)
            if partition.committed_offset != _NO_OFFSET:
                epoch = getattr(partition, "committed_leader_epoch", -1)
                committed = CommittedOffset(
                    partition.committed_offset, epoch, partition.metadata or ""
                )
                offsets[TopicPartition(topic.name, partition.partition_index)] = committed
    return offsets


def commit_offsets_call(group: str, offsets: Mapping[TopicPartition, CommittedOffset]) -> Call:
    """Commit without a member id, which only a group without members accepts."""
    by_topic = group_by_topic(
        (
            tp,
            {
                "partition_index": tp.partition,
                "committed_offset": committed.offset,
                "committed_leader_epoch": committed.leader_epoch,
                "committed_metadata": committed.metadata,
            },
        )
        for tp, committed in offsets.items()
    )
    fields = {
        "group_id": group,
        "generation_id_or_member_epoch": _NO_GENERATION,
        "member_id": "",
        "topics": [
            {"name": name, "partitions": partitions} for name, partitions in by_topic.items()
        ],
    }
    return Call(ApiKey.OFFSET_COMMIT, range(2, 10), fields)


def delete_offsets_call(group: str, partitions: Iterable[TopicPartition]) -> Call:
    by_topic = group_by_topic((tp, {"partition_index": tp.partition}) for tp in partitions)
    topics = [{"name": name, "partitions": partitions} for name, partitions in by_topic.items()]
    return Call(ApiKey.OFFSET_DELETE, range(1), {"group_id": group, "topics": topics})


class MemberToRemove(NamedTuple):
    """A member by its id, or a static one by its group instance id."""

    member: str = ""
    instance: str | None = None


def remove_members_call(group: str, members: Iterable[MemberToRemove], reason: str) -> Call:
    fields = {
        "group_id": group,
        "members": [
            {"member_id": leaving.member, "group_instance_id": leaving.instance, "reason": reason}
            for leaving in members
        ],
    }
    return Call(ApiKey.LEAVE_GROUP, range(3, 6), fields)


_ADVICE = {
    ErrorCode.UNKNOWN_MEMBER_ID: "the group has no such member, or it is one of the consumer "
    "protocol (KIP-848), which not every broker removes: close it",
}


def read_removed(group: str, answer: Any) -> dict[str, RefusedByBroker | None]:
    """By group instance id, or member id of a dynamic member."""
    what = f"remove members of group {group!r}"
    code = read_error(answer.error_code)
    if code:
        raise RefusedByBroker(what, code)
    return {
        name: RefusedByBroker(f"{what}: {name}", code, _ADVICE.get(code)) if code else None
        for member in answer.members
        for name, code in [
            (member.group_instance_id or member.member_id, read_error(member.error_code))
        ]
    }


def delete_group_call(group: str) -> Call:
    return Call(ApiKey.DELETE_GROUPS, range(3), {"groups_names": [group]})


def check_partitions(what: str, answer: Any) -> None:
    """Raise the errors of partitions that failed. All have the same one if the group is why."""
    results: dict[TopicPartition, RefusedByBroker | None] = {}
    for topic in answer.topics:
        for partition in topic.partitions:
            tp = TopicPartition(topic.name, partition.partition_index)
            code = read_error(partition.error_code)
            results[tp] = RefusedByBroker(f"{what} in {tp}", code) if code else None
    codes = {error.code if error else ErrorCode.NONE for error in results.values()}
    if len(codes) == 1:
        for error in results.values():
            if error is not None:
                raise error
    settle(results)
