"""The part of `AsyncAdmin` for brokers, leaders, reassignments and log dirs."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from penstock.client.admin_arguments import PartitionsGiven, read_brokers, read_partition
from penstock.client.admin_operations import AdminOperations
from penstock.client.admin_values import ClusterDescription, LogDirDescription
from penstock.client.errors import RefusedByBroker
from penstock.client.item_results import settle
from penstock.client.reassignments import PartitionReassignment, ReassignmentResult
from penstock.model.admin import ElectionType
from penstock.model.cluster import BrokerId
from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicPartition

_ELECTIONS = {"preferred": ElectionType.PREFERRED, "unclean": ElectionType.UNCLEAN}


class ClusterOperations(AdminOperations):
    async def describe_cluster(self, *, timeout_s: float | None = None) -> ClusterDescription:
        """The cluster's id, its live brokers with address and rack, and the active controller."""
        return await self._connected().admin.describe_cluster(timeout_ms=self._ms(timeout_s))

    async def describe_log_dirs(
        self,
        brokers: Iterable[int] | None = None,
        *,
        partitions: PartitionsGiven | None = None,
        timeout_s: float | None = None,
    ) -> dict[int, list[LogDirDescription]]:
        """Log dirs of every broker, or of some, with the size of every replica there, or of some
        partitions."""
        timeout_ms = self._ms(timeout_s)
        wanted = None if partitions is None else await self._get_partitions(partitions, timeout_ms)
        described = await self._connected().admin.describe_log_dirs(
            brokers=None if brokers is None else [BrokerId(broker) for broker in brokers],
            partitions=wanted,
            timeout_ms=timeout_ms,
        )
        return {int(broker): directories for broker, directories in described.items()}

    async def elect_leaders(
        self,
        partitions: PartitionsGiven | None = None,
        *,
        election: Literal["preferred", "unclean"] = "preferred",
        timeout_s: float | None = None,
    ) -> dict[TopicPartition, bool]:
        """Give partitions their preferred leader; whether each leader was changed. None: all
        partitions whose leader is another one.

        election="unclean": where no in-sync replica is alive, elect any live one. Records that it
        lacks are lost, so name the partitions."""
        if election not in _ELECTIONS:
            raise ValueError(f"election {election!r} does not exist: use 'preferred' or 'unclean'")
        if partitions is None and election == "unclean":
            raise ValueError(
                "an unclean election loses records: name the partitions that it is for"
            )
        timeout_ms = self._ms(timeout_s)
        wanted = None if partitions is None else await self._get_partitions(partitions, timeout_ms)
        results = await self._connected().reassignments.elect_leaders(
            wanted, choice=_ELECTIONS[election], timeout_ms=timeout_ms
        )
        return settle({tp: _read_election(tp, result) for tp, result in results.items()})

    async def alter_reassignments(
        self,
        targets: Mapping[TopicPartition, Sequence[int] | None],
        *,
        timeout_s: float | None = None,
    ) -> None:
        """Start to move partitions to these brokers, the preferred leader first; None cancels an
        ongoing reassignment. `list_reassignments` shows those that are not finished."""
        wanted = {
            read_partition(tp): None if brokers is None else read_brokers(str(tp), brokers)
            for tp, brokers in targets.items()
        }
        timeout_ms = self._ms(timeout_s)
        await self._get_partitions(wanted, timeout_ms)
        results = await self._connected().reassignments.alter(wanted, timeout_ms=timeout_ms)
        settle({tp: _find_error(f"reassign {tp}", result) for tp, result in results.items()})

    async def cancel_reassignments(
        self, partitions: PartitionsGiven, *, timeout_s: float | None = None
    ) -> None:
        """Return to the replicas from before the reassignment."""
        wanted = await self._get_partitions(partitions, self._ms(timeout_s))
        await self.alter_reassignments(dict.fromkeys(wanted), timeout_s=timeout_s)

    async def list_reassignments(
        self, *, timeout_s: float | None = None
    ) -> dict[TopicPartition, PartitionReassignment]:
        """Ongoing reassignments: all replicas, those being added and those being removed."""
        return await self._connected().reassignments.list_ongoing(timeout_ms=self._ms(timeout_s))


def _read_election(tp: TopicPartition, result: ReassignmentResult) -> bool | RefusedByBroker:
    if result.code is ErrorCode.ELECTION_NOT_NEEDED:
        return False
    return _find_error(f"elect a leader of {tp}", result) or True


def _find_error(what: str, result: ReassignmentResult) -> RefusedByBroker | None:
    if result.code is ErrorCode.NONE:
        return None
    return RefusedByBroker(what, result.code, result.message)
