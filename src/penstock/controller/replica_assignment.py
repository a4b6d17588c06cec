"""Assigns the replicas of new partitions to brokers, rack-aware. Pure: randomness is an argument.

Leaders are assigned round-robin. The distance to the first follower grows after each round, so
that a broker's partitions have their other replicas on all the other brokers. Each partition
covers as many racks as possible.
"""

from collections.abc import Iterable, Sequence
from itertools import chain, zip_longest

from penstock.model.cluster import BrokerId, BrokerNode


def assign_replicas(
    brokers: Iterable[BrokerNode],
    *,
    partitions: int,
    replication_factor: int,
    start: int,
    shift: int,
    first_partition: int = 0,
) -> list[tuple[BrokerId, ...]]:
    """Replicas by partition, the preferred leader first.

    `start` is the index of partition 0's leader, `shift` the distance of its first follower. To
    add partitions to a topic, pass those of its creation and `first_partition`.
    """
    ring = _alternate_racks(brokers)
    assert 1 <= replication_factor <= len(ring), (replication_factor, len(ring))
    return [
        _replicas(ring, start + number, shift + number // len(ring), replication_factor)
        for number in range(first_partition, first_partition + partitions)
    ]


def _replicas(
    ring: Sequence[BrokerNode], index: int, shift: int, replication_factor: int
) -> tuple[BrokerId, ...]:
    index %= len(ring)
    leader = ring[index]
    if replication_factor == 1:
        return (leader.id,)
    others = _rotated([*ring[index + 1 :], *ring[:index]], shift * len(_racks(ring)))
    chosen = [leader]
    while len(chosen) < replication_factor:
        free = [broker for broker in others if broker not in chosen]
        covered = _racks(chosen)
        chosen.append(next((broker for broker in free if _rack(broker) not in covered), free[0]))
    return tuple(broker.id for broker in chosen)


def _alternate_racks(brokers: Iterable[BrokerNode]) -> list[BrokerNode]:
    """One broker of each rack in turn, by id within a rack; brokers without a rack share one."""
    by_rack: dict[str, list[BrokerNode]] = {}
    for broker in sorted(brokers, key=lambda broker: broker.id):
        by_rack.setdefault(_rack(broker), []).append(broker)
    rounds = zip_longest(*(by_rack[rack] for rack in sorted(by_rack)))
    return [broker for broker in chain.from_iterable(rounds) if broker is not None]


def _rack(broker: BrokerNode) -> str:
    return broker.rack or ""


def _racks(brokers: Iterable[BrokerNode]) -> set[str]:
    return {_rack(broker) for broker in brokers}


def _rotated(brokers: list[BrokerNode], by: int) -> list[BrokerNode]:
    by %= len(brokers)
    return brokers[by:] + brokers[:by]
