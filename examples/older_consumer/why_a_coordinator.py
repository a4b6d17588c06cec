"""Shows why groups have a coordinator: three stories, first in ZooKeeper, then with a coordinator.

The herd: one member joins and everybody stops. Two views: members that have read the group at
different times share it differently. The pause: a member that sleeps beyond its session still holds
a message, brokers still answer it, and nobody guards its offsets.

`python why_a_coordinator.py [herd] [views] [pause]` needs Java for ZooKeeper and nothing else. Each
story checks what it says: the exit code is 0 only if it holds.
"""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import islice
from pathlib import Path

import penstock
from penstock.config.zookeeper import ZooKeeperConfig
from penstock.metadata_store.interface import Session
from penstock.metadata_store.zookeeper.store import ZooKeeperMetadataStore
from penstock.testing import Cluster
from penstock.zookeeper_consumer.assignment import GroupView, share_of
from penstock.zookeeper_consumer.claims import Claims
from penstock.zookeeper_consumer.group_znodes import (
    AssignmentRule,
    Registration,
    SubscriptionPattern,
    encode_registration,
    member_path,
)
from penstock.zookeeper_consumer.offsets_storage import OffsetZnodes, ensure_path
from penstock.zookeeper_consumer.view_reader import ViewReader

HERE = Path(__file__).parent
HERD = 5  # members before one more joins
RANGE = AssignmentRule.RANGE
SETTINGS = {"group.min.session.timeout.ms": 1000, "group.initial.rebalance.delay.ms": 0}


def main(stories: list[str]) -> None:
    started = time.monotonic()
    with Cluster(brokers=1, config=SETTINGS) as cluster:
        for story in stories or list(STORIES):
            STORIES[story](cluster)
    print(f"\nAll steps held, in {time.monotonic() - started:.1f} s.")


# -- The herd ------------------------------------------------------------------------------------


def show_herd(cluster: Cluster) -> None:
    title("The herd")
    cluster.create_topic("herd", partitions=HERD + 1, replication_factor=1)
    with ExitStack() as stack:

        def join() -> penstock.ZooKeeperConsumer:
            member = penstock.ZooKeeperConsumer(
                "herd", zookeeper=cluster.zookeeper, group="older", rebalance_backoff_s=0.5
            )
            return stack.enter_context(member)

        members = [join() for _ in range(HERD)]
        wait(cluster, lambda: sum(len(member.assignment()) for member in members) == HERD + 1)
        before = [member.statistics() for member in members]
        members.append(join())

        def rebalanced() -> list[int]:
            pairs = zip(members, before, strict=False)
            return [member.statistics().rebalances - then.rebalances for member, then in pairs]

        wait(cluster, lambda: min(rebalanced()) > 0)
        wait(cluster, lambda: all(len(member.assignment()) == 1 for member in members))
        requests = sum(
            member.statistics().zookeeper_requests - then.zookeeper_requests
            for member, then in zip(members, before, strict=False)
        )
        say(f"in ZooKeeper, one member joins {HERD}: all {HERD} stop reading, release everything")
        say(f"  and read the whole group again, in {requests} requests; one partition had to move")
        assert requests >= HERD * HERD  # each reads every other member

    with ExitStack() as stack:

        def subscribe() -> penstock.Consumer:
            member = penstock.Consumer(
                "herd",
                bootstrap_servers=cluster.bootstrap_servers,
                group="newer",
                assignor="uniform",
            )
            return stack.enter_context(member)

        consumers = [subscribe() for _ in range(HERD)]
        assigned = shared_by(cluster, consumers, HERD + 1, at_least=1)
        consumers.append(subscribe())
        after = shared_by(cluster, consumers, HERD + 1, at_least=1)
        changed = sum(a != b for a, b in zip(assigned, after, strict=False))
        say(f"with a coordinator, one joins {HERD}: {changed} gives a partition up")
        say("  the coordinator computes the shares, and the others read on without a pause")
        assert changed == 1


