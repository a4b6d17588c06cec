"""kill -9 and restart of the broker in the middle of commits and rebalances of its groups.

What a member was told is committed is there afterwards, the group settles by itself, and no record
is missed, nor, once committed, read again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from tests.clients.groups.stage import Member, Pool, Stage, python_member
from tests.clients.groups.story import (
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

KILLS = scaled(test=2, verify=8, release=40)
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
    """The broker comes back on its port, so this holds over restarts."""
    return BrokerUnderTest(bootstrap_servers=broker.bootstrap_servers, data=broker.data)


@pytest.fixture(params=["classic", "consumer"])
def stage(
    request: pytest.FixtureRequest, broker: penstock.Broker, tmp_path: Path
) -> Iterator[Stage]:
    pool = Pool(tmp_path)
    command = python_member("confluent-kafka", broker.bootstrap_servers)
    stage = Stage(pool, command, request.param)
    failures = request.session.testsfailed
    yield stage
    stage.close(failed=request.session.testsfailed > failures)
    pool.close()


def restart(broker: penstock.Broker) -> None:
    broker.kill()
    broker.start()


def wait_commits(stage: Stage, members: Sequence[Member], count: int) -> None:
    """Until each of them was told of so many more."""
    wanted = [(member, len(member.commits) + count) for member in members]
    stage.wait(
        lambda: all(len(member.commits) >= least for member, least in wanted),
        f"each member commits {count} times more",
    )


def check_committed(
    reached: BrokerUnderTest, group: str, client_commits: dict[TopicPartition, int], sent: int
) -> None:
    found = committed(reached, group)
    for tp, offset in client_commits.items():
        assert offset <= found[tp][0] <= sent


def test_commits_survive_and_the_group_goes_on(
    broker: penstock.Broker, reached: BrokerUnderTest, stage: Stage
) -> None:
    group, topic = new_name(), "commits"
    broker.create_topic(topic, partitions=PARTITIONS)
    with loaded(reached, topic, PARTITIONS) as load:
        members = [stage.join(group, topic, session_ms=STEADY_MS, commits=True) for _ in range(2)]
        stage.wait_settled(members, partitions_of(topic, PARTITIONS))
        for _ in range(KILLS):
            wait_commits(stage, members, 3)
            client_commits = furthest_commits(members)
            restart(broker)
            check_committed(reached, group, client_commits, len(load.sent))
            wait_more(stage, members)
    stage.wait_values(members, load.sent)
    check_nothing_doubled_after_commits(members)


def test_a_group_that_was_settled_goes_on_without_a_rebalance(
    broker: penstock.Broker, reached: BrokerUnderTest, stage: Stage
) -> None:
    group, topic = new_name(), "settled"
    broker.create_topic(topic, partitions=PARTITIONS)
    members = [stage.join(group, topic, session_ms=STEADY_MS, commits=True) for _ in range(2)]
    stage.wait_settled(members, partitions_of(topic, PARTITIONS))
    generation = find_generation(reached, group)
    changes = [len(member.assignments) for member in members]
    for _ in range(KILLS):
        restart(broker)
        with loaded(reached, topic, PARTITIONS):
            wait_commits(stage, members, 1)
    assert find_generation(reached, group) == generation
    assert [len(member.assignments) for member in members] == changes


def test_a_rebalance_that_was_cut_off_is_made_up_for(
    broker: penstock.Broker, reached: BrokerUnderTest, stage: Stage
) -> None:
    group, topic = new_name(), "cut-off"
    broker.create_topic(topic, partitions=PARTITIONS)
    everything = partitions_of(topic, PARTITIONS)
    with loaded(reached, topic, PARTITIONS) as load:
        members = [stage.join(group, topic, commits=True)]
        stage.wait_settled(members, everything)
        for _ in range(min(KILLS, PARTITIONS - 1)):
            wait_more(stage, members)
            client_commits = furthest_commits(members)
            changes = sum(len(member.assignments) for member in members)
            members.append(stage.join(group, topic, commits=True))
            stage.wait(
                lambda: sum(len(member.assignments) for member in members) > changes,  # noqa: B023
                "the rebalance has begun",
            )
            restart(broker)
            stage.wait_settled(members, everything)
            check_committed(reached, group, client_commits, len(load.sent))
        wait_more(stage, members)
    stage.wait_values(members, load.sent)
    check_nothing_doubled_after_commits(members)
