"""A group migrates from the classic to the consumer protocol and back while it consumes."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from tests.clients.groups.harness import GroupHarness, Pool, python_member
from tests.clients.groups.scenarios import (
    check_nothing_doubled_after_commits,
    describe,
    loaded,
    partitions_of,
    wait_more,
)
from tests.clients.our_topics import new_name, new_topic
from tests.clients.under_test import BrokerUnderTest

pytestmark = pytest.mark.xdist_group("groups-confluent-kafka")

StageOf = Callable[[str], GroupHarness]


@pytest.fixture
def stage_of(
    request: pytest.FixtureRequest, pool: Pool, group_broker: BrokerUnderTest
) -> Iterator[StageOf]:
    """Members of this protocol."""
    command = python_member("confluent-kafka", group_broker.bootstrap_servers)
    harnesses = {
        protocol: GroupHarness(pool, command, protocol) for protocol in ("classic", "consumer")
    }
    failures = request.session.testsfailed
    yield harnesses.__getitem__
    for harness in harnesses.values():
        harness.close(failed=request.session.testsfailed > failures)


@pytest.mark.parametrize(
    ("before", "after"), [("classic", "consumer"), ("consumer", "classic")], ids=["up", "down"]
)
def test_members_migrate_one_by_one_to_the_other_protocol(
    group_broker: BrokerUnderTest, stage_of: StageOf, before: str, after: str
) -> None:
    group, topic = new_name(), new_topic(group_broker, partitions=6)
    everything = partitions_of(topic, 6)
    old, new = stage_of(before), stage_of(after)
    with loaded(group_broker, topic, 6) as load:
        olds = [old.join(group, topic, commits=True) for _ in range(2)]
        old.wait_settled(olds, everything)
        wait_more(old, olds)
        first = new.join(group, topic, commits=True)
        new.wait_settled([*olds, first], everything)
        wait_more(new, [*olds, first])
        assert describe(group_broker, group).kind == "consumer"  # both are members now
        olds[0].leave()
        second = new.join(group, topic, commits=True)
        new.wait_settled([olds[1], first, second], everything)
        olds[1].leave()
        new.wait_settled([first, second], everything)
        wait_more(new, [first, second])
        assert describe(group_broker, group).kind == after
    members = [*old.members, *new.members]
    new.wait_values(members, load.sent)
    check_nothing_doubled_after_commits(members)
