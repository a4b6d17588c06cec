"""The broker's incarnation: a number in every log directory and in the metadata store.

It rises with every registration. Before, the replicas that have lost records are reported to the
metadata store. Invariant: a directory gets a new number only when what its old one has shown is
stored, and before the store gets it, so that no directory is behind without cause.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from penstock.controller.broker_reports import read_assigned, read_report, write_report
from penstock.io.disk import Disk, advise
from penstock.logs.event_logger import EventLogger
from penstock.metadata_store.errors import DamagedZnode
from penstock.metadata_store.interface import Session
from penstock.model.broker_report import BrokerReport, LogPosition
from penstock.model.cluster import BrokerId
from penstock.model.ids import TopicPartition
from penstock.server.meta_properties import read_incarnations, write_incarnation
from penstock.server.metadata_store import BrokerMetadataStore
from penstock.server.replica_check import (
    OpenedLog,
    describe_damaged,
    find_damaged,
    find_outdated,
    merge_reports,
)
from penstock.storage.engine import Engine, PartitionLog
from penstock.storage.errors import MalformedCheckpoint


class BrokerIncarnation:
    """Owned by the event loop. `check_replicas` once, then `record` before every registration."""

    def __init__(
        self,
        broker_id: BrokerId,
        *,
        disk: Disk,
        directories: Sequence[str],  # those that work
        logger: EventLogger,
    ) -> None:
        self._broker_id = broker_id
        self._disk = disk
        self._directories = [os.path.abspath(directory) for directory in directories]
        self._numbers = read_incarnations(disk, self._directories)
        self._logger = logger

    async def check_replicas(
        self,
        store: BrokerMetadataStore,
        recovered: "RecoveredLogs",
    ) -> None:
        """Find the replicas that have lost records, say so, and report them to the store."""
        assigned = await store.ask_at_startup(lambda s: read_assigned(s, self._broker_id))
        stored = await store.ask_at_startup(lambda s: read_report(s, self._broker_id))
        logs = recovered.list_opened()
        damaged = find_damaged(
            assigned,
            logs,
            missing=recovered.engine.missing(),
            short=recovered.engine.short(),
            failed=recovered.engine.statistics().failed_directories,
            outdated=find_outdated(self._numbers, latest=stored.incarnation),
        )
        for message in describe_damaged(damaged):
            self._logger.warning(
                "records_lost", f"{message}; reporting this to the controller before registering"
            )

        def with_found(latest: BrokerReport) -> BrokerReport:
            return replace(latest, replicas=merge_reports(latest.replicas, damaged, assigned, logs))

        if damaged or stored.replicas:
            await store.ask_at_startup(lambda s: write_report(s, self._broker_id, with_found))

    async def record(self, session: Session) -> None:
        """Make the next incarnation durable. If that fails, the broker registers with the one that
        it has: a running broker must not end because its session has expired."""
        try:
            await self._record(session)
        except DamagedZnode as damaged:
            self._logger.error(
                "meta_properties_damaged",
                f"{damaged}; until then the controller ignores this broker",
            )

    async def _record(self, session: Session) -> None:
        stored = await read_report(session, self._broker_id)
        number = max(stored.incarnation, *self._numbers.values()) + 1
        written = [path for path in self._directories if self._try_write(path, number)]
        self._numbers.update(dict.fromkeys(written, number))
        if len(written) == len(self._directories):  # else the next start would suspect the others
            await write_report(
                session, self._broker_id, lambda latest: replace(latest, incarnation=number)
            )

    def _try_write(self, directory: str, number: int) -> bool:
        try:
            write_incarnation(self._disk, directory, number)
        except OSError as error:
            self._logger.error(
                "directory_not_writable", f"{directory} cannot be written: {error}; {advise(error)}"
            )
            return False
        except MalformedCheckpoint as error:
            self._logger.error(
                "meta_properties_damaged",
                f"{error}; correct the file, because the next start refuses it",
            )
            return False
        return True


class RecoveredLogs(NamedTuple):
    engine: Engine
    logs: Mapping[TopicPartition, PartitionLog]  # as recovery has opened them

    def list_opened(self) -> dict[TopicPartition, OpenedLog]:
        """A folder without a segment is as good as no folder: its log was opened empty."""
        without_segments = self.engine.without_segments()
        return {
            tp: OpenedLog(
                log.topic_id,
                os.path.dirname(log.statistics().directory),
                LogPosition(log.latest_epoch, log.log_end_offset),
            )
            for tp, log in self.logs.items()
            if tp not in without_segments
        }


async def report_lost(
    store: BrokerMetadataStore, broker_id: BrokerId, recovered: RecoveredLogs, logger: EventLogger
) -> None:
    """Say what a single broker has lost. It serves what is left: nobody else has more."""
    lost = recovered.engine.missing() | recovered.engine.short().keys()
    if not lost:
        return
    assigned = await store.ask_at_startup(lambda session: read_assigned(session, broker_id))
    damaged = find_damaged(
        {tp: topic_id for tp, topic_id in assigned.items() if tp in lost},
        recovered.list_opened(),
        missing=recovered.engine.missing(),
        short=recovered.engine.short(),
        failed=(),
        outdated=(),
    )
    for message in describe_damaged(damaged):
        logger.error(
            "records_lost", f"{message}; there is no other replica: it is served with what is left"
        )
