"""Which broker and cluster a log directory belongs to."""

import pytest

from penstock.server.meta_properties import (
    DirectoryOwner,
    WrongEngine,
    WrongOwner,
    check_engine,
    check_owner,
    read_owner,
    write_owner,
)
from penstock.storage.partition_metadata import (
    MetaProperties,
    read_meta_properties,
    write_meta_properties,
)
from penstock.testing.simulated_disk import SimulatedDisk

CLUSTER = "cluster-of-twenty-two--"


def make_disk(*directories: str) -> SimulatedDisk:
    disk = SimulatedDisk()
    for directory in directories:
        disk.make_directory(directory)
    return disk


def test_a_new_directory_has_no_owner_and_gets_one() -> None:
    disk = make_disk("/data")
    assert read_owner(disk, ["/data"]) == DirectoryOwner(broker_id=None, cluster_id=None)
    write_owner(disk, ["/data"], broker_id=7, cluster_id=CLUSTER)
    assert read_owner(disk, ["/data"]) == DirectoryOwner(broker_id=7, cluster_id=CLUSTER)


def test_writing_again_keeps_the_directory_id() -> None:
    disk = make_disk("/data")
    write_owner(disk, ["/data"], broker_id=7, cluster_id=CLUSTER)
    first = read_meta_properties(disk, "/data")
    write_owner(disk, ["/data"], broker_id=7, cluster_id=CLUSTER)
    assert read_meta_properties(disk, "/data") == first


@pytest.mark.parametrize(
    ("broker_id", "cluster_id", "expected"),
    [
        (8, CLUSTER, "belongs to broker 7, not 8; set broker.id=7"),
        (7, "another", f"belongs to cluster {CLUSTER}, this is another"),
    ],
)
def test_a_directory_of_another_owner_is_rejected(
    broker_id: int, cluster_id: str, expected: str
) -> None:
    owner = DirectoryOwner(broker_id=7, cluster_id=CLUSTER)
    with pytest.raises(WrongOwner, match=expected):
        check_owner(owner, broker_id=broker_id, cluster_id=cluster_id, directory="/data")


def test_directories_of_two_brokers_are_rejected() -> None:
    disk = make_disk("/a", "/b")
    write_meta_properties(disk, "/a", MetaProperties(node_id=1))
    write_meta_properties(disk, "/b", MetaProperties(node_id=2))
    with pytest.raises(WrongOwner, match=r"more than one broker: 1 \(/a\), 2 \(/b\)"):
        read_owner(disk, ["/a", "/b"])


def test_a_directory_keeps_the_engine_that_wrote_it() -> None:
    disk = make_disk("/data", "/new")
    write_owner(disk, ["/data"], broker_id=7, cluster_id=CLUSTER, engine="commitlog")
    check_engine(disk, ["/data", "/new"], "commitlog")
    with pytest.raises(WrongEngine, match=r"/data was written with storage\.engine=commitlog"):
        check_engine(disk, ["/new", "/data"], "segmented")


def test_a_directory_that_names_no_engine_is_segmented() -> None:
    disk = make_disk("/data", "/unnamed", "/unnamed/orders-0")
    write_owner(disk, ["/data"], broker_id=7, cluster_id=CLUSTER)
    for directory in ("/data", "/unnamed"):
        check_engine(disk, [directory], "segmented")
        with pytest.raises(WrongEngine, match=r"storage\.engine=segmented"):
            check_engine(disk, [directory], "commitlog")
