"""Reassigns replicas to brokers and triggers leader elections.

The controller does both, idempotently: a request whose result already holds changes nothing.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any, NamedTuple

from penstock.client.call import Call
from penstock.client.deadline import Deadline
from penstock.client.errors import RefusedByBroker
from penstock.client.metadata import read_error
from penstock.client.router import Router
from penstock.model.admin import ElectionType
from penstock.model.cluster import BrokerId
from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicPartition
from penstock.protocol.api_keys import ApiKey


class ReassignmentResult(NamedTuple):
    """Result for one partition; NONE: done, or in progress."""

    code: ErrorCode
    message: str | None


class PartitionReassignment(NamedTuple):
    """An ongoing reassignment of one partition."""

    replicas: tuple[BrokerId, ...]  # old and new ones together
    adding: tuple[BrokerId, ...]
    removing: tuple[BrokerId, ...]


class ReassignmentClient:
    """Every operation takes `timeout_ms`, the time for all its attempts together."""

    def __init__(self, router: Router) -> None:
        self._router = router

    async def elect_leaders(
        self,
        partitions: Iterable[TopicPartition] | None,
        *,
        choice: ElectionType = ElectionType.PREFERRED,
        timeout_ms: int | None = None,
    ) -> dict[TopicPartition, ReassignmentResult]:
        """Elect leaders of these partitions, or of all (None). ELECTION_NOT_NEEDED is returned for
        a partition whose leader is right already; with None, such partitions are left out."""
        topics = None if partitions is None else _by_topic(partitions)
        fields = {
            "election_type": choice,
            "topic_partitions": topics
            and [{"topic": name, "partitions": numbers} for name, numbers in topics.items()],
        }
        answer = await self._ask("elect leaders", ApiKey.ELECT_LEADERS, 3, fields, timeout_ms)
        return {
            TopicPartition(topic.topic, result.partition_id): _outcome(result)
            for topic in answer.replica_election_results
            for result in topic.partition_result
        }

    async def alter(
        self,
        targets: Mapping[TopicPartition, Sequence[int] | None],
        *,
        timeout_ms: int | None = None,
    ) -> dict[TopicPartition, ReassignmentResult]:
        """Reassign partitions to these brokers, the preferred leader first; None cancels an ongoing
        reassignment."""
        topics = [
            {
                "name": name,
                "partitions": [
                    {"partition_index": number, "replicas": targets[TopicPartition(name, number)]}
                    for number in numbers
                ],
            }
            for name, numbers in _by_topic(targets).items()
        ]
        key = ApiKey.ALTER_PARTITION_REASSIGNMENTS
        fields = {"topics": topics, "allow_replication_factor_change": True}
        answer = await self._ask("move partitions", key, 2, fields, timeout_ms)
        return {
            TopicPartition(topic.name, partition.partition_index): _outcome(partition)
            for topic in answer.responses
            for partition in topic.partitions
        }

    async def list_ongoing(
        self, *, timeout_ms: int | None = None
    ) -> dict[TopicPartition, PartitionReassignment]:
        key = ApiKey.LIST_PARTITION_REASSIGNMENTS
        answer = await self._ask("list moves", key, 1, {"topics": None}, timeout_ms)
        return {
            TopicPartition(topic.name, partition.partition_index): PartitionReassignment(
                partition.replicas, partition.adding_replicas, partition.removing_replicas
            )
            for topic in answer.topics
            for partition in topic.partitions
        }

    async def _ask(
        self,
        what: str,
        key: ApiKey,
        versions: int,
        fields: Mapping[str, Any],
        timeout_ms: int | None,
    ) -> Any:
        deadline = self._router.deadline(timeout_ms)

        async def attempt() -> Any:
            call = Call(key, range(versions), {**fields, **_timeout(deadline)})
            answer = await self._router.ask_controller(call, deadline)
            code = read_error(answer.error_code)
            if code:
                raise RefusedByBroker(what, code, getattr(answer, "error_message", None))
            return answer

        return await self._router.persist(what, deadline, attempt)


def _timeout(deadline: Deadline) -> Mapping[str, timedelta]:
    return {"timeout": timedelta(milliseconds=deadline.left_for_broker_ms)}


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for tp in partitions:
        topics.setdefault(tp.topic, []).append(tp.partition)
    return topics


def _outcome(result: Any) -> ReassignmentResult:
    return ReassignmentResult(read_error(result.error_code), result.error_message)
