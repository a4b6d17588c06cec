"""Group scenarios that every client must pass, whatever its language.

A test module provides its client as the fixture `group_client` and derives from `GroupScenarios`,
and from `ClassicGroupScenarios` if members assign by themselves. `CoreGroupScenarios` alone is for
further versions of a client that runs all of them already.
"""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import pytest
from tests.clients.groups.harness import SHORT_SESSION_MS, GroupHarness, Member
from tests.clients.our_topics import ask, new_name, new_topic
from tests.clients.under_test import BrokerUnderTest
from tests.profile import scaled

import penstock
from penstock.client.call import Call
from penstock.client.cluster import ClusterClient
from penstock.client.group_values import GroupDescription
from penstock.client.metadata import read_error
from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicPartition
from penstock.protocol.api_keys import ApiKey

COUNT = scaled(test=60, verify=300, release=1000)
MOST_GENERATIONS = 50


class GroupClient(NamedTuple):
    command: Sequence[str]
    protocol: str  # classic or consumer
    assignors: tuple[str, ...] = ()


def partitions_of(topic: str, count: int) -> list[TopicPartition]:
    return [TopicPartition(topic, number) for number in range(count)]


def send(
    broker: BrokerUnderTest, topic: str, count: int = COUNT, *, partitions: int, first: int = 0
) -> list[str]:
    """Sends numbers, round robin to all partitions."""
    values = [str(number) for number in range(first, first + count)]
    with penstock.Producer(broker.bootstrap_servers) as producer:
        for value in values:
            producer.send(topic, value, partition=int(value) % partitions)
    return values


def describe(broker: BrokerUnderTest, group: str) -> GroupDescription:
    return ask(broker, lambda client: client.groups.describe(group))


def committed(broker: BrokerUnderTest, group: str) -> dict[TopicPartition, tuple[int, str]]:
    offsets = ask(broker, lambda client: client.groups.fetch_offsets(group))
    # confluent-kafka also sends the zero byte that ends its C string.
    return {tp: (at.offset, at.metadata.rstrip("\0")) for tp, at in offsets.items()}


def find_generation(broker: BrokerUnderTest, group: str) -> int:
    """Finds the generation of a classic group by its heartbeats: no API returns it."""

    async def probe(client: ClusterClient) -> int:
        described = await client.groups.describe(group)
        if described.epoch is not None:
            return described.epoch
        router = client._router
        for generation in range(1, MOST_GENERATIONS):
            fields = {
                "group_id": group,
                "generation_id": generation,
                "member_id": described.members[0].member,
            }
            call = Call(ApiKey.HEARTBEAT, range(5), fields)
            answer = await router.ask(described.coordinator.address, call, router.deadline(None))
            code = read_error(answer.error_code)
            if code is not ErrorCode.ILLEGAL_GENERATION:
                assert code is ErrorCode.NONE, code
                return generation
        raise AssertionError("no generation is the group's")

    return ask(broker, probe)


class Load:
    """Sends numbers round robin until it is stopped, at most a thousand per second."""

    def __init__(self, broker: BrokerUnderTest, topic: str, partitions: int) -> None:
        self.sent: list[str] = []
        self._topic = topic
        self._partitions = partitions
        self._producer = penstock.Producer(broker.bootstrap_servers, linger_ms=2)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="load")
        self._thread.start()

    def _run(self) -> None:
        for number in itertools.count():
            if self._stopping.is_set():
                return
            self._producer.send(self._topic, str(number), partition=number % self._partitions)
            self.sent.append(str(number))
            if number % 10 == 0:
                self._stopping.wait(0.01)

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()
        self._producer.close(30)


@contextmanager
def loaded(broker: BrokerUnderTest, topic: str, partitions: int) -> Iterator[Load]:
    load = Load(broker, topic, partitions)
    try:
        yield load
    finally:
        load.stop()


def wait_more(harness: GroupHarness, members: Iterable[Member], count: int = COUNT) -> None:
    """Waits until each member has read `count` more records."""
    wanted = [(member, len(member.delivered) + count) for member in members]
    harness.wait(
        lambda: all(len(member.delivered) >= least for member, least in wanted),
        f"each member reads {count} more",
    )


def check_nothing_doubled_after_commits(members: Sequence[Member]) -> None:
    """No record is delivered after the offset behind it was reported as committed."""
    commits = sorted(
        (commit.time_ns, tp, offset)
        for member in members
        for commit in member.commits
        for tp, offset in commit.offsets.items()
    )
    deliveries = sorted(delivered for member in members for delivered in member.delivered)
    done: dict[TopicPartition, int] = {}
    index = 0
    for delivered in deliveries:
        while index < len(commits) and commits[index][0] < delivered.time_ns:
            _, partition, offset = commits[index]
            done[partition] = max(offset, done.get(partition, 0))
            index += 1
        assert delivered.offset >= done.get(delivered.partition, 0), delivered


