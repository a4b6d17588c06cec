"""A simulated broker's report before its registration: the production's check of its replicas.

Only in runs that lose data: the writes would change what other seeds do.
"""

from collections.abc import Mapping
from dataclasses import replace

from penstock.model.broker_report import LogPosition
from penstock.model.cluster import BrokerId
from penstock.model.ids import TopicPartition
from penstock.server.meta_properties import read_incarnations, write_incarnation
from penstock.server.replica_check import OpenedLog, find_damaged, find_outdated, merge_reports
from penstock.storage.engine import Engine, PartitionLog
from penstock.storage.partition_metadata import MetaProperties, write_meta_properties
from penstock.testing.simulated_disk import SimulatedDisk
from penstock.testing.simulation.metadata_store import SimulatedMetadataStore
from penstock.testing.simulation.world import World

DIRECTORY = "/d"


class SimulatedIncarnation:
    """Made when the broker has recovered its logs; `record` before every registration."""

    def __init__(
        self,
        world: World,
        broker_id: BrokerId,
        disk: SimulatedDisk,
        engine: Engine,
        logs: Mapping[TopicPartition, PartitionLog],
    ) -> None:
        self._store: SimulatedMetadataStore = world.store
        self._broker_id = broker_id
        self._disk = disk
        self._assigned = dict.fromkeys(world.tps, world.topic.topic_id)
        self._missing = engine.missing()
        self._short = engine.short()
        self._logs = {
            tp: OpenedLog(
                log.topic_id, DIRECTORY, LogPosition(log.latest_epoch, log.log_end_offset)
            )
            for tp, log in logs.items()
            if tp not in engine.without_segments()
        }
        self._is_checked = False

    def record(self) -> None:
        if not self._is_checked:
            self._check()
        stored = self._store.report(self._broker_id)
        number = 1 + max(stored.incarnation, self._numbers()[DIRECTORY])
        if not self._disk.exists(f"{DIRECTORY}/meta.properties"):
            write_meta_properties(self._disk, DIRECTORY, MetaProperties(node_id=self._broker_id))
        write_incarnation(self._disk, DIRECTORY, number)
        self._store.write_report(self._broker_id, replace(stored, incarnation=number))

    def _check(self) -> None:
        stored = self._store.report(self._broker_id)
        damaged = find_damaged(
            self._assigned,
            self._logs,
            missing=self._missing,
            short=self._short,
            failed=(),
            outdated=find_outdated(self._numbers(), latest=stored.incarnation),
        )
        merged = merge_reports(stored.replicas, damaged, self._assigned, self._logs)
        self._store.write_report(self._broker_id, replace(stored, replicas=merged))
        self._is_checked = True

    def _numbers(self) -> dict[str, int]:
        return read_incarnations(self._disk, [DIRECTORY])
