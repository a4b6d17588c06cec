"""Asks schema registries for the schemas of a pipeline's values, before anything is read.

Topics that are read have the newest schema of their subject; those that are written register
theirs, or take the newest one.
"""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from penstock.client.errors import InvalidClientConfig
from penstock.client.security.secret_values import resolve_value
from penstock.spark.codec.avro_types import avro_columns
from penstock.spark.codec.ddl_columns import to_ddl
from penstock.spark.codec.json_schemas import json_schema_columns
from penstock.spark.codec.protobuf_types import (
    load_message,
    one_of_set,
    protobuf_columns,
    set_of_one,
)
from penstock.spark.connect.schema_registry import (
    PREFIX_BYTES,
    RegisteredSchema,
    SchemaNotRegistered,
    SchemaRegistry,
    latest_schema,
    register_schema,
    schema_by_id,
)
from penstock.spark.errors import SparkSourceError
from penstock.spark.pipeline.failures import PipelineFailed
from penstock.spark.pipeline.spec import (
    BranchTargets,
    Pipeline,
    RegistryRef,
    Sink,
    Source,
    Target,
    TopicSource,
    TopicTarget,
    ValueFormat,
)


def with_registered_schemas(pipeline: Pipeline) -> Pipeline:
    """The same, with the schemas in its values. Raises PipelineFailed, with the file's line."""
    return replace(
        pipeline,
        sources=tuple(_source(pipeline, source) for source in pipeline.sources),
        sinks=tuple(_sink(pipeline, sink) for sink in pipeline.sinks),
    )


def _source(pipeline: Pipeline, source: Source) -> Source:
    if not isinstance(source, TopicSource) or source.value.registry is None:
        return source
    where = f"source {source.name}"
    topic = source.topics[0] if source.topics else ""
    return replace(source, value=_explained(pipeline, where, source.value, topic, _with_newest))


def _sink(pipeline: Pipeline, sink: Sink) -> Sink:
    return replace(sink, target=_target(pipeline, f"sink {sink.name}", sink.target))


def _target(pipeline: Pipeline, where: str, target: Target) -> Target:
    if isinstance(target, BranchTargets):
        branches = []
        for branch in target.branches:
            inner = _target(pipeline, f"{where}, target {branch.name}", branch.target)
            assert not isinstance(inner, BranchTargets)
            branches.append(replace(branch, target=inner))
        return replace(target, branches=tuple(branches))
    if not isinstance(target, TopicTarget) or target.value.registry is None:
        return target
    value = _explained(pipeline, where, target.value, target.topic, _to_write)
    return replace(target, value=value)


def _explained(
    pipeline: Pipeline,
    where: str,
    value: ValueFormat,
    topic: str,
    resolve: Callable[[ValueFormat, SchemaRegistry, str], ValueFormat],
) -> ValueFormat:
    ref = value.registry
    assert ref is not None
    subject = ref.subject or f"{topic}-value"
    try:
        return resolve(value, registry_of(ref), subject)
    except (SparkSourceError, ValueError) as error:
        reason = str(error)
        if subject not in reason:
            reason = f"subject {subject} of the schema registry {ref.url}: {reason}"
        message = f"{pipeline.file}:{ref.line}: {where}: {reason}"
        raise PipelineFailed(message) from None


def registry_of(ref: RegistryRef) -> SchemaRegistry:
    """Reads the secret at the last moment."""
    if ref.auth is None:
        return SchemaRegistry(ref.url, None)
    try:
        return SchemaRegistry(ref.url, resolve_value("registry_auth", ref.auth.value))
    except InvalidClientConfig as error:
        raise SparkSourceError(str(error)) from None


def _with_newest(value: ValueFormat, registry: SchemaRegistry, subject: str) -> ValueFormat:
    return _described(value, latest_schema(registry, subject, value.encoding))


def _described(value: ValueFormat, schema: RegisteredSchema) -> ValueFormat:
    value = replace(value, schema_id=schema.schema_id, skip_bytes=PREFIX_BYTES)
    if schema.kind == "protobuf":
        descriptors = set_of_one(schema.text)
        message = load_message(descriptors, value.message)
        protobuf_columns(message)
        return replace(value, descriptors=descriptors, message=message.full_name)
    parsed = json.loads(schema.text)
    if schema.kind == "json":
        columns = to_ddl(json_schema_columns(parsed))
        return replace(value, columns=columns, json_schema=schema.text)
    avro_columns(parsed)
    return replace(value, avro=parsed)


def _to_write(value: ValueFormat, registry: SchemaRegistry, subject: str) -> ValueFormat:
    text = _own_schema(value)
    if text is None:
        return _with_newest(value, registry, subject)
    schema_id = register_schema(registry, subject, value.encoding, text)
    return replace(value, schema_id=schema_id, skip_bytes=PREFIX_BYTES)


def _own_schema(value: ValueFormat) -> str | None:
    if value.avro is not None:
        return json.dumps(value.avro)
    return one_of_set(value.descriptors) if value.descriptors is not None else value.json_schema


def avro_writer_finder(ref: RegistryRef) -> Callable[[int], Any]:
    """For Spark's workers: the schema of an id, None if the registry has none."""
    registry = registry_of(ref)

    def find(schema_id: int) -> Any:
        try:
            return json.loads(schema_by_id(registry, schema_id, "avro").text)
        except SchemaNotRegistered:
            return None

    return find