class CoreGroupScenarios:
    def test_one_group_delivers_every_message_to_one_member(
        self, group_broker: BrokerUnderTest, harness: GroupHarness
    ) -> None:
        group, topic = new_name(), new_topic(group_broker, partitions=6)
        members = [harness.join(group, topic) for _ in range(3)]
        harness.wait_settled(members, partitions_of(topic, 6))
        values = send(group_broker, topic, partitions=6)
        harness.wait_values(members, values)
        assert sorted(value for member in members for value in member.values) == sorted(values)
        assert all(member.delivered for member in members)

    def test_no_message_is_lost_or_after_commits_duplicated_while_members_change(
        self, group_broker: BrokerUnderTest, harness: GroupHarness
    ) -> None:
        group, topic = new_name(), new_topic(group_broker, partitions=6)
        everything = partitions_of(topic, 6)
        with loaded(group_broker, topic, 6) as load:
            first = harness.join(group, topic, commits=True, session_ms=SHORT_SESSION_MS)
            wait_more(harness, [first])
            second, third = (harness.join(group, topic, commits=True) for _ in range(2))
            harness.wait_settled([first, second, third], everything)
            wait_more(harness, [first, second, third])
            second.leave()
            harness.wait_settled([first, third], everything)
            wait_more(harness, [first, third])
            first.kill()
            fourth = harness.join(group, topic, commits=True)
            harness.wait_settled([third, fourth], everything)
            wait_more(harness, [third, fourth])
        harness.wait_values(harness.members, load.sent)
        check_nothing_doubled_after_commits(harness.members)
        ends = Counter(int(value) % 6 for value in load.sent)
        wanted = {TopicPartition(topic, number): ends[number] for number in range(6)}
        harness.wait(
            lambda: furthest_commits([third, fourth]) == wanted,
            "everything that was sent is committed",
        )
        assert {tp: at for tp, (at, _) in committed(group_broker, group).items()} == wanted

    def test_committed_offsets_and_metadata_are_fetched(
        self, group_broker: BrokerUnderTest, harness: GroupHarness
    ) -> None:
        group, topic = new_name(), new_topic(group_broker, partitions=2)
        places = partitions_of(topic, 2)
        member = harness.join(group, topic)
        harness.wait_values([member], send(group_broker, topic, 10, partitions=2))
        assert member.commit("as far as ten") == dict.fromkeys(places, 5)
        assert committed(group_broker, group) == dict.fromkeys(places, (5, "as far as ten"))
        member.leave()
        values = send(group_broker, topic, 10, partitions=2, first=10)
        follower = harness.join(group, topic)
        harness.wait_values([follower], values)
        assert sorted(follower.values) == sorted(values)
        for offsets in follower.committed(places):
            assert offsets in ((5, "as far as ten"), (5, None))


