"""The `replay` job: copies a range of a topic, by offset or by time, into another topic, unchanged
or transformed by SQL or a Python function.

One task reads one partition from start to end, so that records keep their order. The sink's
guarantee for a batch holds: all records are written exactly once, or none is.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from pyspark.sql import Observation
from pyspark.sql import functions as f

from penstock.client.admin_values import NewTopic
from penstock.client.data_calls import LATEST, IsolationLevel
from penstock.client.errors import ClientError
from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicPartition
from penstock.spark.connect.cluster_security import security_options
from penstock.spark.connect.connections import BlockingClient
from penstock.spark.failures import ClusterNotReady
from penstock.spark.jobs.failures import JobRefused
from penstock.spark.jobs.replay_copy import new_copy, run_copy
from penstock.spark.jobs.replay_function import (
    OUTPUT_NAMES,
    OUTPUT_SCHEMA,
    RecordFunction,
    change_batches,
)
from penstock.spark.jobs.running import JobProgress, JobWatch, run_watched
from penstock.spark.jobs.scope import JobScope, ResolvedScope, resolve_scope, source_options
from penstock.spark.session.spark_errors import SPARK_ERRORS
from penstock.spark.session.spark_messages import explain
from penstock.spark.sink.null_headers import fill_null_headers
from penstock.spark.sink.options import parse_sink_options
from penstock.spark.source.options import ReadMode, parse_source_options
from penstock.spark.source.read_task import read_settings

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_FORMAT = "penstock"
_STEP = "copy records"
_RECORDS = "records"
_COPIED = ("key", "value", "headers", "partition")  # columns


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """The options of a replay from one topic into another."""

    scope: JobScope
    target: str
    where: str | None = None  # SQL
    key: str | None = None  # SQL
    value: str | None = None  # SQL
    function: RecordFunction | None = None
    keeps_partitions: bool = False
    marks_origin: bool = False
    creates_target: bool = False
    isolation: IsolationLevel = IsolationLevel.READ_COMMITTED
    compression: str = "none"

    @property
    def needs_spark_sql(self) -> bool:
        """Whether rows must pass through Spark's JVM."""
        is_changed = any(text is not None for text in (self.where, self.key, self.value))
        return is_changed or self.marks_origin


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayResult:
    offsets: int  # read
    written: int  # records
    seconds: float


def run_replay(
    spark: "SparkSession", client: BlockingClient, replay: Replay, watch: JobWatch
) -> ReplayResult:
    started_s = time.monotonic()
    resolved = resolve_scope(client, replay.scope, replay.isolation)
    targets = prepare_target(client, replay, resolved)
    written = 0
    if resolved.offsets:
        counting = _counting(client, targets, watch)
        if replay.needs_spark_sql:
            rows = change_rows(_read(spark, client.settings.bootstrap, resolved, replay), replay)
            written = run_watched(spark, _STEP, counting, lambda: _write(rows, client, replay))
        else:
            written = _copy(spark, client, resolved, replay, counting)
    return ReplayResult(
        offsets=resolved.offsets, written=written, seconds=time.monotonic() - started_s
    )


def _copy(
    spark: "SparkSession",
    client: BlockingClient,
    resolved: ResolvedScope,
    replay: Replay,
    watch: JobWatch,
) -> int:
    source = parse_source_options(
        _source_options(client.settings.bootstrap, resolved, replay), ReadMode.BATCH
    )
    columns = OUTPUT_NAMES if replay.function is not None else _COPIED
    copy = new_copy(
        read_settings(source, columns),
        parse_sink_options(_sink_options(client, replay)),
        function=replay.function,
        keeps_partitions=replay.keeps_partitions,
    )
    ranges = [span for span in resolved.ranges if span.size]
    return run_copy(spark, ranges, copy, _STEP, watch)


def _write(rows: "DataFrame", client: BlockingClient, replay: Replay) -> int:
    """Returns how many records were written. Offsets would not tell, because transaction markers
    take offsets too."""
    counted = Observation()
    rows = rows.observe(counted, f.count(f.lit(1)).alias(_RECORDS))
    options = _sink_options(client, replay)
    rows.write.format(_FORMAT).mode("append").options(**options).save()
    return int(counted.get[_RECORDS])


# The target topic.


