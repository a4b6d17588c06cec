"""The directory of a local cluster: one cluster at a time, and what a failed start removes."""

from pathlib import Path

import pytest

from penstock.server.cluster_directory import ClusterDirectory, DirectoryInUse


def start_in(path: Path) -> ClusterDirectory:
    """As far as a start comes of which a broker fails."""
    directory = ClusterDirectory(path)
    directory.open([path / "zookeeper1", path / "broker1", path / "broker1.log", path / "broker2"])
    (path / "zookeeper1" / "data").mkdir(parents=True)
    (path / "broker1").mkdir()
    (path / "broker1" / "meta.properties").write_bytes(b"x")
    (path / "broker1.log").write_bytes(b"x")
    return directory


def test_a_failed_start_removes_what_it_has_made(tmp_path: Path) -> None:
    reports: list[str] = []
    directory = start_in(tmp_path / "a" / "b")
    directory.remove_new(reports.append)
    directory.close()
    assert (list(tmp_path.iterdir()), reports) == ([], [])


def test_a_file_that_is_not_of_the_cluster_keeps_its_directory(tmp_path: Path) -> None:
    directory = start_in(tmp_path / "data")
    (tmp_path / "data" / "notes.txt").write_bytes(b"x")
    directory.remove_new(lambda message: None)
    directory.close()
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["notes.txt"]


def test_partitions_that_a_client_has_created_meanwhile_are_kept(tmp_path: Path) -> None:
    reports: list[str] = []
    directory = start_in(tmp_path)
    segment = tmp_path / "broker1" / "orders-0" / f"{0:020}.log"
    segment.parent.mkdir()
    segment.write_bytes(b"records")
    directory.remove_new(reports.append)
    directory.close()
    assert segment.read_bytes() == b"records"
    assert (tmp_path / "zookeeper1").is_dir(), "the brokers' metadata is there"
    assert [str(tmp_path) in report for report in reports] == [True]


def test_nothing_is_removed_once_the_cluster_has_served(tmp_path: Path) -> None:
    directory = start_in(tmp_path)
    directory.keep()
    directory.remove_new(lambda message: None)
    directory.close()
    assert (tmp_path / "broker1" / "meta.properties").exists()


def test_a_second_cluster_in_the_same_directory_is_refused(tmp_path: Path) -> None:
    first = start_in(tmp_path)
    second = ClusterDirectory(tmp_path)
    with pytest.raises(DirectoryInUse, match=str(tmp_path)):
        second.open([tmp_path / "broker3"])
    second.remove_new(lambda message: None)
    assert (tmp_path / "broker1").is_dir()
    first.close()
    second.open([])
    second.close()
