"""Reads and writes meta.properties; rejects a log dir that belongs to another broker or cluster."""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple
from uuid import uuid4

from penstock.io.disk import Disk
from penstock.storage.log_directory import parse_folder_name
from penstock.storage.partition_metadata import (
    MetaProperties,
    read_meta_properties,
    write_meta_properties,
)

SEGMENTED = "segmented"


class WrongOwner(Exception):
    """The log directory belongs to another broker or cluster."""


class DirectoryOwner(NamedTuple):
    broker_id: int | None  # None: no directory names one
    cluster_id: str | None


def read_owner(disk: Disk, directories: Sequence[str]) -> DirectoryOwner:
    """The owner that all directories agree on; WrongOwner if they name different brokers or
    clusters."""
    broker_ids: dict[int, str] = {}
    cluster_ids: dict[str, str] = {}
    for directory in directories:
        stored = read_meta_properties(disk, directory)
        if stored is not None and stored.node_id is not None:
            broker_ids.setdefault(stored.node_id, directory)
        if stored is not None and stored.cluster_id is not None:
            cluster_ids.setdefault(stored.cluster_id, directory)
    for kind, owners in (("broker", broker_ids), ("cluster", cluster_ids)):
        if len(owners) > 1:
            listed = ", ".join(f"{owner} ({directory})" for owner, directory in owners.items())
            raise WrongOwner(
                f"the data directories belong to more than one {kind}: {listed}; give each "
                f"{kind} its own log.dirs"
            )
    return DirectoryOwner(
        broker_id=next(iter(broker_ids), None), cluster_id=next(iter(cluster_ids), None)
    )


def check_owner(owner: DirectoryOwner, *, broker_id: int, cluster_id: str, directory: str) -> None:
    if owner.broker_id not in (None, broker_id):
        raise WrongOwner(
            f"{directory} belongs to broker {owner.broker_id}, not {broker_id}; set "
            f"broker.id={owner.broker_id}, or use another directory"
        )
    if owner.cluster_id not in (None, cluster_id):
        raise WrongOwner(
            f"{directory} belongs to cluster {owner.cluster_id}, this is {cluster_id}; use "
            f"another directory, or connect to the cluster that it belongs to"
        )


class WrongEngine(Exception):
    """The log directory was written by another storage engine."""


def check_engine(disk: Disk, directories: Sequence[str], engine: str) -> None:
    """WrongEngine if a directory holds partitions in the layout of another one."""
    for directory in directories:
        stored = read_meta_properties(disk, directory)
        used = SEGMENTED if stored is None or stored.engine is None else stored.engine
        if stored is None and not _has_logs(disk, directory):
            continue
        if used != engine:
            raise WrongEngine(
                f"log directory {directory} was written with storage.engine={used}, but the "
                f"broker is set to {engine}; set storage.engine={used}, or convert it: "
                f"penstock log convert {directory} --to {engine}"
            )


def _has_logs(disk: Disk, directory: str) -> bool:
    """Whether there are partitions' folders without the file that says whose they are."""
    entries = disk.list(directory)
    return any(entry.is_directory and parse_folder_name(entry.name) for entry in entries)


def write_owner(
    disk: Disk,
    directories: Sequence[str],
    *,
    broker_id: int,
    cluster_id: str,
    engine: str = SEGMENTED,
) -> None:
    """Write the file where it is missing or incomplete; a directory keeps its own id."""
    for directory in directories:
        stored = read_meta_properties(disk, directory)
        if stored is None or stored.node_id is None or stored.cluster_id is None:
            complete = replace(
                stored or MetaProperties(directory_id=uuid4()),
                node_id=broker_id,
                cluster_id=cluster_id,
                engine=None if engine == SEGMENTED else engine,
            )
            write_meta_properties(disk, directory, complete)


def read_incarnations(disk: Disk, directories: Sequence[str]) -> dict[str, int]:
    """By directory: the incarnation of the last registration that it took part in; 0 if none."""
    stored = {directory: read_meta_properties(disk, directory) for directory in directories}
    return {
        directory: (properties.incarnation if properties else None) or 0
        for directory, properties in stored.items()
    }


def write_incarnation(disk: Disk, directory: str, incarnation: int) -> None:
    """Durably; OSError if the directory cannot be written."""
    stored = read_meta_properties(disk, directory)
    if stored is not None:
        write_meta_properties(disk, directory, replace(stored, incarnation=incarnation))
