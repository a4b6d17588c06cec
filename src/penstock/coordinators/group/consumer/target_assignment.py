"""What the members of a consumer group subscribe to, and the target assignment that follows.

Invariant: a target made now covers every partition of every subscribed topic that exists, once.
So a target that does not is of other topics than there are now, and nothing else need be kept.
"""

from collections import Counter

from penstock.coordinators.group.config import GroupConfig
from penstock.coordinators.group.consumer.assignors import ASSIGNORS
from penstock.coordinators.group.consumer.assignors.problem import Subscriber
from penstock.coordinators.group.consumer.context import ConsumerCommandContext
from penstock.coordinators.group.consumer.partitions import to_topics
from penstock.coordinators.group.consumer.state import ConsumerGroup
from penstock.coordinators.group.dependencies import Topics
from penstock.coordinators.group.records import (
    ConsumerMemberValue,
    TargetEpochKey,
    TargetEpochValue,
    TargetMemberKey,
    TargetMemberValue,
)
from penstock.model.cluster import INTERNAL_TOPICS
from penstock.model.errors import ErrorCode, Refusal
from penstock.model.ids import TopicId
from penstock.model.name_pattern import InvalidPattern, compile_pattern

DEFAULT_ASSIGNOR = "uniform"


def update_target(turn: ConsumerCommandContext, *, has_changed: bool) -> None:
    """`has_changed`: a member came, or wants other topics than before."""
    if _topics_have_changed(turn) or has_changed:
        turn.bump_epoch()
    if turn.group.epoch > turn.group.target_epoch:
        _assign(turn)


def _topics_have_changed(turn: ConsumerCommandContext) -> bool:
    """Looked at after every change to the topics, and now and then."""
    group, last_ms = turn.group, turn.group.checked_topics_ms
    interval_ms = turn.config.consumer_regex_refresh_interval_ms
    if last_ms is not None and last_ms <= turn.now_ms < last_ms + interval_ms:
        return False
    group.matches.clear()
    _, counts = _subscribers(group, turn.topics)
    covered: Counter[TopicId] = Counter()
    for target in group.targets.values():
        for topic, partitions in target.items():
            covered[topic] += len(partitions)
    turn.has_checked_topics = True
    return covered != counts


def _assign(turn: ConsumerCommandContext) -> None:
    group = turn.group
    subscribers, counts = _subscribers(group, turn.topics)
    assigned = ASSIGNORS[preferred_assignor(group, turn.config)](subscribers, counts)
    for member in sorted(group.members):
        if member not in group.targets or assigned[member] != group.targets[member]:
            value = TargetMemberValue(to_topics(assigned[member]))
            turn.write(TargetMemberKey(group.name, member), value)
    turn.write(TargetEpochKey(group.name), TargetEpochValue(group.epoch))


def _subscribers(
    group: ConsumerGroup, topics: Topics
) -> tuple[list[Subscriber], dict[TopicId, int]]:
    counts: dict[TopicId, int] = {}
    known: dict[tuple[tuple[str, ...], str | None], frozenset[TopicId]] = {}
    subscribers: list[Subscriber] = []
    for member in group.members.values():
        wanted = (member.subscription.topics, member.subscription.topic_regex)
        if wanted not in known:
            found = {name: topics.find(name) for name in _names(group, *wanted, topics)}
            views = [view for view in found.values() if view is not None and view.partitions]
            counts.update({view.topic_id: view.partitions for view in views})
            known[wanted] = frozenset(view.topic_id for view in views)
        subscribers.append(
            Subscriber(member.id, member.instance, known[wanted], group.target(member.id))
        )
    return subscribers, counts


def _names(
    group: ConsumerGroup, names: tuple[str, ...], regex: str | None, topics: Topics
) -> frozenset[str]:
    if regex is None:
        return frozenset(names)
    if regex not in group.matches:
        pattern = compile_pattern(regex)
        group.matches[regex] = frozenset(
            name for name in topics.all() if name not in INTERNAL_TOPICS and pattern.matches(name)
        )
    return group.matches[regex] | frozenset(names)


def preferred_assignor(group: ConsumerGroup, config: GroupConfig) -> str:
    """What most members ask for; among equals, what the broker names first."""
    offered = [each for each in config.consumer_assignors if each in ASSIGNORS]
    votes = Counter(each.subscription.assignor for each in group.members.values())
    wanted = [each for each in offered if votes[each]]
    if wanted:
        return max(wanted, key=lambda each: votes[each])
    return offered[0] if offered else DEFAULT_ASSIGNOR


def check_assignor(name: str | None, config: GroupConfig) -> None:
    if name is None or (name in ASSIGNORS and name in config.consumer_assignors):
        return
    raise Refusal(
        ErrorCode.UNSUPPORTED_ASSIGNOR,
        f"assignor {name} is not offered here; choose one of: "
        + ", ".join(each for each in config.consumer_assignors if each in ASSIGNORS),
    )


def check_pattern(text: str | None) -> None:
    if text:
        try:
            compile_pattern(text)
        except InvalidPattern as error:
            raise Refusal(ErrorCode.INVALID_REGULAR_EXPRESSION, str(error)) from None


def is_subscribed(subscription: ConsumerMemberValue, topic: str) -> bool:
    if topic in subscription.topics:
        return True
    regex = subscription.topic_regex
    if regex is None or topic in INTERNAL_TOPICS:
        return False
    return compile_pattern(regex).matches(topic)
