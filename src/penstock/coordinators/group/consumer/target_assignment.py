"""The subscriptions of a consumer group's members and the target assignment that follows.

Invariant: a new target assignment covers every partition of every existing subscribed topic, once.
So if it no longer does, the topics have changed, and no other state is needed to detect that. A
pattern that is new to the group is the exception: topics by name come first, its matches with a
later heartbeat, as in Kafka.
"""

from collections import Counter

from penstock.coordinators.group.config import GroupConfig
from penstock.coordinators.group.consumer.assignors import ASSIGNORS
from penstock.coordinators.group.consumer.assignors.problem import Subscriber
from penstock.coordinators.group.consumer.context import ConsumerCommandContext
from penstock.coordinators.group.consumer.partitions import to_topics
from penstock.coordinators.group.consumer.state import ConsumerGroupState
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


def update_target(
    context: ConsumerCommandContext, *, has_changed: bool, new_regex: str | None = None
) -> None:
    """`has_changed`: a member joined, or changed its subscription. `new_regex` is matched with the
    topics at the next heartbeat."""
    reason = "a member joined or changed its subscription"
    if new_regex is not None:
        context.checks_topics_next = True
    elif _topics_have_changed(context):
        reason = "the subscribed topics changed"
        has_changed = True
    if has_changed:
        context.bump_epoch(reason)
    if context.group.epoch > context.group.target_epoch:
        _assign(context, new_regex)


def _topics_have_changed(context: ConsumerCommandContext) -> bool:
    """Checked after every change of topics, and at an interval."""
    group, last_ms = context.group, context.group.checked_topics_ms
    interval_ms = context.config.consumer_regex_refresh_interval_ms
    if last_ms is not None and last_ms <= context.now_ms < last_ms + interval_ms:
        return False
    group.matches.clear()
    _, counts = _subscribers(group, context.topics)
    covered: Counter[TopicId] = Counter()
    for target in group.targets.values():
        for topic, partitions in target.items():
            covered[topic] += len(partitions)
    context.has_checked_topics = True
    return covered != counts


def _assign(context: ConsumerCommandContext, new_regex: str | None) -> None:
    group = context.group
    subscribers, counts = _subscribers(group, context.topics, new_regex)
    assigned = ASSIGNORS[preferred_assignor(group, context.config)](subscribers, counts)
    for member in sorted(group.members):
        if member not in group.targets or assigned[member] != group.targets[member]:
            value = TargetMemberValue(to_topics(assigned[member]))
            context.write(TargetMemberKey(group.name, member), value)
    context.write(TargetEpochKey(group.name), TargetEpochValue(group.epoch))


def _subscribers(
    group: ConsumerGroupState, topics: Topics, new_regex: str | None = None
) -> tuple[list[Subscriber], dict[TopicId, int]]:
    counts: dict[TopicId, int] = {}
    resolved: dict[tuple[tuple[str, ...], str | None], frozenset[TopicId]] = {}
    subscribers: list[Subscriber] = []
    for member in group.members.values():
        regex = member.subscription.topic_regex
        wanted = (member.subscription.topics, None if regex == new_regex else regex)
        if wanted not in resolved:
            existing = map(topics.find, _names(group, *wanted, topics))
            views = [view for view in existing if view is not None and view.partitions]
            counts.update({view.topic_id: view.partitions for view in views})
            resolved[wanted] = frozenset(view.topic_id for view in views)
        subscribers.append(
            Subscriber(member.id, member.instance, resolved[wanted], group.target(member.id))
        )
    return subscribers, counts


def _names(
    group: ConsumerGroupState, names: tuple[str, ...], regex: str | None, topics: Topics
) -> frozenset[str]:
    if regex is None:
        return frozenset(names)
    if regex not in group.matches:
        pattern = compile_pattern(regex)
        group.matches[regex] = frozenset(
            name for name in topics.all() if name not in INTERNAL_TOPICS and pattern.matches(name)
        )
    return group.matches[regex] | frozenset(names)


def preferred_assignor(group: ConsumerGroupState, config: GroupConfig) -> str:
    """The choice of most members; among equals, the first in group.consumer.assignors."""
    offered = _offered(config)
    votes = Counter(member.subscription.assignor for member in group.members.values())
    wanted = [name for name in offered if votes[name]]
    if wanted:
        return max(wanted, key=lambda name: votes[name])
    return offered[0] if offered else DEFAULT_ASSIGNOR


def _offered(config: GroupConfig) -> list[str]:
    return [name for name in config.consumer_assignors if name in ASSIGNORS]


def check_assignor(name: str | None, config: GroupConfig) -> None:
    offered = _offered(config)
    if name is not None and name not in offered:
        raise Refusal(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"assignor {name} is not supported; choose one of: " + ", ".join(offered),
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
