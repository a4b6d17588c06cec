"""kill -9 and restart of the broker during commits and rebalances of its groups.

Acknowledged commits survive, the group becomes stable by itself, and no record is skipped or, once
committed, read again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from tests.clients.groups.harness import GroupHarness, Member, Pool, python_member
from tests.clients.groups.scenarios import (
    check_nothing_doubled_after_commits,
    committed,
    find_generation,
    furthest_commits,
    loaded,
    partitions_of,
    wait_more,
)
from tests.clients.our_topics import new_name
from tests.clients.under_test import BrokerUnderTest
from tests.profile import scaled

import penstock
from penstock.model.ids import TopicPartition

pytestmark = pytest.mark.xdist_group("group-restarts")

KILLS = scaled(test=1, verify=8, release=40)
PARTITIONS = 4
STEADY_MS = 30_000
SETTINGS = {
    "group.initial.rebalance.delay.ms": 0,
    "group.min.session.timeout.ms": 500,
    "group.consumer.min.heartbeat.interval.ms": 100,
    "group.consumer.heartbeat.interval.ms": 300,
}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[penstock.Broker]:
    with penstock.Broker(data=tmp_path / "data", config=SETTINGS) as broker:
        yield broker


@pytest.fixture
def reached(broker: penstock.Broker) -> BrokerUnderTest:
    """The bootstrap address; valid across restarts, because the broker keeps its port."""
    return BrokerUnderTest(bootstrap_servers=broker.bootstrap_servers, data=broker.data)


@pytest.fixture(params=["classic", "consumer"])
def harness(
    request: pytest.FixtureRequest, broker: penstock.Broker, tmp_path: Path
) -> Iterator[GroupHarness]:
    pool = Pool(tmp_path)
    command = python_member("confluent-kafka", broker.bootstrap_servers)
    harness = GroupHarness(pool, command, request.param)
    failures = request.session.testsfailed
    yield harness
    harness.close(failed=request.session.testsfailed > failures)
    pool.close()


def restart(broker: penstock.Broker) -> None:
    broker.kill()
    broker.start()


def wait_commits(harness: GroupHarness, members: Sequence[Member], count: int) -> None:
    """Waits until every member has `count` more acknowledged commits."""
    wanted = [(member, len(member.commits) + count) for member in members]
    harness.wait(
        lambda: all(len(member.commits) >= least for member, least in wanted),
        f"each member commits {count} times more",
    )


def check_committed(
    reached: BrokerUnderTest, group: str, client_commits: dict[TopicPartition, int], sent: int
) -> None:
    broker_commits = committed(reached, group)
    for tp, offset in client_commits.items():
        assert offset <= broker_commits[tp][0] <= sent


def test_commits_survive_a_kill_and_the_group_continues(
    broker: penstock.Broker, reached: BrokerUnderTest, harness: GroupHarness
) -> None:
    group, topic = new_name(), "commits"
    broker.create_topic(topic, partitions=PARTITIONS)
    with loaded(reached, topic, PARTITIONS) as load:
        members = [harness.join(group, topic, session_ms=STEADY_MS, commits=True) for _ in range(2)]
        harness.wait_settled(members, partitions_of(topic, PARTITIONS))
        for _ in range(KILLS):
            wait_commits(harness, members, 3)
            client_commits = furthest_commits(members)
            restart(broker)
            check_committed(reached, group, client_commits, len(load.sent))
            wait_more(harness, members)
    harness.wait_values(members, load.sent)
    check_nothing_doubled_after_commits(members)


def test_a_stable_group_continues_without_a_rebalance(
    broker: penstock.Broker, reached: BrokerUnderTest, harness: GroupHarness
) -> None:
    group, topic = new_name(), "settled"
    broker.create_topic(topic, partitions=PARTITIONS)
    members = [harness.join(group, topic, session_ms=STEADY_MS, commits=True) for _ in range(2)]
    harness.wait_settled(members, partitions_of(topic, PARTITIONS))
    generation = find_generation(reached, group)
    changes = [len(member.assignments) for member in members]
    for _ in range(KILLS):
        restart(broker)
        with loaded(reached, topic, PARTITIONS):
            wait_commits(harness, members, 1)
    assert find_generation(reached, group) == generation
    assert [len(member.assignments) for member in members] == changes


def test_a_rebalance_interrupted_by_a_kill_completes_after_the_restart(
    broker: penstock.Broker, reached: BrokerUnderTest, harness: GroupHarness
) -> None:
    group, topic = new_name(), "cut-off"
    broker.create_topic(topic, partitions=PARTITIONS)
    everything = partitions_of(topic, PARTITIONS)
    with loaded(reached, topic, PARTITIONS) as load:
        members = [harness.join(group, topic, commits=True)]
        harness.wait_settled(members, everything)
        for _ in range(min(KILLS, PARTITIONS - 1)):
            wait_more(harness, members)
            client_commits = furthest_commits(members)
            changes = sum(len(member.assignments) for member in members)
            members.append(harness.join(group, topic, commits=True))
            harness.wait(
                lambda: sum(len(member.assignments) for member in members) > changes,  # noqa: B023
                "the rebalance has begun",
            )
            restart(broker)
            harness.wait_settled(members, everything)
            check_committed(reached, group, client_commits, len(load.sent))
        wait_more(harness, members)
    harness.wait_values(members, load.sent)
    check_nothing_doubled_after_commits(members)
