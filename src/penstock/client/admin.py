"""Administers topics, configs and log dirs of a cluster.

An operation on several items raises ItemsFailed if some of them failed, with the results of the
others; on a single item, that item's error. Requests that change something are retried only if the
broker did not start on them, because a lost response does not say what was done.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from types import MappingProxyType
from typing import Any

from penstock.client.address import Address
from penstock.client.admin_values import (
    AlterConfigOp,
    ClusterDescription,
    ConfigEntry,
    ConfigResource,
    ConfigSynonym,
    CreatedTopic,
    DescribedConfigSource,
    LogDirDescription,
    NewTopic,
    ReplicaSize,
)
from penstock.client.call import Call
from penstock.client.data_calls import group_by_topic
from penstock.client.deadline import Deadline
from penstock.client.errors import ClientError, Disconnected, RefusedByBroker, UnsupportedByBroker
from penstock.client.item_results import settle
from penstock.client.metadata import BrokerMetadata, read_error
from penstock.client.router import Router
from penstock.config.text_values import as_text
from penstock.model.admin import ConfigResourceType
from penstock.model.cluster import BrokerId
from penstock.model.errors import ErrorCode
from penstock.model.ids import Offset, TopicPartition
from penstock.protocol.api_keys import ApiKey

_CLUSTER_DEFAULT = _NOT_RETURNED = -1


class AdminClient:
    def __init__(self, router: Router) -> None:
        self._router = router

    async def create_topics(
        self,
        topics: Sequence[NewTopic],
        *,
        validate_only: bool = False,
        timeout_ms: int | None = None,
    ) -> dict[str, CreatedTopic]:
        fields = {"topics": [_new_topic(topic) for topic in topics], "validate_only": validate_only}
        # From version 4 on, -1 means the cluster's default.
        answer = await self._change(ApiKey.CREATE_TOPICS, range(4, 8), fields, timeout_ms)
        return settle(
            {
                topic.name: _find_error(f"create topic {topic.name!r}", topic) or _created(topic)
                for topic in answer.topics
            }
        )

    async def delete_topics(self, names: Sequence[str], *, timeout_ms: int | None = None) -> None:
        fields = {
            "topic_names": names,
            "topics": [{"name": name, "topic_id": None} for name in names],
        }
        answer = await self._change(ApiKey.DELETE_TOPICS, range(1, 7), fields, timeout_ms)
        settle(
            {
                response.name: _find_error(f"delete topic {response.name!r}", response)
                for response in answer.responses
            }
        )

    async def create_partitions(
        self,
        counts: Mapping[str, int],
        *,
        assignments: Mapping[str, Sequence[Sequence[int]]] = MappingProxyType({}),
        validate_only: bool = False,
        timeout_ms: int | None = None,
    ) -> None:
        """Increase each topic's partition count to the given total. `assignments`: the brokers of
        each new partition of a topic, the preferred leader first."""
        topics = [
            {
                "name": name,
                "count": count,
                "assignments": (
                    name in assignments
                    and [{"broker_ids": brokers} for brokers in assignments[name]]
                )
                or None,
            }
            for name, count in counts.items()
        ]
        fields = {"topics": topics, "validate_only": validate_only}
        answer = await self._change(ApiKey.CREATE_PARTITIONS, range(4), fields, timeout_ms)
        settle(
            {
                result.name: _find_error(f"add partitions to topic {result.name!r}", result)
                for result in answer.results
            }
        )

    async def describe_configs(
        self,
        resources: Sequence[ConfigResource],
        *,
        names: Sequence[str] | None = None,
        with_synonyms: bool = False,
        with_documentation: bool = False,
        timeout_ms: int | None = None,
    ) -> dict[ConfigResource, list[ConfigEntry]]:
        """Configs with their sources; `names` limits the result to these settings."""
        configs: dict[ConfigResource, list[ConfigEntry] | ClientError] = {}
        for broker_id, part in _by_broker(resources).items():
            fields = {
                "resources": [
                    _resource(resource) | {"configuration_keys": names} for resource in part
                ],
                "include_synonyms": with_synonyms,
                "include_documentation": with_documentation,
            }
            call = Call(ApiKey.DESCRIBE_CONFIGS, range(1, 5), fields)
            try:
                answer = await self._ask("describe configs", call, broker_id, timeout_ms)
            except ClientError as error:
                if len(part) == len(resources):
                    raise
                configs.update(dict.fromkeys(part, error))  # other brokers may answer
                continue
            for result in answer.results:
                resource = _read_resource(result)
                configs[resource] = _find_error(f"describe configs of {resource}", result) or [
                    _read_entry(entry) for entry in result.configs
                ]
        return settle(configs)

    async def incremental_alter_configs(
        self,
        changes: Mapping[ConfigResource, Sequence[AlterConfigOp]],
        *,
        validate_only: bool = False,
        timeout_ms: int | None = None,
    ) -> None:
        results: dict[ConfigResource, ClientError | None] = {}
        for broker_id, part in _by_broker(changes).items():
            fields = {
                "resources": [
                    _resource(resource) | {"configs": [_change(one) for one in changes[resource]]}
                    for resource in part
                ],
                "validate_only": validate_only,
            }
            try:
                answer = await self._change(
                    ApiKey.INCREMENTAL_ALTER_CONFIGS, range(2), fields, timeout_ms, broker_id
                )
            except ClientError as error:
                if len(part) == len(changes):
                    raise
                results.update(dict.fromkeys(part, error))  # other brokers may answer
                continue
            for response in answer.responses:
                resource = _read_resource(response)
                results[resource] = _find_error(f"alter configs of {resource}", response)
        settle(results)

    async def delete_records(
        self, before: Mapping[TopicPartition, Offset], *, timeout_ms: int | None = None
    ) -> dict[TopicPartition, Offset]:
        """Delete records before these offsets (-1: the high watermark). Returns the new log start
        offsets."""
        deadline = self._router.deadline(timeout_ms)

        async def ask(
            node: BrokerMetadata, part: Mapping[TopicPartition, Offset]
        ) -> Mapping[TopicPartition, Offset | ClientError]:
            call = _delete_records_call(part, deadline)
            return _read_deleted(await self._router.ask(node.address, call, deadline))

        return settle(
            await self._router.settle_with_leaders("delete records", before, ask, deadline)
        )

    async def describe_log_dirs(
        self,
        *,
        brokers: Iterable[BrokerId] | None = None,
        partitions: Iterable[TopicPartition] | None = None,
        timeout_ms: int | None = None,
    ) -> dict[BrokerId, list[LogDirDescription]]:
        """Log dirs of every broker, or of the given ones; `partitions` limits the replicas in the
        result."""
        topics = None if partitions is None else _group_numbers(partitions)
        call = Call(ApiKey.DESCRIBE_LOG_DIRS, range(1, 5), {"topics": topics})
        deadline = self._router.deadline(timeout_ms)
        if brokers is None:
            brokers = sorted((await self._router.get_current((), deadline)).brokers)

        async def describe(broker_id: BrokerId) -> list[LogDirDescription] | ClientError:
            try:
                answer = await self._ask("describe log dirs", call, broker_id, timeout_ms)
                _check(f"log dirs of broker {broker_id}", answer)
            except ClientError as error:
                return error
            return [_read_directory(result) for result in answer.results]

        listed = list(brokers)
        answers = await asyncio.gather(*(describe(broker_id) for broker_id in listed))
        return settle(dict(zip(listed, answers, strict=True)))

    async def describe_cluster(self, *, timeout_ms: int | None = None) -> ClusterDescription:
        call = Call(ApiKey.DESCRIBE_CLUSTER, range(2), {})
        try:
            answer = await self._ask("describe the cluster", call, None, timeout_ms)
        except UnsupportedByBroker:
            return await self._describe_by_metadata(timeout_ms)
        _check("describe the cluster", answer)
        nodes = [
            BrokerMetadata(broker.broker_id, Address(broker.host, broker.port), broker.rack)
            for broker in answer.brokers
        ]
        return ClusterDescription(
            cluster_id=answer.cluster_id,
            controller_id=answer.controller_id,
            brokers={node.id: node for node in nodes},
        )

    async def _describe_by_metadata(self, timeout_ms: int | None) -> ClusterDescription:
        metadata = await self._router.refresh((), self._router.deadline(timeout_ms))
        return ClusterDescription(
            cluster_id=metadata.cluster_id,
            controller_id=metadata.controller_id,
            brokers=metadata.brokers,
        )

    async def _ask(
        self, what: str, call: Call, broker_id: BrokerId | None, timeout_ms: int | None
    ) -> Any:
        """Send a read-only request, with retries."""
        deadline = self._router.deadline(timeout_ms)

        async def attempt() -> Any:
            if broker_id is None:
                return await self._router.ask_any(call, deadline)
            return await self._router.ask_broker(broker_id, call, deadline)

        return await self._router.persist(what, deadline, attempt)

    async def _change(
        self,
        api_key: ApiKey,
        versions: range,
        fields: Mapping[str, Any],
        timeout_ms: int | None,
        broker_id: BrokerId | None = None,
    ) -> Any:
        """Send a change to the controller or to one broker. It is never resent once a broker may
        have started on it."""
        deadline = self._router.deadline(timeout_ms)

        async def attempt() -> Any:
            timeout = {"timeout": timedelta(milliseconds=deadline.left_for_broker_ms)}
            call = Call(api_key, versions, {**fields, **timeout})
            try:
                if broker_id is None:
                    answer = await self._router.ask_controller(call, deadline)
                else:
                    answer = await self._router.ask_broker(broker_id, call, deadline)
            except Disconnected as error:
                raise _Unknown(
                    f"{error}; {api_key.title} may have been carried out: check before trying again"
                ) from error
            _check_controller(api_key, answer)
            return answer

        return await self._router.persist(api_key.title, deadline, attempt)


class _Unknown(Disconnected):
    is_retriable = False


def _check(what: str, result: Any) -> None:
    error = _find_error(what, result)
    if error is not None:
        raise error


def _find_error(what: str, result: Any) -> RefusedByBroker | None:
    code = read_error(getattr(result, "error_code", 0))
    return RefusedByBroker(what, code, getattr(result, "error_message", None)) if code else None


def _check_controller(api_key: ApiKey, answer: Any) -> None:
    """NOT_CONTROLLER means that nothing was done, so the new controller can be asked safely."""
    for name in ("topics", "responses", "results"):
        for result in getattr(answer, name, ()):
            if read_error(result.error_code) is ErrorCode.NOT_CONTROLLER:
                raise RefusedByBroker(api_key.title, ErrorCode.NOT_CONTROLLER)


def _new_topic(topic: NewTopic) -> Mapping[str, Any]:
    return {
        "name": topic.name,
        "num_partitions": _or_default(topic.partitions),
        "replication_factor": _or_default(topic.replication_factor),
        "assignments": [
            {"partition_index": partition, "broker_ids": broker_ids}
            for partition, broker_ids in topic.assignment.items()
        ],
        "configs": [
            {"name": name, "value": None if value is None else as_text(value)}
            for name, value in topic.configs.items()
        ],
    }


def _or_default(number: int | None) -> int:
    return _CLUSTER_DEFAULT if number is None else number


def _created(topic: Any) -> CreatedTopic:
    partitions = getattr(topic, "num_partitions", _NOT_RETURNED)
    replication_factor = getattr(topic, "replication_factor", _NOT_RETURNED)
    return CreatedTopic(
        name=topic.name,
        topic_id=getattr(topic, "topic_id", None),
        partitions=None if partitions == _NOT_RETURNED else partitions,
        replication_factor=None if replication_factor == _NOT_RETURNED else replication_factor,
    )


_OF_BROKERS = (ConfigResourceType.BROKER, ConfigResourceType.BROKER_LOGGER)


def _by_broker(resources: Iterable[ConfigResource]) -> dict[BrokerId | None, list[ConfigResource]]:
    """Only a broker itself knows its own configs; any broker knows the rest."""
    grouped: dict[BrokerId | None, list[ConfigResource]] = {}
    for resource in resources:
        is_one_brokers = resource.kind in _OF_BROKERS and resource.name.isdecimal()
        broker_id = BrokerId(int(resource.name)) if is_one_brokers else None
        grouped.setdefault(broker_id, []).append(resource)
    return grouped


def _read_resource(result: Any) -> ConfigResource:
    return ConfigResource(ConfigResourceType(result.resource_type), result.resource_name)


def _resource(resource: ConfigResource) -> dict[str, Any]:
    return {"resource_type": resource.kind, "resource_name": resource.name}


def _change(change: AlterConfigOp) -> Mapping[str, Any]:
    return {
        "name": change.name,
        "config_operation": change.operation,
        "value": change.value,
    }


def _read_entry(entry: Any) -> ConfigEntry:
    synonyms = tuple(
        ConfigSynonym(synonym.name, synonym.value, _source(synonym.source))
        for synonym in entry.synonyms
    )
    return ConfigEntry(
        name=entry.name,
        value=entry.value,
        source=_source(entry.config_source),
        is_read_only=entry.read_only,
        is_sensitive=entry.is_sensitive,
        synonyms=synonyms,
        documentation=getattr(entry, "documentation", None),
    )


def _source(number: int) -> DescribedConfigSource:
    return DescribedConfigSource(number) if number in _SOURCES else DescribedConfigSource.UNKNOWN


_SOURCES = frozenset(DescribedConfigSource)


def _delete_records_call(before: Mapping[TopicPartition, Offset], deadline: Deadline) -> Call:
    by_topic = group_by_topic(
        (tp, {"partition_index": tp.partition, "offset": offset}) for tp, offset in before.items()
    )
    fields = {
        "topics": [
            {"name": name, "partitions": partitions_of_topic}
            for name, partitions_of_topic in by_topic.items()
        ],
        "timeout": timedelta(milliseconds=deadline.left_for_broker_ms),
    }
    return Call(ApiKey.DELETE_RECORDS, range(3), fields)


def _read_deleted(answer: Any) -> Mapping[TopicPartition, Offset | ClientError]:
    results: dict[TopicPartition, Offset | ClientError] = {}
    for topic in answer.topics:
        for data in topic.partitions:
            partition = TopicPartition(topic.name, data.partition_index)
            code = read_error(data.error_code)
            refused = RefusedByBroker(f"delete records of {partition}", code)
            results[partition] = refused if code else Offset(data.low_watermark)
    return results


def _group_numbers(partitions: Iterable[TopicPartition]) -> list[Mapping[str, Any]]:
    grouped: dict[str, list[int]] = {}
    for tp in partitions:
        grouped.setdefault(tp.topic, []).append(tp.partition)
    return [{"topic": name, "partitions": numbers} for name, numbers in grouped.items()]


def _read_directory(directory: Any) -> LogDirDescription:
    return LogDirDescription(
        path=directory.log_dir,
        error=read_error(directory.error_code),
        replicas={
            TopicPartition(topic.name, partition.partition_index): ReplicaSize(
                partition.partition_size, partition.offset_lag, partition.is_future_key
            )
            for topic in directory.topics
            for partition in topic.partitions
        },
        total_bytes=getattr(directory, "total_bytes", -1),
        usable_bytes=getattr(directory, "usable_bytes", -1),
    )
