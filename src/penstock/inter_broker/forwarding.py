"""Administration at a broker that may not be the controller.

CreateTopics and config changes are forwarded to the controller, because brokers create internal
topics and clients send config changes to any broker. Everything else goes to the broker's own
controller, which rejects it with NOT_CONTROLLER if another one is active; clients then retry there.
"""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

from penstock.client.call import Call
from penstock.controller.event_queue import DECISION_MS
from penstock.controller.interface import (
    Administration,
    ApiError,
    ConfigResourceChange,
    CreatableTopic,
    NewPartitions,
    Reassignment,
)
from penstock.inter_broker.controller_client import ControllerClient
from penstock.inter_broker.messages.forwarded_configs import (
    FORWARDED_CONFIGS_VERSIONS,
    ForwardedConfigsRequest,
    encode_forwarded_configs,
    read_results,
)
from penstock.model.admin import ElectionType
from penstock.model.cluster import NO_BROKER, PartitionState, TopicState
from penstock.model.errors import ErrorCode, Refusal, known_error
from penstock.model.ids import NO_LEADER_EPOCH, TopicId, TopicPartition
from penstock.protocol.api_keys import ApiKey
from penstock.protocol.private_keys import PrivateKey

_NO_ID = UUID(int=0)  # nothing was created: validate_only
CONFIGS_TIMEOUT_MS = 35_000  # longer than the controller takes to give up
NETWORK_MS = 1_000  # on top of the controller's own timeout


class ForwardingAdministration:
    """Implements Administration."""

    def __init__(self, controller: ControllerClient, *, local: Administration) -> None:
        self._controller = controller
        self._local = local

    async def create_topics(
        self, topics: Sequence[CreatableTopic], *, validate_only: bool, timeout_ms: int
    ) -> list[TopicState | ApiError]:
        if self._controller.find_other() is None or not topics:
            return await self._local.create_topics(
                topics, validate_only=validate_only, timeout_ms=timeout_ms
            )
        call = _create_call(topics, validate_only, timeout_ms)
        try:
            response = await self._controller.call(
                call, timeout_ms=max(timeout_ms, DECISION_MS) + NETWORK_MS
            )
        except ConnectionError as error:
            return [_unreachable(error)] * len(topics)
        return _read_created(response, topics)

    async def alter_configs(
        self, changes: Sequence[ConfigResourceChange], *, validate_only: bool
    ) -> list[ApiError | None]:
        if self._controller.find_other() is None:
            return await self._local.alter_configs(changes, validate_only=validate_only)
        body = encode_forwarded_configs(ForwardedConfigsRequest(tuple(changes), validate_only))
        try:
            response = await self._controller.call_private(
                PrivateKey.FORWARDED_CONFIGS,
                FORWARDED_CONFIGS_VERSIONS,
                body,
                timeout_ms=CONFIGS_TIMEOUT_MS,
            )
        except ConnectionError as error:
            return [_unreachable(error)] * len(changes)
        except Refusal as refusal:
            return [ApiError(refusal.code, refusal.message or refusal.code.message)] * len(changes)
        return read_results(response, changes)

    async def delete_topics(
        self, names: Sequence[str], *, timeout_ms: int
    ) -> list[ApiError | None]:
        return await self._local.delete_topics(names, timeout_ms=timeout_ms)

    async def create_partitions(
        self, additions: Sequence[NewPartitions], *, validate_only: bool, timeout_ms: int
    ) -> list[ApiError | None]:
        return await self._local.create_partitions(
            additions, validate_only=validate_only, timeout_ms=timeout_ms
        )

    async def elect_leaders(
        self,
        choice: ElectionType,
        partitions: Sequence[TopicPartition] | None,
        *,
        timeout_ms: int,
    ) -> dict[TopicPartition, ApiError | None] | ApiError:
        return await self._local.elect_leaders(choice, partitions, timeout_ms=timeout_ms)

    async def alter_reassignments(
        self,
        reassignments: Sequence[Reassignment],
        *,
        allow_replication_factor_change: bool,
        timeout_ms: int,
    ) -> list[ApiError | None]:
        return await self._local.alter_reassignments(
            reassignments,
            allow_replication_factor_change=allow_replication_factor_change,
            timeout_ms=timeout_ms,
        )

    async def list_reassignments(self) -> Mapping[TopicPartition, PartitionState] | ApiError:
        return await self._local.list_reassignments()


def _unreachable(error: ConnectionError) -> ApiError:
    return ApiError(
        ErrorCode.NOT_CONTROLLER, f"the controller is unreachable ({error}); try again shortly"
    )


def _create_call(topics: Sequence[CreatableTopic], validate_only: bool, timeout_ms: int) -> Call:
    fields = {
        "topics": [_new_topic_fields(topic) for topic in topics],
        "timeout": timedelta(milliseconds=timeout_ms),
        "validate_only": validate_only,
    }
    return Call(ApiKey.CREATE_TOPICS, range(7, 8), fields)


def _new_topic_fields(topic: CreatableTopic) -> dict[str, Any]:
    assignments = [
        {"partition_index": partition, "broker_ids": brokers}
        for partition, brokers in topic.assignment.items()
    ]
    return {
        "name": topic.name,
        "num_partitions": topic.partitions,
        "replication_factor": topic.replication_factor,
        "assignments": assignments,
        "configs": [{"name": name, "value": value} for name, value in topic.configs.items()],
    }


def _read_created(response: Any, topics: Sequence[CreatableTopic]) -> list[TopicState | ApiError]:
    results = {result.name: result for result in response.topics}
    return [_read_topic(results.get(topic.name), topic) for topic in topics]


def _read_topic(result: Any, topic: CreatableTopic) -> TopicState | ApiError:
    if result is None:
        return ApiError(
            ErrorCode.UNKNOWN_SERVER_ERROR,
            f"the controller did not return a result for {topic.name!r}",
        )
    code = known_error(int(result.error_code))
    if code is not ErrorCode.NONE:
        return ApiError(code, result.error_message or code.message)
    # Leaders arrive with UpdateMetadata, as for every topic; the response has only the counts.
    replicas = (NO_BROKER,) * result.replication_factor
    partition = PartitionState(NO_BROKER, NO_LEADER_EPOCH, replicas, replicas)
    return TopicState(
        name=topic.name,
        topic_id=TopicId(result.topic_id or _NO_ID),
        partitions=(partition,) * result.num_partitions,
        configs={name: value for name, value in topic.configs.items() if value is not None},
    )