class GroupScenarios(CoreGroupScenarios):
    def test_every_group_gets_every_message(
        self, group_broker: BrokerUnderTest, harness: GroupHarness
    ) -> None:
        topic = new_topic(group_broker, partitions=2)
        members = [harness.join(new_name(), topic) for _ in range(3)]
        values = send(group_broker, topic, partitions=2)
        for member in members:
            harness.wait_values([member], values)
            assert sorted(member.values) == sorted(values)

    def test_a_static_member_restarts_without_a_rebalance(
        self, group_broker: BrokerUnderTest, harness: GroupHarness
    ) -> None:
        group, topic = new_name(), new_topic(group_broker, partitions=4)
        names = (f"{group}-a", f"{group}-b")
        one, other = (harness.join(group, topic, instance=name) for name in names)
        harness.wait_settled([one, other], partitions_of(topic, 4))
        generation = find_generation(group_broker, group)
        changes, owned = len(other.assignments), one.owned
        if harness.protocol == "classic":
            one.kill()
        else:
            one.leave()  # with the consumer protocol only this frees its instance id
        again = harness.join(group, topic, instance=names[0])
        harness.wait(lambda: again.owned == owned, "the member has its partitions back")
        harness.wait_values([again, other], send(group_broker, topic, partitions=4))
        assert find_generation(group_broker, group) == generation
        assert len(other.assignments) == changes

    def test_a_removed_member_cannot_commit(
        self, group_broker: BrokerUnderTest, harness: GroupHarness
    ) -> None:
        group, topic = new_name(), new_topic(group_broker, partitions=2)
        everything = partitions_of(topic, 2)
        frozen = harness.join(group, topic, session_ms=SHORT_SESSION_MS)
        heir = harness.join(group, topic)
        harness.wait_settled([frozen, heir], everything)
        harness.wait_values([frozen, heir], send(group_broker, topic, 10, partitions=2))
        frozen.freeze()
        harness.wait_settled([heir], everything)
        values = send(group_broker, topic, 10, partitions=2, first=10)
        harness.wait_values([heir], values)
        assert heir.commit() == dict.fromkeys(everything, 10)
        memberships = len(frozen.assignments)
        frozen.ask_to_commit()
        frozen.thaw()
        harness.wait(lambda: bool(frozen.refusals or frozen.commits), "the commit is answered")
        if frozen.commits and len(frozen.assignments) > memberships:
            return  # aiokafka repeats a commit that met a lost connection once it is a member again
        assert (frozen.commits, len(frozen.refusals)) == ([], 1)
        assert {at for at, _ in committed(group_broker, group).values()} == {10}

    def test_a_pattern_matches_a_topic_created_later(
        self, group_broker: BrokerUnderTest, harness: GroupHarness
    ) -> None:
        group, first = new_name(), new_topic(group_broker, partitions=2)
        member = harness.join(group, pattern=f"^{first}.*")
        harness.wait_settled([member], partitions_of(first, 2))
        later = new_topic(group_broker, partitions=2, name=f"{first}-later")
        harness.wait_settled([member], [*partitions_of(first, 2), *partitions_of(later, 2)])
        harness.wait_values([member], send(group_broker, later, partitions=2))

    def test_new_partitions_are_consumed(
        self, group_broker: BrokerUnderTest, harness: GroupHarness
    ) -> None:
        group, topic = new_name(), new_topic(group_broker, partitions=2)
        members = [harness.join(group, topic) for _ in range(2)]
        harness.wait_settled(members, partitions_of(topic, 2))
        ask(group_broker, lambda client: client.admin.create_partitions({topic: 4}))
        harness.wait_settled(members, partitions_of(topic, 4))
        harness.wait_values(members, send(group_broker, topic, partitions=4))


def furthest_commits(members: Sequence[Member]) -> dict[TopicPartition, int]:
    """The largest committed offset of each partition."""
    furthest: dict[TopicPartition, int] = {}
    for member in members:
        for commit in member.commits:
            for tp, offset in commit.offsets.items():
                furthest[tp] = max(offset, furthest.get(tp, 0))
    return furthest


class ClassicGroupScenarios(GroupScenarios):
    """Two topics of three partitions show how assignors differ."""

    @pytest.fixture
    def topics(self, group_broker: BrokerUnderTest) -> tuple[str, str]:
        one, other = sorted(new_topic(group_broker, partitions=3) for _ in range(2))
        return one, other

    def test_each_assignor_assigns_in_its_own_way(
        self,
        group_broker: BrokerUnderTest,
        harness: GroupHarness,
        group_client: GroupClient,
        topics: tuple[str, str],
    ) -> None:
        everything = [partition for topic in topics for partition in partitions_of(topic, 3)]
        for assignor in group_client.assignors:
            group = new_name()
            members = [harness.join(group, *topics, assignor=assignor) for _ in range(2)]
            harness.wait_settled(members, everything)
            shares = {frozenset(member.owned) for member in members}
            if assignor == "range":
                expected = {
                    frozenset(tp for tp in everything if tp.partition < 2),
                    frozenset(tp for tp in everything if tp.partition == 2),
                }
                assert shares == expected
            elif assignor == "roundrobin":
                assert shares == {frozenset(everything[::2]), frozenset(everything[1::2])}
            else:
                assert {len(share) for share in shares} == {3}
            assert describe(group_broker, group).assignor == assignor
            harness.leave(members)

    @pytest.mark.parametrize("assignor", ["sticky", "cooperative-sticky"])
    def test_a_sticky_member_keeps_its_partitions_when_another_leaves(
        self,
        harness: GroupHarness,
        group_client: GroupClient,
        topics: tuple[str, str],
        assignor: str,
    ) -> None:
        if assignor not in group_client.assignors:
            pytest.skip(f"this client has no assignor {assignor}")
        group = new_name()
        everything = [partition for topic in topics for partition in partitions_of(topic, 3)]
        members = [harness.join(group, *topics, assignor=assignor) for _ in range(3)]
        harness.wait_settled(members, everything)
        even = len(everything) // len(members)
        harness.wait(
            lambda: all(len(member.owned) == even for member in members), "all have as many"
        )
        before = [(member.owned, len(member.assignments)) for member in members[1:]]
        members[0].leave()
        harness.wait_settled(members[1:], everything)
        for member, (owned, changes) in zip(members[1:], before, strict=True):
            assert owned < member.owned
            if assignor == "cooperative-sticky":  # it revokes nothing meanwhile
                assert all(owned <= assignment for assignment in member.assignments[changes:])
