"""A broker's incarnation over restarts: which disks belong to its latest registration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from errno import EIO, ENOSPC

from tests.unit.controller.cluster import Cluster, run_scenario
from tests.unit.storage.several_logs import EngineHarness

from penstock.controller.broker_reports import read_report, write_report
from penstock.controller.interface import CreatableTopic
from penstock.controller.znodes import report_path
from penstock.logs.event_logger import message_logger
from penstock.model.broker_report import NEVER_CREATED, NO_LOG, LogPosition
from penstock.model.cluster import BrokerId, TopicState
from penstock.model.ids import TopicPartition
from penstock.server.incarnation import BrokerIncarnation, RecoveredLogs, report_lost
from penstock.server.meta_properties import read_incarnations, write_owner
from penstock.server.metadata_store import BrokerMetadataStore
from penstock.storage.log import SegmentedLog
from penstock.testing.simulated_disk import SimulatedDisk

ME = BrokerId(0)
TP = TopicPartition("t", 0)


class RestartingBroker:
    """A broker with a real metadata store and engine, which a test restarts."""

    def __init__(self, cluster: Cluster, directories: Sequence[str] = ("/d",)) -> None:
        self.cluster = cluster
        self.directories = tuple(directories)
        self.reports: list[str] = []

    @property
    def store(self) -> BrokerMetadataStore:
        return BrokerMetadataStore(
            self.cluster.store, self.cluster.sessions[0], startup_timeout_ms=0
        )

    async def start(self, disk: SimulatedDisk, *, registers: bool = True) -> EngineHarness:
        for directory in self.directories:
            if not disk.exists(directory):
                disk.make_directory(directory)
        write_owner(disk, self.directories, broker_id=ME, cluster_id="c")
        harness = EngineHarness(disk, directories=self.directories)
        incarnation = self.make_incarnation(disk)
        await incarnation.check_replicas(self.store, RecoveredLogs(harness.engine, harness.logs))
        if registers:
            await incarnation.record(self.store.session)
        return harness

    def make_incarnation(self, disk: SimulatedDisk) -> BrokerIncarnation:
        return BrokerIncarnation(
            ME, disk=disk, directories=self.directories, logger=message_logger(self.reports.append)
        )

    async def find_reported(self) -> LogPosition | None:
        replica = (await read_report(self.store.session, ME)).replicas.get(TP)
        return None if replica is None else replica.position

    async def create_topic(self, harness: EngineHarness) -> SegmentedLog:
        async with self.cluster.controlled(0) as controller:
            new = CreatableTopic(name="t", partitions=1, replication_factor=1)
            [created] = await controller.create_topics([new], validate_only=False, timeout_ms=9999)
        assert isinstance(created, TopicState)
        return harness.create(TP, topic_id=created.topic_id.int)


def test_a_restart_with_the_same_disk_reports_nothing() -> None:
    async def scenario(cluster: Cluster) -> None:
        broker, disk = RestartingBroker(cluster), SimulatedDisk("/d")
        await broker.create_topic(await broker.start(disk))
        for _ in range(2):
            disk = disk.survivor_of_kill()
            await broker.start(disk)
        assert await broker.find_reported() is None
        assert not broker.reports
        assert read_incarnations(disk, ["/d"]) == {"/d": 3}
        assert (await read_report(broker.store.session, ME)).incarnation == 3

    run_scenario(scenario)


def test_an_empty_disk_is_reported_again_until_the_controller_has_decided() -> None:
    """Also if the broker is killed between report and registration, or has created a log."""

    async def scenario(cluster: Cluster) -> None:
        broker = RestartingBroker(cluster)
        log = await broker.create_topic(await broker.start(SimulatedDisk("/d")))
        disk = SimulatedDisk("/d")
        await broker.start(disk, registers=False)
        assert await broker.find_reported() == NO_LOG
        harness = await broker.start(disk.survivor_of_kill())
        harness.create(TP, topic_id=log.topic_id.int)
        await broker.start(harness.disk.survivor_of_kill())
        assert await broker.find_reported() == NO_LOG
        assert "t-0 lacks records" in broker.reports[0]

    run_scenario(scenario)


def test_an_older_copy_of_a_disk_is_recognized_by_its_incarnation() -> None:
    async def scenario(cluster: Cluster) -> None:
        broker, disk = RestartingBroker(cluster), SimulatedDisk("/d")
        harness = await broker.start(disk)
        harness.append(await broker.create_topic(harness), 2)
        copy = disk.survivor_of_kill()
        await broker.start(disk.survivor_of_kill())
        log = (await broker.start(copy, registers=False)).logs[TP]
        expected = LogPosition(log.latest_epoch, log.log_end_offset)
        assert await broker.find_reported() == expected
        await broker.start(copy.survivor_of_kill())
        assert await broker.find_reported() == expected
        assert "an older copy" in broker.reports[0]

    run_scenario(scenario)


def test_a_folder_without_its_segments_is_reported_as_no_log() -> None:
    """It must not be elected before replicas that have records."""

    async def scenario(cluster: Cluster) -> None:
        broker, disk = RestartingBroker(cluster), SimulatedDisk("/d")
        harness = await broker.start(disk)
        harness.append(await broker.create_topic(harness), 2)
        harness.run_jobs("checkpoint")
        disk = disk.survivor_of_kill()
        for path in [path for path in disk.files() if path.endswith(".log")]:
            disk.remove(path)
        for _ in range(2):  # also after another kill before it registers
            await broker.start(disk, registers=False)
            assert await broker.find_reported() == NO_LOG
            disk = disk.survivor_of_kill()

    run_scenario(scenario)


def test_a_young_folder_without_its_segments_is_reported_as_if_it_were_gone() -> None:
    """No checkpoint names it yet, so that only a replica with records may lead before it."""

    async def scenario(cluster: Cluster) -> None:
        broker, disk = RestartingBroker(cluster), SimulatedDisk("/d")
        harness = await broker.start(disk)
        harness.append(await broker.create_topic(harness), 2)
        disk = disk.survivor_of_kill()
        for path in [path for path in disk.files() if path.startswith("/d/t-0/")]:
            disk.remove(path)
        for _ in range(2):  # also after another kill before it registers
            await broker.start(disk, registers=False)
            assert await broker.find_reported() == NEVER_CREATED
            disk = disk.survivor_of_kill()

    run_scenario(scenario)


def test_a_disk_that_was_remounted_is_reported_with_its_log() -> None:
    """The broker has registered without it, so it is outdated, but not empty."""

    async def scenario(cluster: Cluster) -> None:
        broker, disk = RestartingBroker(cluster), SimulatedDisk("/d")
        harness = await broker.start(disk)
        log = await broker.create_topic(harness)
        harness.append(log, 2)
        await broker.start(SimulatedDisk("/d"))
        assert await broker.find_reported() == NO_LOG
        await broker.start(disk.survivor_of_kill())
        assert await broker.find_reported() == LogPosition(log.latest_epoch, log.log_end_offset)

    run_scenario(scenario)


def test_a_log_whose_creation_was_interrupted_is_reported_as_never_created() -> None:
    """Until the broker restarts with another disk."""

    async def scenario(cluster: Cluster) -> None:
        broker, disk = RestartingBroker(cluster), SimulatedDisk("/d")
        await broker.start(disk)
        await broker.create_topic(
            EngineHarness()
        )  # on another disk, as if this broker was killed before
        await broker.start(disk.survivor_of_kill())
        assert await broker.find_reported() == NEVER_CREATED
        await broker.start(SimulatedDisk("/d"))
        assert await broker.find_reported() == NO_LOG

    run_scenario(scenario)


def test_a_new_log_directory_does_not_make_others_suspect() -> None:
    async def scenario(cluster: Cluster) -> None:
        broker, disk = RestartingBroker(cluster), SimulatedDisk("/d")
        await broker.create_topic(await broker.start(disk))
        broker.directories = ("/d", "/e")
        await broker.start(disk.survivor_of_kill())
        assert await broker.find_reported() is None

    run_scenario(scenario)


def test_a_replica_that_the_controller_removed_from_the_report_is_not_reported_again() -> None:
    async def scenario(cluster: Cluster) -> None:
        broker = RestartingBroker(cluster)
        log = await broker.create_topic(await broker.start(SimulatedDisk("/d")))
        disk = SimulatedDisk("/d")
        harness = await broker.start(disk)
        assert await broker.find_reported() == NO_LOG
        await write_report(broker.store.session, ME, lambda stored: replace(stored, replicas={}))
        harness.create(TP, topic_id=log.topic_id.int)
        await broker.start(disk.survivor_of_kill())
        assert await broker.find_reported() is None

    run_scenario(scenario)


def test_a_directory_that_cannot_be_written_does_not_stop_a_registration() -> None:
    async def scenario(cluster: Cluster) -> None:
        broker, disk = RestartingBroker(cluster), SimulatedDisk("/d")
        write_owner(disk, ["/d"], broker_id=ME, cluster_id="c")
        incarnation = broker.make_incarnation(disk)
        disk.fail_path("/d", EIO)
        await incarnation.record(broker.store.session)
        assert "/d cannot be written" in broker.reports[0]
        assert "repair or replace the disk" in broker.reports[0]

    run_scenario(scenario)


def test_a_full_disk_makes_no_log_suspect_at_the_next_start() -> None:
    """The store keeps the incarnation that all directories have."""

    async def scenario(cluster: Cluster) -> None:
        broker, disk = RestartingBroker(cluster, ("/d", "/e")), SimulatedDisk("/d", "/e")
        await broker.create_topic(await broker.start(disk))
        incarnation = broker.make_incarnation(disk)
        disk.fail_path("/e/meta.properties", ENOSPC)
        await incarnation.record(broker.store.session)
        assert read_incarnations(disk, ["/d", "/e"]) == {"/d": 2, "/e": 1}
        assert (await read_report(broker.store.session, ME)).incarnation == 1
        (message,) = broker.reports
        assert message.startswith("/e cannot be written")
        assert message.endswith("make room on that disk")
        disk = disk.survivor_of_kill()
        await broker.start(disk)
        assert await broker.find_reported() is None
        assert read_incarnations(disk, ["/d", "/e"]) == {"/d": 3, "/e": 3}
        assert (await read_report(broker.store.session, ME)).incarnation == 3

    run_scenario(scenario)


def test_a_damaged_meta_properties_does_not_stop_a_registration() -> None:
    async def scenario(cluster: Cluster) -> None:
        broker, disk = RestartingBroker(cluster), SimulatedDisk("/d")
        await broker.start(disk)
        incarnation = broker.make_incarnation(disk)
        disk.overwrite("/d/meta.properties", 0, b"version=x\n")
        await incarnation.record(broker.store.session)
        (message,) = broker.reports
        assert message.startswith("/d/meta.properties, line ")
        assert "correct the file" in message
        assert (await read_report(broker.store.session, ME)).incarnation == 1

    run_scenario(scenario)


def test_a_damaged_report_does_not_stop_a_running_broker_and_is_not_changed() -> None:
    async def scenario(cluster: Cluster) -> None:
        broker, disk = RestartingBroker(cluster), SimulatedDisk("/d")
        await broker.start(disk)
        incarnation, session = broker.make_incarnation(disk), broker.store.session
        await session.set(report_path(ME), b"{", version=-1)
        await incarnation.record(session)
        (message,) = broker.reports
        assert message.startswith(f"{report_path(ME)} cannot be read")
        assert "the controller ignores this broker" in message
        assert (await session.get(report_path(ME))).data == b"{"
        assert read_incarnations(disk, ["/d"]) == {"/d": 1}

    run_scenario(scenario)


def test_a_single_broker_logs_what_it_has_lost() -> None:
    async def scenario(cluster: Cluster) -> None:
        broker, disk = RestartingBroker(cluster), SimulatedDisk("/d")
        harness = await broker.start(disk)
        harness.append(await broker.create_topic(harness))
        harness.engine.close()
        for path in [path for path in disk.files() if path.startswith("/d/t-0/")]:
            disk.remove(path)
        disk.remove_directory("/d/t-0")
        again = EngineHarness(disk.copy())
        said: list[str] = []
        recovered = RecoveredLogs(again.engine, again.logs)
        await report_lost(broker.store, ME, recovered, message_logger(said.append))
        (message,) = said
        assert message.startswith("t-0 lacks records: it is assigned to this broker, which has")
        assert message.endswith("there is no other replica: it is served with what is left")

    run_scenario(scenario)
