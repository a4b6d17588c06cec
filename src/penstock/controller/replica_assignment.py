"""Which brokers hold a new partition's replicas. Pure: chance is an argument.

Leaders go round the brokers one by one; followers follow with a distance that grows after each
round, so that a broker's partitions have their other copies on all the others. Each partition
covers as many racks as it can.
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

    `start` is the place of partition 0's leader, `shift` the distance of its first follower; a
    topic that grows passes those of its creation and the number of the first added partition.
    """
    ring = _alternate_racks(brokers)
    assert 1 <= replication_factor <= len(ring), (replication_factor, len(ring))
    return [
        _replicas(ring, start + number, shift + number // len(ring), replication_factor)
        for number in range(first_partition, first_partition + partitions)
    ]


def _replicas(
    ring: Sequence[BrokerNode], place: int, shift: int, replication_factor: int
) -> tuple[BrokerId, ...]:
    place %= len(ring)
    leader = ring[place]
    if replication_factor == 1:
        return (leader.id,)
    others = _rotated([*ring[place + 1 :], *ring[:place]], shift * len(_racks(ring)))
    chosen = [leader]
    while len(chosen) < replication_factor:
        free = [each for each in others if each not in chosen]
        covered = _racks(chosen)
        chosen.append(next((each for each in free if _rack(each) not in covered), free[0]))
    return tuple(each.id for each in chosen)


def _alternate_racks(brokers: Iterable[BrokerNode]) -> list[BrokerNode]:
    """By id within a rack, one of each rack in turn; brokers without one are a rack together."""
    by_rack: dict[str, list[BrokerNode]] = {}
    for broker in sorted(brokers, key=lambda each: each.id):
        by_rack.setdefault(_rack(broker), []).append(broker)
    rounds = zip_longest(*(by_rack[rack] for rack in sorted(by_rack)))
    return [broker for broker in chain.from_iterable(rounds) if broker is not None]


def _rack(broker: BrokerNode) -> str:
    return broker.rack or ""


def _racks(brokers: Iterable[BrokerNode]) -> set[str]:
    return {_rack(each) for each in brokers}


def _rotated(brokers: list[BrokerNode], by: int) -> list[BrokerNode]:
    by %= len(brokers)
    return brokers[by:] + brokers[:by]
