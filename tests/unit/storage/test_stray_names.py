"""Unknown names in a data directory are reported, never read and never removed."""

import pytest
from tests.unit.storage.crashing_logs import FOLDER, NOW_MS, Broker
from tests.unit.storage.engine.cases import TOPIC_ID

from penstock.config.log_config import LogConfig
from penstock.io.disk import CREATE
from penstock.model.ids import InvalidTopicName, TopicPartition
from penstock.storage.engine import Engine
from penstock.testing.simulated_disk import SimulatedDisk

STRAYS = ["notes.log", "5.log", f"{'9' * 20}.log", f"{'²' * 20}.log", "notes.index", "5.timeindex"]
DELETED = f"t-1.{'0123456789abcdef' * 2}-delete"


def make_file(disk: SimulatedDisk, path: str, content: bytes = b"mine") -> None:
    descriptor = disk.open(path, CREATE)
    disk.write(descriptor, content)
    disk.close(descriptor)


@pytest.fixture(params=["clean", "crash"])
def stopped(request: pytest.FixtureRequest) -> SimulatedDisk:
    """Make a log of four batches, after a clean shutdown or a crash."""
    broker = Broker(SimulatedDisk("/d"))
    for _ in range(4):
        broker.append()
    if request.param == "clean":
        broker.engine.close()
    return broker.disk.survivor_of_kill()


@pytest.mark.parametrize("name", STRAYS)
def test_files_that_only_look_like_segments_are_ignored(stopped: SimulatedDisk, name: str) -> None:
    make_file(stopped, f"{FOLDER}/{name}")
    later = Broker(stopped)
    assert later.offsets() == [0, 1, 2, 3]
    assert stopped.files()[f"{FOLDER}/{name}"] == b"mine"
    assert any(name in report and "ignoring it" in report for report in later.reports)


@pytest.mark.parametrize("name", ["notes.tmp", "notes.log.deleted", "5.log.cleaned"])
def test_files_that_only_end_like_leftovers_are_ignored(stopped: SimulatedDisk, name: str) -> None:
    make_file(stopped, f"{FOLDER}/{name}")
    assert Broker(stopped).offsets() == [0, 1, 2, 3]
    assert stopped.files()[f"{FOLDER}/{name}"] == b"mine"


@pytest.mark.parametrize(
    "name",
    [
        f"{7:020d}.log.deleted",
        f"{7:020d}.snapshot.deleted",
        f"{7:020d}.timeindex.cleaned",
        "leader-epoch-checkpoint.tmp",
        "partition.metadata.tmp",
    ],
)
def test_leftovers_of_interrupted_steps_are_removed(stopped: SimulatedDisk, name: str) -> None:
    make_file(stopped, f"{FOLDER}/{name}")
    assert Broker(stopped).offsets() == [0, 1, 2, 3]
    assert f"{FOLDER}/{name}" not in stopped.files()


@pytest.mark.parametrize("name", ["my-delete", "x-0.abc-delete", "x-0.-delete"])
def test_folders_that_only_end_like_deleted_partitions_are_ignored(
    stopped: SimulatedDisk, name: str
) -> None:
    stopped.make_directory(f"/d/{name}")
    make_file(stopped, f"/d/{name}/important.txt")
    later = Broker(stopped)
    assert later.offsets() == [0, 1, 2, 3]
    assert f"/d/{name}/important.txt" in stopped.files()
    assert f"/d/{name} is not a partition's folder; ignoring it" in later.reports


@pytest.mark.parametrize("partition", [0, 2**31 - 1])
def test_folders_of_deleted_partitions_are_removed(stopped: SimulatedDisk, partition: int) -> None:
    name = DELETED.replace("t-1", f"t-{partition}")
    stopped.make_directory(f"/d/{name}")
    make_file(stopped, f"/d/{name}/{0:020d}.log")
    assert Broker(stopped).offsets() == [0, 1, 2, 3]
    assert not stopped.exists(f"/d/{name}")


def test_a_deleted_partition_that_cannot_be_removed_affects_nothing_else(
    stopped: SimulatedDisk,
) -> None:
    stopped.make_directory(f"/d/{DELETED}")
    stopped.make_directory(f"/d/{DELETED}/sub")
    later = Broker(stopped)
    assert later.offsets() == [0, 1, 2, 3]
    assert later.engine.statistics().failed_directories == {}
    assert any(f"/d/{DELETED}" in report for report in later.reports)


def test_the_metadata_log_of_kafkas_controllers_is_ignored_without_a_report(
    stopped: SimulatedDisk,
) -> None:
    log = f"/d/__cluster_metadata-0/{0:020d}.log"
    stopped.make_directory("/d/__cluster_metadata-0")
    make_file(stopped, log, b"no batch of ours")
    later = Broker(stopped)
    assert stopped.files()[log] == b"no batch of ours"
    assert not any("__cluster_metadata" in report for report in later.reports)
    with pytest.raises(InvalidTopicName):
        make(later.engine, "__cluster_metadata", 1)


def test_a_folder_with_an_invalid_partition_number_is_ignored(stopped: SimulatedDisk) -> None:
    stopped.make_directory(f"/d/t-{2**31}")
    later = Broker(stopped)
    assert f"/d/t-{2**31} is not a partition's folder; ignoring it" in later.reports


def make(engine: Engine, topic: str, partition: int) -> None:
    engine.create(TopicPartition(topic, partition), TOPIC_ID, LogConfig(), NOW_MS)
