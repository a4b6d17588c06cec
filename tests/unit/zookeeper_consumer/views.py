"""Groups as a member would read them."""

from collections.abc import Mapping, Sequence

from penstock.zookeeper_consumer.assignment import GroupView, RegisteredMember
from penstock.zookeeper_consumer.group_znodes import (
    AssignmentRule,
    Registration,
    SubscriptionPattern,
)

RANGE, CEIL_RANGE = AssignmentRule.RANGE, AssignmentRule.CEIL_RANGE


def registration_of(
    *topics: str, streams: int = 1, rule: AssignmentRule = RANGE, names_rule: bool = True
) -> Registration:
    return Registration(
        pattern=SubscriptionPattern.STATIC,
        subscription=dict.fromkeys(topics, streams),
        rule=rule,
        names_rule=names_rule,
    )


def view_of(members: Sequence[RegisteredMember], partitions: Mapping[str, int]) -> GroupView:
    return GroupView(
        members=tuple(members),
        partitions={topic: tuple(range(count)) for topic, count in partitions.items()},
        brokers={"0": "127.0.0.1:9092"},
    )