def shared_by(
    cluster: Cluster, consumers: list[penstock.Consumer], partitions: int, at_least: int = 0
) -> list[frozenset[penstock.TopicPartition]]:
    """The assignments, once they hold every partition. Never do two members have the same one."""

    def look() -> bool:
        for consumer in consumers:
            consumer.poll_batch(1, 0.05)
        shares = [consumer.assignment() for consumer in consumers]
        count = sum(map(len, shares))
        assert count == len(set().union(*shares)), "two members have the same partition"
        return count == partitions and min(map(len, shares)) >= at_least

    wait(cluster, look)
    return [frozenset(consumer.assignment()) for consumer in consumers]


# -- Two views -----------------------------------------------------------------------------------


def show_views(cluster: Cluster) -> None:
    title("Two views")
    cluster.create_topic("views", partitions=4, replication_factor=1)
    asyncio.run(compare_views(cluster))
    consumers: list[penstock.Consumer] = []
    with ExitStack() as stack:
        for _ in range(3):
            member = penstock.Consumer(
                "views", bootstrap_servers=cluster.bootstrap_servers, group="newer"
            )
            consumers.append(stack.enter_context(member))
            shared_by(cluster, consumers, 4)
    say("with a coordinator, three join one after the other: at no time do two have the same one,")
    say("  because one list of members, with a generation, is what everybody gets")


async def compare_views(cluster: Cluster) -> None:
    """What members do, one step at a time, so that their steps can be put in a bad order."""
    store = await ZooKeeperMetadataStore.open(ZooKeeperConfig.parse(cluster.zookeeper))
    sessions = {name: await store.open_session() for name in "abc"}
    views: dict[str, GroupView] = {}
    for name in "abc":  # each reads the group when it has registered, and is then slow
        await register(sessions[name], name)
        views[name] = await read_view(sessions[name])
    shares = {name: share_of(views[name], name, RANGE) for name in "abc"}
    for name, share in shares.items():
        members = ", ".join(member.id for member in views[name].members)
        say(f"in ZooKeeper, {name} has seen {members}: it wants {names_of(share)}")
    wanted = [tp for share in shares.values() for tp in share]
    assert len(wanted) > len(set(wanted)) == 4

    claims = {name: Claims(session, "views") for name, session in sessions.items()}
    assert await claims["a"].claim(shares["a"]) is None
    conflicts = [await claims[name].claim(shares[name]) for name in "bc"]
    assert None not in conflicts
    say("  a has claimed everything, so b and c fail, give all back, and wait to try again")

    await claims["a"].release()
    view_of_a = await read_view(sessions["a"])  # it reads again, first of all
    await sessions["c"].close()  # and c dies before b reads
    await claims["a"].claim(share_of(view_of_a, "a", RANGE))
    await claims["b"].claim(share_of(views["c"], "b", RANGE))  # as the group was, with c
    owned = claims["a"].owned | claims["b"].owned
    say(f"  then c dies, but both still count it: {names_of(set(wanted) - owned)} has no reader")
    say("  until both have read the group once more")
    assert len(set(wanted) - owned) == 1
    await store.close()


async def register(session: Session, name: str) -> None:
    path = member_path("views", name)
    await ensure_path(session, path.rpartition("/")[0])
    await session.create(path, encode_registration(subscription()), ephemeral=True)


async def read_view(session: Session) -> GroupView:
    reader = ViewReader(
        session, "views", subscription(), protocol="PLAINTEXT", watch=lambda event: None
    )
    return await reader.read()


def subscription() -> Registration:
    return Registration(pattern=SubscriptionPattern.STATIC, subscription={"views": 1})


def names_of(tps: object) -> str:
    return ", ".join(str(tp) for tp in sorted(tps)) or "nothing"  # type: ignore[call-overload]


# -- The pause -----------------------------------------------------------------------------------


