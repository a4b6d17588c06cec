"""Which committed offset is in force where the log and ZooKeeper both have one, and what must be
written for both to say the same. Pure.

A group that had committed keeps its offsets when `offsets.storage` is switched, in both directions:
without `dual.commit.enabled` the newer commit wins, because the storages took turns; with it the
larger offset wins, as in Kafka 0.8.2, because instances may commit to either.
"""

from collections.abc import Mapping
from typing import NamedTuple

from penstock.coordinators.group.dependencies import Topics
from penstock.coordinators.group.offsets.store import OffsetStore
from penstock.coordinators.group.records import NO_TIME, GroupRecord, OffsetKey, OffsetValue
from penstock.coordinators.runtime.result import CoordinatorResult
from penstock.model.ids import TopicPartition


class ZnodeOffset(NamedTuple):
    offset: int
    committed_ms: int  # the znode's mtime
    version: int  # the znode's


class MigrationRule(NamedTuple):
    """What the settings of this broker mean for a migration."""

    is_in_zookeeper: bool  # the storage that offsets are read from
    is_dual: bool

    @property
    def writes_log(self) -> bool:
        return self.is_dual or not self.is_in_zookeeper

    @property
    def writes_zookeeper(self) -> bool:
        return self.is_dual or self.is_in_zookeeper


class MigratedOffset(NamedTuple):
    offset: int
    version: int | None  # of the znode that it replaces; None: there is none


class Migration(NamedTuple):
    to_log: int  # offsets written to the log
    to_zookeeper: Mapping[TopicPartition, MigratedOffset]  # to be written


def migrate(
    store: OffsetStore,
    group: str,
    znodes: Mapping[TopicPartition, ZnodeOffset],
    rule: MigrationRule,
    *,
    topics: Topics,
    now_ms: int,
) -> CoordinatorResult[Migration, GroupRecord]:
    """Offsets of topics that do not exist stay where they are."""
    records: list[GroupRecord] = []
    to_zookeeper: dict[TopicPartition, MigratedOffset] = {}
    logged = dict(store.of_group(group))
    for tp in sorted(logged.keys() | znodes.keys()):
        view = topics.find(tp.topic)
        if view is None or not 0 <= tp.partition < view.partitions:
            continue
        value, znode = logged.get(tp), znodes.get(tp)
        if value is None or (znode is not None and is_znode_in_force(value, znode, rule)):
            if znode is not None and rule.writes_log:
                records.append(_record(group, tp, znode, now_ms))
        elif (znode is None or znode.offset != value.offset) and rule.writes_zookeeper:
            version = None if znode is None else znode.version
            to_zookeeper[tp] = MigratedOffset(value.offset, version)
    return CoordinatorResult(reply=Migration(len(records), to_zookeeper), records=tuple(records))


def is_znode_in_force(value: OffsetValue, znode: ZnodeOffset, rule: MigrationRule) -> bool:
    """Whether ZooKeeper's offset replaces the log's, which has another one."""
    if value.offset == znode.offset:
        return False
    if rule.is_dual:
        return znode.offset > value.offset
    if value.committed_ms == znode.committed_ms:
        return rule.is_in_zookeeper
    return znode.committed_ms > value.committed_ms


def _record(group: str, tp: TopicPartition, znode: ZnodeOffset, now_ms: int) -> GroupRecord:
    """Committed now: its retention in the log begins today, since in ZooKeeper it had none."""
    value = OffsetValue(
        offset=znode.offset,
        leader_epoch=-1,
        metadata="",
        committed_ms=max(now_ms, znode.committed_ms),
        expires_ms=NO_TIME,
    )
    return GroupRecord(OffsetKey(group, *tp), value)
