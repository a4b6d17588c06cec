"""Who a heartbeat comes from: a member that is known, comes anew, comes back or is fenced."""

from dataclasses import replace

from penstock.coordinators.group.consumer.context import ConsumerCommandContext
from penstock.coordinators.group.consumer.partitions import from_topics, is_within, to_topics
from penstock.coordinators.group.consumer.requests import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    STATIC_LEAVE_EPOCH,
    ConsumerHeartbeat,
)
from penstock.coordinators.group.consumer.state import ConsumerGroup, ConsumerMember
from penstock.coordinators.group.offsets.commands import MAX_TEXT_BYTES
from penstock.coordinators.group.records import TargetMemberKey, TargetMemberValue
from penstock.model.errors import ErrorCode, Refusal


def check_shape(request: ConsumerHeartbeat) -> None:
    """What is wrong whatever the group is. The member id has been made where it may be left out."""
    for name, value in (("instance id", request.instance), ("rack id", request.rack)):
        if value == "":
            raise _invalid(f"the {name} is empty; leave it out or give one")
    if request.group == "" or request.member == "":
        raise _invalid("group id and member id must not be empty")
    if any(len((each or "").encode()) > MAX_TEXT_BYTES for each in _texts(request)):
        raise _invalid(f"an id or a name is longer than {MAX_TEXT_BYTES} bytes")
    if request.member_epoch < STATIC_LEAVE_EPOCH:
        raise _invalid(f"{request.member_epoch} is no member epoch")
    if request.member_epoch == STATIC_LEAVE_EPOCH and request.instance is None:
        raise _invalid("only a member with an instance id leaves with the epoch -2")
    if request.member_epoch == JOIN_EPOCH:
        _check_join(request)


def _texts(request: ConsumerHeartbeat) -> tuple[str | None, ...]:
    """All but what is subscribed to, which is looked at as a whole."""
    return (
        request.member,
        request.instance,
        request.rack,
        request.client_id,
        request.client_host,
        request.assignor,
    )


def _check_join(request: ConsumerHeartbeat) -> None:
    if request.rebalance_timeout_ms is None:
        raise _invalid("a member that joins must say its rebalance time-out")
    if request.owned is None or request.owned:
        raise _invalid("a member that joins must own no partitions, and say so")
    if request.topics is None and request.topic_regex is None:
        raise _invalid("a member that joins must say what it subscribes to")


def find_or_join(turn: ConsumerCommandContext, request: ConsumerHeartbeat) -> ConsumerMember:
    """The member; one that comes anew is not in the group yet."""
    if request.member_epoch == JOIN_EPOCH:
        return _join(turn, request)
    member = get_member(turn.group, request.member, request.instance)
    _check_epoch(member, request)
    return member


def _join(turn: ConsumerCommandContext, request: ConsumerHeartbeat) -> ConsumerMember:
    holder = turn.group.find_instance(request.instance)
    if holder is not None and holder.id != request.member:
        # A classic member does not say that it goes for a while, so it may be replaced as it is.
        if holder.epoch != STATIC_LEAVE_EPOCH and not holder.is_classic:
            raise Refusal(
                ErrorCode.UNRELEASED_INSTANCE_ID,
                f"instance {request.instance} of group {request.group} is member {holder.id}, "
                "which has not left",
            )
        return replace_static(turn, holder, request.member)
    # One that is known and joins again was fenced, or missed its answer. It keeps its place; what
    # it has to give up it still has to name, as this request may be a late one.
    known = turn.group.members.get(request.member)
    if known is not None:
        return known
    if len(turn.group.members) >= turn.config.consumer_max_size:
        raise Refusal(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"group {request.group} has {len(turn.group.members)} members already "
            "(group.consumer.max.size)",
        )
    return ConsumerMember(id=request.member)


def replace_static(
    turn: ConsumerCommandContext, holder: ConsumerMember, member_id: str
) -> ConsumerMember:
    """The same instance under a new id has what the old one had, and no rebalance follows."""
    target = TargetMemberValue(to_topics(turn.group.target(holder.id)))
    member = replace(holder, id=member_id, epoch=JOIN_EPOCH, previous_epoch=JOIN_EPOCH)
    turn.remove(holder.id)
    turn.write_member(member_id, member.subscription)
    turn.write(TargetMemberKey(turn.group.name, member_id), target)
    turn.write_current(member)
    return member


def get_member(group: ConsumerGroup, member_id: str, instance: str | None) -> ConsumerMember:
    if instance is None:
        member = group.members.get(member_id)
        if member is None:
            raise _unknown(f"group {group.name} has no member {member_id}; join it again")
        return member
    holder = group.find_instance(instance)
    if holder is None:
        raise _unknown(f"group {group.name} has no instance {instance}; join it again")
    if holder.id != member_id:
        raise Refusal(
            ErrorCode.FENCED_INSTANCE_ID,
            f"instance {instance} of group {group.name} is member {holder.id} now, not {member_id}",
        )
    return holder


def _check_epoch(member: ConsumerMember, request: ConsumerHeartbeat) -> None:
    epoch = request.member_epoch
    if epoch == member.epoch:
        return
    is_previous = epoch == member.previous_epoch and epoch < member.epoch
    owned = None if request.owned is None else from_topics(request.owned)
    if is_previous and owned is not None and is_within(owned, member.assigned):
        return  # the answer with the new epoch may have been lost
    raise Refusal(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"member {member.id} of group {request.group} is at epoch {member.epoch}, not {epoch}; "
        "give up all partitions and join again",
    )


def is_leaving(request: ConsumerHeartbeat) -> bool:
    return request.member_epoch in (LEAVE_EPOCH, STATIC_LEAVE_EPOCH)


def _invalid(message: str) -> Refusal:
    return Refusal(ErrorCode.INVALID_REQUEST, message)


def _unknown(message: str) -> Refusal:
    return Refusal(ErrorCode.UNKNOWN_MEMBER_ID, message)