def show_pause(cluster: Cluster) -> None:
    title("The pause")
    cluster.create_topic("paused", partitions=1, replication_factor=1)
    with penstock.Producer(cluster.bootstrap_servers) as producer:
        for number in range(20):
            producer.send("paused", str(number))

    def join_older() -> penstock.ZooKeeperConsumer:
        return penstock.ZooKeeperConsumer(
            "paused", zookeeper=cluster.zookeeper, group="older", from_beginning=True
        )

    after = pause_and_take_over("zookeeper", cluster.zookeeper, join_older)
    say(f"in ZooKeeper, the one that wakes says: {after}")
    assert after[0] == "processed 0"
    offset = asyncio.run(commit_by_hand(cluster, 1))
    say(f"  our commit was fenced by its session; older clients set the znode: now {offset}")
    assert offset == 1
    with penstock.Consumer(
        "paused", bootstrap_servers=cluster.bootstrap_servers, from_beginning=True, timeout_s=60
    ) as stranger:
        count = sum(1 for _ in islice(stranger, 20))
    say(f"  and a broker gives {count} messages to whoever asks: a fetch names no member")
    assert count == 20

    def join_newer() -> penstock.Consumer:
        return penstock.Consumer(
            "paused",
            bootstrap_servers=cluster.bootstrap_servers,
            group="newer",
            from_beginning=True,
        )

    with penstock.Admin(cluster.bootstrap_servers) as admin:
        tp = penstock.TopicPartition("paused", 0)
        after = pause_and_take_over("coordinator", cluster.bootstrap_servers, join_newer)
        committed = admin.list_group_offsets("newer")[tp].offset
        say(f"with a coordinator, the one that wakes says: {after[0]}, too")
        say(f"  but the offset stays {committed}: a commit names member and generation")
        assert after[0] == "processed 0"
        assert committed == 20
        with join_newer() as owner:
            wait(cluster, lambda: (owner.poll_batch(1, 0.05), owner.assignment())[1] == {tp})
            try:
                admin.alter_group_offsets("newer", {tp: 1})
            except penstock.ClientError as error:
                say(f"  and of a stranger it is refused: {error}")
            else:
                raise AssertionError("a stranger has committed for a group with members")
        assert admin.list_group_offsets("newer")[tp].offset == 20


def pause_and_take_over(
    kind: str,
    address: str,
    join: Callable[[], penstock.Consumer | penstock.ZooKeeperConsumer],
) -> list[str]:
    """What the paused member says once another one has read and committed everything."""
    with paused_member(kind, address) as member:
        assert member.stdout is not None
        assert member.stdout.readline() == "holds 0\n"
        os.kill(member.pid, signal.SIGSTOP)
        with join() as other:
            offsets: list[int] = []
            while len(offsets) < 20:
                offsets += [message.offset for message in other.poll_batch(20, 60)]
            other.commit()
        say(f"{kind}: one member holds message 0 and sleeps; another reads {len(offsets)}, 0 first")
        assert offsets == list(range(20))
        os.kill(member.pid, signal.SIGCONT)
        said, _ = member.communicate("wake\n", timeout=120)
        return said.splitlines()


@contextmanager
def paused_member(kind: str, address: str) -> Iterator["subprocess.Popen[str]"]:
    command = [sys.executable, str(HERE / "paused_member.py"), kind, address]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


async def commit_by_hand(cluster: Cluster, offset: int) -> int | None:
    """As consumers before 0.9 do: no condition says who may."""
    store = await ZooKeeperMetadataStore.open(ZooKeeperConfig.parse(cluster.zookeeper))
    offsets = OffsetZnodes(await store.open_session(), "older")
    tp = penstock.TopicPartition("paused", 0)
    assert await offsets.fetch([tp]) == {tp: 20}
    await offsets.commit({tp: offset})
    stored = await offsets.fetch([tp])
    await store.close()
    return stored[tp]


# -- Output --------------------------------------------------------------------------------------


def title(text: str) -> None:
    print(f"\n{text}", flush=True)


def say(text: str) -> None:
    print(f"  {text}", flush=True)


def wait(cluster: Cluster, holds: Callable[[], bool]) -> None:
    cluster.wait(holds, bool)


STORIES = {"herd": show_herd, "views": show_views, "pause": show_pause}

if __name__ == "__main__":
    unknown = set(sys.argv[1:]) - set(STORIES)
    if unknown:
        sys.exit(f"no story {', '.join(unknown)}: {', '.join(STORIES)}")
    main(sys.argv[1:])
