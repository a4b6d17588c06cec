"""DescribeLogDirs over real directories, one of which has failed."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.unit.apis.admin.harness import OWN_ID, AdminApiHarness, rows, topic_state

from penstock.apis.admin.describe_log_dirs import API
from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicPartition
from penstock.security.authorizer import CLUSTER_NAME, AclOperation, ResourceType

LAST = API.versions[-1]


@pytest.fixture
def harness(harness: AdminApiHarness) -> AdminApiHarness:
    harness.serve(topic_state("orders", replicas=[(OWN_ID,), (OWN_ID,)]))
    harness.serve(topic_state("events"))
    harness.write(TopicPartition("orders", 1), 10, 5)
    return harness


def returned(result: Any) -> list[tuple[str, int]]:
    return [
        (topic.name, partition.partition_index)
        for topic in result.topics
        for partition in topic.partitions
    ]


@pytest.mark.parametrize("version", API.versions)
def test_every_partition_is_returned_with_its_size(harness: AdminApiHarness, version: int) -> None:
    (result,) = harness.ask(API, version, topics=None).results
    (path,) = harness.log_dirs
    assert (result.error_code, result.log_dir) == (ErrorCode.NONE, str(path))
    assert returned(result) == [("events", 0), ("orders", 0), ("orders", 1)]
    stored = (path / "orders-1" / "00000000000000000000.log").stat().st_size
    (orders,) = (topic for topic in result.topics if topic.name == "orders")
    assert rows(orders.partitions, "partition_size", "offset_lag", "is_future_key") == [
        (0, 0, False),
        (stored, 0, False),
    ]
    assert stored > 0


def test_the_volume_is_returned_in_version_4(harness: AdminApiHarness) -> None:
    (result,) = harness.ask(API, 4, topics=None).results
    volume = os.statvfs(harness.log_dirs[0])
    assert result.total_bytes == volume.f_blocks * volume.f_frsize
    assert 0 < result.usable_bytes <= result.total_bytes


@pytest.mark.parametrize("version", API.versions)
def test_only_requested_partitions_are_returned(harness: AdminApiHarness, version: int) -> None:
    requested = [{"topic": "orders", "partitions": [1, 9]}, {"topic": "nowhere", "partitions": [0]}]
    (result,) = harness.ask(API, version, topics=requested).results
    assert returned(result) == [("orders", 1)]


def test_an_empty_list_returns_the_directories_alone(harness: AdminApiHarness) -> None:
    (result,) = harness.ask(API, LAST, topics=[]).results
    assert (result.error_code, result.topics) == (ErrorCode.NONE, ())


@pytest.mark.parametrize("version", API.versions)
def test_without_describe_nothing_is_returned(harness: AdminApiHarness, version: int) -> None:
    harness.acl.forbid(AclOperation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME)
    answer = harness.ask(API, version, topics=None)
    assert answer.results == ()
    if version >= 3:
        assert answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


class TestFailedDirectory:
    @pytest.fixture
    def harness(self, tmp_path: Path) -> Iterator[AdminApiHarness]:
        (tmp_path / "file").write_text("no directory")
        made = AdminApiHarness(log_dirs=(tmp_path / "good", tmp_path / "file"))
        made.serve(topic_state("orders"))
        yield made
        made.close()

    @pytest.mark.parametrize("version", API.versions)
    def test_a_failed_directory_has_an_error(self, harness: AdminApiHarness, version: int) -> None:
        good, bad = harness.ask(API, version, topics=None).results
        assert (good.error_code, returned(good)) == (ErrorCode.NONE, [("orders", 0)])
        assert (bad.error_code, bad.topics) == (ErrorCode.KAFKA_STORAGE_ERROR, ())
        assert [good.log_dir, bad.log_dir] == [str(path) for path in harness.log_dirs]


class TestTwoDirectories:
    @pytest.fixture
    def harness(self, tmp_path: Path) -> Iterator[AdminApiHarness]:
        made = AdminApiHarness(log_dirs=(tmp_path / "one", tmp_path / "two"))
        made.serve(topic_state("orders", replicas=[(OWN_ID,)] * 4))
        yield made
        made.close()

    def test_each_directory_has_its_own_logs(self, harness: AdminApiHarness) -> None:
        results = harness.ask(API, LAST, topics=None).results
        for path, result in zip(harness.log_dirs, results, strict=True):
            folders = sorted(item.name for item in path.glob("orders-*"))
            assert folders
            assert [f"{topic}-{number}" for topic, number in returned(result)] == folders
