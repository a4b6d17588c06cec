"""Groups in ZooKeeper, on a real ZooKeeper and a real broker: nothing is missed, whoever comes,
goes, dies or sleeps."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError
from tests.cluster.zookeeper_group import ZooKeeperGroup, count_doubles, sending
from tests.profile import scaled
from tests.zookeeper import kazoo_client, skip_without_zookeeper

import penstock
from penstock.testing import Cluster
from penstock.testing.tcp_gate import TcpGate

pytestmark = pytest.mark.xdist_group("cluster")

PARTITIONS = 4
STEADY: dict[str, Any] = {
    "session_timeout_s": 60.0,  # none expires, however slow the machine is
    "rebalance_backoff_s": 0.5,
    "rebalance_max_retries": 240,
    "from_beginning": True,
}
EXPIRING = STEADY | {"session_timeout_s": 1.5}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    skip_without_zookeeper()
    with Cluster(brokers=1) as cluster:
        yield cluster


@pytest.fixture
def topic(cluster: Cluster, request: pytest.FixtureRequest) -> str:
    name = request.node.name.removeprefix("test_")[:60]
    cluster.create_topic(name, partitions=PARTITIONS, replication_factor=1)
    return str(name)


@pytest.fixture
def znodes(cluster: Cluster) -> Iterator[KazooClient]:
    with kazoo_client(cluster.zookeeper) as client:
        yield client


def send(cluster: Cluster, topic: str, numbers: range) -> None:
    with penstock.Producer(cluster.bootstrap_servers) as producer:
        for number in numbers:
            producer.send(topic, str(number), partition=number % PARTITIONS)


def offsets_of(znodes: KazooClient, group: str, topic: str) -> dict[int, int]:
    parent = f"/consumers/{group}/offsets/{topic}"
    if znodes.exists(parent) is None:
        return {}
    return {
        int(name): int(znodes.get(f"{parent}/{name}")[0]) for name in znodes.get_children(parent)
    }


def owners_of(znodes: KazooClient, group: str, topic: str) -> dict[int, str]:
    """Without claims that end while they are read."""
    parent, owners = f"/consumers/{group}/owners/{topic}", {}
    for name in znodes.get_children(parent) if znodes.exists(parent) else ():
        with suppress(NoNodeError):
            owners[int(name)] = znodes.get(f"{parent}/{name}")[0].decode()
    return owners


def members_of(znodes: KazooClient, group: str) -> set[str]:
    parent = f"/consumers/{group}/ids"
    return set(znodes.get_children(parent)) if znodes.exists(parent) else set()


class ReadingThread:
    """Reads in the background, as a program does."""

    def __init__(self, consumer: penstock.ZooKeeperConsumer) -> None:
        self.consumer = consumer
        self.values: list[int] = []
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        for message in self.consumer:
            self.values.append(int(message.value or b""))

    def close(self) -> None:
        self.consumer.close()
        self._thread.join()


def test_members_come_and_go_without_a_double(
    cluster: Cluster, topic: str, znodes: KazooClient
) -> None:
    def join() -> ReadingThread:
        connect = cluster.zookeeper
        return ReadingThread(
            penstock.ZooKeeperConsumer(topic, zookeeper=connect, group=topic, **STEADY)
        )

    def wait_shares(*sizes: int) -> None:
        def sizes_now() -> list[int]:
            return sorted(len(member.consumer.assignment()) for member in members)

        cluster.wait(sizes_now, lambda now: now == sorted(sizes))

    members = [join()]
    send(cluster, topic, range(100))
    wait_shares(4)
    members.append(join())
    wait_shares(2, 2)
    send(cluster, topic, range(100, 200))
    members.append(join())
    wait_shares(1, 1, 2)
    gone = members.pop(0)
    gone.close()
    send(cluster, topic, range(200, 300))
    wait_shares(2, 2)

    def read() -> list[int]:
        return sorted(value for member in [gone, *members] for value in member.values)

    assert cluster.wait(read, lambda values: len(values) >= 300) == list(range(300))
    for member in members:
        member.close()
    assert offsets_of(znodes, topic, topic) == dict.fromkeys(range(PARTITIONS), 75)
    assert znodes.get_children(f"/consumers/{topic}/ids") == []
    assert owners_of(znodes, topic, topic) == {}


def test_members_of_two_rules_do_not_mix(cluster: Cluster, topic: str) -> None:
    def join(rule: Any) -> penstock.ZooKeeperConsumer:
        return penstock.ZooKeeperConsumer(
            topic, zookeeper=cluster.zookeeper, group=topic, assignment=rule, **STEADY
        )

    with join("ceil-range") as first:
        with pytest.raises(penstock.MixedAssignments, match="use assignment='ceil-range'"):
            join("range")
        with join("ceil-range"), join("ceil-range"):
            cluster.wait(lambda: len(first.assignment()), lambda count: count in (0, 2))
            first.poll_batch(1, 0)


def test_a_client_that_knows_no_rule_stops_a_member_that_rounds_up(
    cluster: Cluster, topic: str, znodes: KazooClient
) -> None:
    with penstock.ZooKeeperConsumer(
        topic, zookeeper=cluster.zookeeper, group=topic, assignment="ceil-range", **STEADY
    ) as member:
        member.wait_for_assignment()
        data = f'{{"version":1,"subscription":{{"{topic}":1}},"pattern":"static"}}'
        znodes.create(f"/consumers/{topic}/ids/java", data.encode(), ephemeral=True)
        with pytest.raises(penstock.MixedAssignments, match="member java names no rule"):
            member.poll_batch(1)


def test_a_white_list_takes_in_topics_as_they_are_created(cluster: Cluster, topic: str) -> None:
    with penstock.ZooKeeperConsumer(
        topic, zookeeper=cluster.zookeeper, group=topic, white_list="later[0-9], last", **STEADY
    ) as member:
        member.wait_for_assignment()
        assert {tp.topic for tp in member.assignment()} == {topic}
        cluster.create_topic("later7", partitions=1, replication_factor=1)
        cluster.create_topic("later77", partitions=1, replication_factor=1)
        send_one(cluster, "later7", "first")
        [message] = member.poll_batch(1, 120)
        assert (message.topic, message.value) == ("later7", b"first")
        assert {tp.topic for tp in member.assignment()} == {topic, "later7"}


def send_one(cluster: Cluster, topic: str, value: str) -> None:
    with penstock.Producer(cluster.bootstrap_servers) as producer:
        producer.send_and_wait(topic, value)


@pytest.mark.parametrize(("dual", "in_zookeeper"), [(None, True), (False, False)])
def test_offsets_in_kafka_and_in_both(
    cluster: Cluster, znodes: KazooClient, dual: bool | None, in_zookeeper: bool
) -> None:
    topic = group = f"offsets-{in_zookeeper}"
    cluster.create_topic(topic, partitions=PARTITIONS, replication_factor=1)
    send(cluster, topic, range(40))
    kept: dict[str, Any] = {"offsets_storage": "kafka", "dual_commit": dual}
    connect = cluster.zookeeper
    with penstock.ZooKeeperConsumer(
        topic, zookeeper=connect, group=group, **kept, **STEADY
    ) as member:
        for _ in range(40):
            read_one(member)
        assert member.poll_batch(1, 0) == []  # what was returned is processed
    committed = cluster.ask(lambda client: client.groups.fetch_offsets(group))
    assert {tp.partition: answer.offset for tp, answer in committed.items()} == dict.fromkeys(
        range(PARTITIONS), 10
    )
    everywhere = dict.fromkeys(range(PARTITIONS), 10) if in_zookeeper else {}
    assert offsets_of(znodes, group, topic) == everywhere
    with penstock.ZooKeeperConsumer(
        topic, zookeeper=connect, group=group, timeout_s=1, **kept, **STEADY
    ) as member:
        assert list(member) == []


def test_a_message_that_failed_is_read_again_and_commits_are_the_programs(
    cluster: Cluster, topic: str, znodes: KazooClient
) -> None:
    send(cluster, topic, range(0, 40, PARTITIONS))  # to partition 0

    def join(**more: Any) -> penstock.ZooKeeperConsumer:
        return penstock.ZooKeeperConsumer(
            topic, zookeeper=cluster.zookeeper, group=topic, **STEADY, **more
        )

    def fail_at(offset: int) -> None:
        with join() as member:
            for message in member:
                if message.offset == offset:
                    raise RuntimeError

    with pytest.raises(RuntimeError):
        fail_at(3)
    assert offsets_of(znodes, topic, topic)[0] == 3
    with join(auto_commit=False) as member:
        offsets = [message.offset for message in member.poll_batch(4, 120)]
        while len(offsets) < 4:
            offsets += [message.offset for message in member.poll_batch(4 - len(offsets), 120)]
        assert offsets == [3, 4, 5, 6]
        assert offsets_of(znodes, topic, topic)[0] == 3
        member.commit()
        assert offsets_of(znodes, topic, topic)[0] == 7
        assert len(member.poll_batch(1, 120)) == 1
    assert offsets_of(znodes, topic, topic)[0] == 7


def test_an_expired_session_is_followed_by_another(
    cluster: Cluster, topic: str, znodes: KazooClient
) -> None:
    gate = TcpGate(int(cluster.zookeeper.rpartition(":")[2]))
    settings = EXPIRING | {"connect_timeout_s": 600}
    with (
        closing(gate),
        penstock.ZooKeeperConsumer(
            topic, zookeeper=gate.address, group=topic, **settings
        ) as member,
    ):
        send(cluster, topic, range(4))
        values = [read_one(member) for _ in range(4)]
        gate.shut()
        cluster.wait(lambda: members_of(znodes, topic), lambda members: not members)
        gate.open()
        cluster.wait(lambda: member.statistics().sessions, lambda sessions: sessions >= 2)
        send(cluster, topic, range(4, 8))
        values += [read_one(member) for _ in range(4)]
        assert sorted(values) == list(range(8))
        assert members_of(znodes, topic) == {member.statistics().consumer_id}


def read_one(member: penstock.ZooKeeperConsumer) -> int:
    [message] = member.poll_batch(1, 120)
    return int(message.value or b"")


def test_nothing_is_read_once_the_session_may_be_over(cluster: Cluster, topic: str) -> None:
    """The brokers answer all the time: a fetch names no member."""
    gate = TcpGate(int(cluster.zookeeper.rpartition(":")[2]))
    settings = EXPIRING | {"connect_timeout_s": 600}
    with (
        closing(gate),
        penstock.ZooKeeperConsumer(topic, zookeeper=gate.address, group=topic, **settings) as cut,
        penstock.ZooKeeperConsumer(
            topic, zookeeper=cluster.zookeeper, group=topic, **STEADY
        ) as other,
    ):
        shared = [PARTITIONS // 2] * 2
        cluster.wait(lambda: [len(m.assignment()) for m in (cut, other)], shared.__eq__)
        gate.shut()
        cluster.wait(lambda: len(other.assignment()), lambda count: count == PARTITIONS)
        send(cluster, topic, range(20))
        numbers = [read_one(other) for _ in range(20)]
        assert sorted(numbers) == list(range(20))
        assert cut._membership.reader is not None
        assert cut._membership.reader.read(1, 0.5) == ([], False)
        gate.open()
        cluster.wait(lambda: [len(m.assignment()) for m in (cut, other)], shared.__eq__)
        other.close()
        send(cluster, topic, range(20, 40))
        newer = set(range(20, 40))
        received: set[int] = set()
        while not newer <= received:
            received.add(read_one(cut))
        # A message counts as read once the next one is asked for: the last may come again.
        assert received - newer <= {numbers[-1]}


def test_a_member_that_cannot_reach_zookeeper_still_closes(cluster: Cluster, topic: str) -> None:
    gate = TcpGate(int(cluster.zookeeper.rpartition(":")[2]))
    with closing(gate):
        consumer = penstock.ZooKeeperConsumer(
            topic, zookeeper=gate.address, group=topic, **(STEADY | {"connect_timeout_s": 600})
        )
        consumer.wait_for_assignment()
        gate.shut()
        consumer.close()
    with pytest.raises(penstock.ZooKeeperUnavailable, match="no ZooKeeper answered within 200 ms"):
        penstock.ZooKeeperConsumer(
            topic, zookeeper=gate.address, group=topic, **(STEADY | {"connect_timeout_s": 0.2})
        )


def consume(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "penstock.cli.main", "consume", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=180)


def test_the_command_reads_as_a_member(cluster: Cluster, topic: str, znodes: KazooClient) -> None:
    send(cluster, topic, range(8))
    of_group = ["--zookeeper", cluster.zookeeper, "--from-beginning"]
    of_group += ["--timeout-s", "120", "--max-messages", "8"]
    done = consume(topic, *of_group)  # in a group of its own
    assert (sorted(done.stdout.split()), done.returncode) == (list("01234567"), 0), done.stderr
    assert not [name for name in znodes.get_children("/consumers") if name.startswith("console")]
    done = consume(*of_group, "--group", topic, "--white-list", f"{topic},none")
    assert sorted(done.stdout.split()) == list("01234567"), done.stderr
    assert offsets_of(znodes, topic, topic) == dict.fromkeys(range(PARTITIONS), 2)
    done = consume(topic, *of_group, "--black-list", "a")
    assert (done.returncode, done.stdout) == (2, "")
    assert "a black list reads every topic" in done.stderr


def test_a_partition_that_stays_with_a_stranger_ends_the_member(
    cluster: Cluster, topic: str, znodes: KazooClient
) -> None:
    path = f"/consumers/{topic}/owners/{topic}/2"
    znodes.create(path, b"stranger-0", makepath=True)
    settings = EXPIRING | {"rebalance_max_retries": 2, "rebalance_backoff_s": 0.2}
    with (
        penstock.ZooKeeperConsumer(
            topic, zookeeper=cluster.zookeeper, group=topic, **settings
        ) as member,
        pytest.raises(penstock.RebalanceFailed, match=f"{path} is still owned by stranger-0"),
    ):
        member.poll_batch(1)
    assert znodes.get_children(f"/consumers/{topic}/ids") == []


@pytest.mark.timeout(2400)
def test_members_that_are_killed_paused_and_rebalanced_miss_nothing(
    cluster: Cluster, topic: str, znodes: KazooClient, tmp_path: Path, capsys: Any
) -> None:
    rounds = scaled(test=3, verify=50, release=200)
    chance = random.Random(rounds)
    group = ZooKeeperGroup(cluster, tmp_path, group=topic, topic=topic)
    pauses = 0

    def wait_settled() -> None:
        """Every partition has an owner, and every member that is alive has one."""

        def state() -> tuple[list[str], list[str], list[int]]:
            owners = owners_of(znodes, topic, topic).values()
            names = sorted(owner.rpartition("-")[0] for owner in owners)
            running = [member.number for member in group.running]
            return names, sorted(members_of(znodes, topic)), running

        def is_settled(now: tuple[list[str], list[str], list[int]]) -> bool:
            owners, members, running = now
            is_shared = len(owners) == PARTITIONS and sorted(set(owners)) == members
            return is_shared and len(members) == min(len(running), PARTITIONS)

        cluster.wait(state, is_settled)

    with sending(cluster, topic, partitions=PARTITIONS, rate=200) as sent:
        group.join()
        group.join()
        wait_settled()
        for number in range(rounds):
            running = group.running
            actions = ["join"] * (len(running) < PARTITIONS) + ["kill", "stop"]
            actions += ["pause"] * (len(running) > 1)
            action = ["pause", "kill", "join"][number] if number < 3 else chance.choice(actions)
            member = chance.choice(running)
            if action == "join":
                group.join()
            elif action == "pause":
                pauses += 1
                count = len(members_of(znodes, topic))
                member.pause()
                cluster.wait(lambda: len(members_of(znodes, topic)), count.__gt__)
                group.wait_read(sent[0])
                member.resume()
            else:
                member.kill() if action == "kill" else member.stop()
                if not group.running:
                    group.join()
            wait_settled()
            group.wait_read(sent[0])
    group.wait_read(sent[0])
    group.stop()
    doubles = count_doubles(group)
    # Those of paused members, and on a slow machine perhaps others.
    expired = sum(len(member.expired_at_s()) for member in group.members)
    with capsys.disabled():
        print(
            f"\n{rounds} rebalances, {sent[0]} messages: {doubles.after_breaks} doubled after a "
            f"kill or pause, {doubles.in_hand} held by a member whose session ended; "
            f"{pauses} pauses, {expired} sessions expired"
        )
    assert doubles.unexplained == []
    assert doubles.in_hand <= expired
    assert sum(offsets_of(znodes, topic, topic).values()) == sent[0]
