"""Says whose a data directory is, and refuses another's: `meta.properties`, as Kafka writes it."""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import uuid4

from penstock.io.disk import Disk
from penstock.storage.partition_metadata import (
    MetaProperties,
    read_meta_properties,
    write_meta_properties,
)


class WrongOwner(Exception):
    """The directory belongs to another broker or cluster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectoryOwner:
    broker_id: int | None  # None: no directory says
    cluster_id: str | None


def read_owner(disk: Disk, directories: Sequence[str]) -> DirectoryOwner:
    """Whom the directories name; WrongOwner where they name several."""
    broker_ids: dict[int, str] = {}
    cluster_ids: dict[str, str] = {}
    for directory in directories:
        stamp = read_meta_properties(disk, directory)
        if stamp is not None and stamp.node_id is not None:
            broker_ids.setdefault(stamp.node_id, directory)
        if stamp is not None and stamp.cluster_id is not None:
            cluster_ids.setdefault(stamp.cluster_id, directory)
    for what, found in (("broker", broker_ids), ("cluster", cluster_ids)):
        if len(found) > 1:
            places = ", ".join(f"{value} ({directory})" for value, directory in found.items())
            raise WrongOwner(
                f"the data directories belong to more than one {what}: {places}; give each "
                f"{what} its own log.dirs"
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


def stamp(disk: Disk, directories: Sequence[str], *, broker_id: int, cluster_id: str) -> None:
    """Write it where it is missing or says less."""
    for directory in directories:
        found = read_meta_properties(disk, directory)
        if found is None or found.node_id is None or found.cluster_id is None:
            directory_id = uuid4() if found is None else found.directory_id
            write_meta_properties(
                disk,
                directory,
                MetaProperties(node_id=broker_id, cluster_id=cluster_id, directory_id=directory_id),
            )