def prepare_target(
    client: BlockingClient, replay: Replay, resolved: ResolvedScope
) -> list[TopicPartition]:
    """The partitions of the target topic, which is created if it is missing and `creates_target`
    is set."""
    if replay.target in replay.scope.topics:
        raise JobRefused(f"{replay.target} would be copied into itself: name another target")
    tps = [span.tp for span in resolved.ranges]
    most = max(tp.partition for tp in tps) + 1
    try:
        topic = client.metadata([replay.target]).topics[replay.target]
        if topic.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and replay.creates_target:
            wanted = NewTopic(name=replay.target, partitions=most)
            client.run(lambda kafka: kafka.admin.create_topics([wanted]))
            return [TopicPartition(replay.target, partition) for partition in range(most)]
        topic.check()
    except ClientError as error:
        raise ClusterNotReady(
            f"{error}; --create creates the target with as many partitions"
        ) from None
    if replay.keeps_partitions and len(topic.partitions) < most:
        raise ClusterNotReady(
            f"topic {replay.target!r} has {len(topic.partitions)} partitions, but "
            f"--keep-partitions needs {most}: penstock topic alter {replay.target} "
            f"--partitions {most}"
        )
    return [TopicPartition(replay.target, metadata.partition) for metadata in topic.partitions]


def _end(client: BlockingClient, targets: Sequence[TopicPartition]) -> int:
    listed = client.list_offsets(dict.fromkeys(targets, LATEST))
    return sum(listed_offset.offset for listed_offset in listed.values())


def _counting(
    client: BlockingClient, targets: Sequence[TopicPartition], watch: JobWatch
) -> JobWatch:
    """Adds the number of records to the progress, from the growth of the target: there are few
    tasks."""
    before = _end(client, targets)

    def show(progress: JobProgress) -> None:
        try:
            records = _end(client, targets) - before
        except ClientError:
            return  # if the cluster is unreachable, the copy itself fails with a message
        watch.show(progress._replace(records=records))

    return JobWatch(stop=watch.stop, show=show)


def _sink_options(client: BlockingClient, replay: Replay) -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": client.settings.bootstrap,
        "topic": replay.target,
        "kafka.compression.type": replay.compression,
        **security_options(client.settings.bootstrap),
    }


# The rows to copy.


def _read(
    spark: "SparkSession", bootstrap: str, resolved: ResolvedScope, replay: Replay
) -> "DataFrame":
    options = _source_options(bootstrap, resolved, replay)
    return spark.read.format(_FORMAT).options(**options).load()


def _source_options(bootstrap: str, resolved: ResolvedScope, replay: Replay) -> dict[str, str]:
    return {
        **source_options(bootstrap, resolved),
        "includeHeaders": "true",
        "kafka.isolation.level": replay.isolation.name.lower(),
    }


def change_rows(rows: "DataFrame", replay: Replay) -> "DataFrame":
    """Applies, in this order: --where, the SQL for key and value, the function, the origin
    headers."""
    try:
        if replay.where is not None:
            rows = rows.where(replay.where)
        changed = {
            name: _bytes_or_text(rows, expression)
            for name, expression in (("key", replay.key), ("value", replay.value))
            if expression is not None
        }
        rows = rows.withColumns(changed)
        _ = rows.schema
    except SPARK_ERRORS as error:
        raise JobRefused(f"invalid SQL: {explain(str(error))}") from None
    rows = fill_null_headers(rows)
    if replay.function is not None:
        rows = rows.mapInArrow(partial(change_batches, replay.function), OUTPUT_SCHEMA)
    headers = _with_origin() if replay.marks_origin else f.col("headers")
    partition = f.col("partition") if replay.keeps_partitions else f.lit(None).cast("int")
    return rows.select("key", "value", headers.alias("headers"), partition.alias("partition"))


def _bytes_or_text(rows: "DataFrame", expression: str) -> "Column":
    made = f.expr(expression)
    (field,) = rows.select(made.alias("made")).schema.fields
    is_sendable = field.dataType.simpleString() in ("binary", "string")
    return (made if is_sendable else made.cast("string")).cast("binary")


def _with_origin() -> "Column":
    """The record's headers, plus its origin: topic, partition, offset and timestamp."""
    time_ms = f.unix_millis(f.col("timestamp"))
    origin = {
        "penstock.topic": f.col("topic"),
        "penstock.partition": f.col("partition").cast("string"),
        "penstock.offset": f.col("offset").cast("string"),
        "penstock.timestamp": time_ms.cast("string"),
    }
    added = [
        f.struct(f.lit(name).alias("key"), value.cast("binary").alias("value"))
        for name, value in origin.items()
    ]
    return f.concat(f.col("headers"), f.array(*added))
