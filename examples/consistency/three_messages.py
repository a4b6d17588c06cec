"""The story of three messages: a leader has three, one follower two, the other one, and it dies.

`python three_messages.py` runs it on three brokers and prints after each step what every broker has
in its files, with the leader epoch of each record. Needs Java for ZooKeeper and nothing else. The
exit code is 0 only if each step leaves what it should.
"""

import time
from collections.abc import Mapping

from broker_faults import (
    PATIENCE_S,
    SETTINGS,
    Freezer,
    create,
    kill,
    producer_at,
    records_of,
    stored_with_epochs,
    wait_in_sync,
    wait_led,
    wait_stored,
)

import penstock
from penstock.client.data_calls import FetchFrom
from penstock.client.errors import SendFailed
from penstock.model.ids import Offset, TopicPartition
from penstock.testing import Cluster

TOPIC = "story"


def main() -> None:
    started = time.monotonic()
    with Cluster(brokers=3, config=SETTINGS) as cluster:
        leader = next(broker for broker in (1, 2, 3) if broker != cluster.controller)
        a, b = (broker for broker in (1, 2, 3) if broker != leader)
        names = {leader: "the leader", a: "A", b: "B"}
        create(cluster, {TOPIC: {}}, (leader, a, b), "first")
        leave_three_two_and_one(cluster, names)
        let_the_leader_return(cluster, names)
    print(f"\nAll steps held, in {time.monotonic() - started:.1f} s.")


def leave_three_two_and_one(cluster: Cluster, names: Mapping[int, str]) -> None:
    leader, a, b = names
    with Freezer(cluster, leader) as freezer, producer_at(cluster, leader, acks="all") as producer:
        freezer.freeze(b)
        second = producer.send(TOPIC, "second", partition=0)
        for broker in (leader, a):
            wait_stored(cluster, broker, TOPIC, ["first", "second"])
        freezer.freeze(a)
        third = producer.send(TOPIC, "third", partition=0)
        wait_stored(cluster, leader, TOPIC, ["first", "second", "third"])
        say(
            "three messages are sent with acks=all; B is frozen after the first, A after the second"
        )
        show(cluster, names, {leader: (0, 0, 0), a: (0, 0), b: (0,)})
        readable = read(cluster)
        say(f"  all three are in sync, and have one message in common: consumers read {readable}")
        assert readable == ["first"]
        assert not second.done()
        assert not third.done()
        kill(cluster, leader, wakes=(a, b))
        for sent in (second, third):
            try:
                sent.result(PATIENCE_S)
            except SendFailed as error:
                assert error.code is None  # noqa: PT017 - no answer from the broker
            else:
                raise AssertionError("a message that two brokers lack was acknowledged")
    wait_led(cluster, [TOPIC], by=[a])
    wait_stored(cluster, b, TOPIC, ["first", "second"])
    say("the leader dies, A and B wake. A is the next in sync, and leads; B fetches from it")
    show(cluster, names, {leader: (0, 0, 0), a: (0, 0), b: (0, 0)})
    say("  the producer has no answer for the second and the third, and must send them again:")
    say("  it cannot know that the second is kept")


def let_the_leader_return(cluster: Cluster, names: Mapping[int, str]) -> None:
    leader, a, b = names
    with producer_at(cluster, a, acks="all") as producer:
        offset = producer.send_and_wait(TOPIC, "other", partition=0).offset
    assert offset == 2
    wait_stored(cluster, b, TOPIC, ["first", "second", "other"])
    say("before the old leader is back, another producer writes: at offset 2, in epoch 1")
    show(cluster, names, {leader: (0, 0, 0), a: (0, 0, 1), b: (0, 0, 1)})
    cluster.start(leader)
    wait_in_sync(cluster, [TOPIC], (leader, a, b))
    say("the old leader is back. It asks where epoch 0 ended, hears 2, cuts its third message off,")
    say("  and fetches what is there now")
    show(cluster, names, dict.fromkeys(names, (0, 0, 1)))
    with penstock.Producer(cluster.bootstrap_servers) as producer:
        producer.send_and_wait(TOPIC, "third", partition=0)
    say("the producer has sent the third again: the order is that of the log, not of the sending")
    for broker in names:
        wait_stored(cluster, broker, TOPIC, ["first", "second", "other", "third"])
    show(cluster, names, dict.fromkeys(names, (0, 0, 1, None)))


def read(cluster: Cluster) -> list[str]:
    """What the leader gives to consumers. (Clients of librdkafka may wait for frozen brokers.)"""
    wanted = FetchFrom(TopicPartition(TOPIC, 0), Offset(0))
    [fetched] = cluster.ask(lambda client: client.fetch([wanted], max_wait_ms=0))
    return [value for value, _ in records_of(fetched.batches)]


def show(
    cluster: Cluster, names: Mapping[int, str], epochs: Mapping[int, tuple[int | None, ...]]
) -> None:
    """None: whichever epoch, because leaders may have moved back meanwhile."""
    for broker, name in names.items():
        there = stored_with_epochs(cluster, broker, TOPIC)
        words = "  ".join(f"{value} ({epoch})" for value, epoch in there)
        print(f"      {name:>10}: {words}", flush=True)
        for (_, epoch), expected in zip(there, epochs[broker], strict=True):
            assert expected in (None, epoch), (name, there)


def say(text: str) -> None:
    print(f"  {text}", flush=True)


if __name__ == "__main__":
    main()
