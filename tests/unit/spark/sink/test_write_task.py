"""A task of the sink without Spark: Arrow in, records in a real broker's topics out."""

from collections.abc import Mapping

import pyarrow as pa
import pytest

import penstock
from penstock.client.data_calls import FetchFrom
from penstock.model.ids import Offset, TopicPartition
from penstock.protocol.batch import iter_headers
from penstock.protocol.records import iter_records
from penstock.spark.connect.connections import ClientSettings, shared_client
from penstock.spark.errors import SparkSourceError
from penstock.spark.sink.columns import SinkColumns
from penstock.spark.sink.options import SinkOptions
from penstock.spark.sink.write_task import WriteResult, write_rows

PARTITIONS = 3


@pytest.fixture
def options(penstock_broker: penstock.Broker, request: pytest.FixtureRequest) -> SinkOptions:
    topic = f"task-{request.node.originalname}"[:200]
    if topic not in shared_metadata(penstock_broker):
        penstock_broker.create_topic(topic, partitions=PARTITIONS)
    return SinkOptions(ClientSettings(penstock_broker.bootstrap_servers), topic)


def shared_metadata(broker: penstock.Broker) -> Mapping[str, object]:
    return shared_client(ClientSettings(broker.bootstrap_servers)).metadata().topics


def write(options: SinkOptions, *batches: pa.RecordBatch) -> WriteResult:
    names = batches[0].schema.names
    indexes = [names.index(name) if name in names else -1 for name in SinkColumns._fields]
    return write_rows(batches, options, SinkColumns(*indexes))


def values_in(options: SinkOptions, partition: int, topic: str | None = None) -> list[str]:
    tp = TopicPartition(topic or options.topic or "", partition)
    (fetched,) = shared_client(options.client).fetch([FetchFrom(tp, Offset(0))], max_wait_ms=0)
    batches = [fetched.batches[position:] for position, _ in iter_headers(fetched.batches)]
    records = [record for batch in batches for record in iter_records(batch)]
    return [bytes(record.value or b"").decode() for record in records]


def numbers(*values: int | None) -> pa.Array:
    return pa.array(values, pa.int32())


def test_rows_go_to_the_partitions_they_name(options: SinkOptions) -> None:
    first = pa.record_batch({"value": ["a", "b", "c"], "partition": numbers(2, 0, 2)})
    second = pa.record_batch({"value": ["d"], "partition": numbers(0)})
    written = write(options, first, second)
    assert [values_in(options, number) for number in range(3)] == [["b", "d"], [], ["a", "c"]]
    assert written.rows == 4
    assert options.topic is not None
    ends = {tp.partition: end for tp, end in written.end_offsets.items()}
    assert ends == {0: 2, 2: 2}


def test_rows_without_a_partition_are_partitioned_by_key(options: SinkOptions) -> None:
    """Equal keys share a partition, whether other rows name one or not."""
    keys, partitions = ["k", "other", "k", "k"], numbers(None, 1, None, None)
    write(options, pa.record_batch({"key": keys, "value": list("abcd"), "partition": partitions}))
    write(options, pa.record_batch({"key": ["k"], "value": ["e"]}))
    partitions_values = [values_in(options, number) for number in range(PARTITIONS)]
    assert ["a", "c", "d", "e"] in [[v for v in values if v != "b"] for values in partitions_values]
    assert "b" in partitions_values[1]


def test_rows_are_written_to_their_topics(
    options: SinkOptions, penstock_broker: penstock.Broker
) -> None:
    topics = [f"{options.topic}-{number}" for number in range(3)]
    for topic in topics:
        penstock_broker.create_topic(topic)
    rows = pa.record_batch({"topic": topics * 2, "value": list("abcdef")})
    write(options._replace(topic=None), rows)
    values = [values_in(options, 0, topic) for topic in topics]
    assert values == [["a", "d"], ["b", "e"], ["c", "f"]]


def test_task_without_rows_needs_no_topic(options: SinkOptions) -> None:
    empty = pa.record_batch({"value": pa.array([], pa.string())})
    assert write(options, empty) == WriteResult(0, {})
    columns = SinkColumns(key=-1, value=0, headers=-1, topic=-1, partition=-1)
    assert write_rows([], options._replace(topic="nowhere"), columns) == WriteResult(0, {})


@pytest.mark.parametrize("wrong", [-1, PARTITIONS])
def test_nonexistent_partition_is_rejected(options: SinkOptions, wrong: int) -> None:
    rows = pa.record_batch({"value": ["a", "b"], "partition": numbers(0, wrong)})
    with pytest.raises(SparkSourceError, match=f"has {wrong}, topic .* partitions 0 to 2"):
        write(options, rows)


def test_invalid_topic_name_is_rejected_at_once(options: SinkOptions) -> None:
    rows = pa.record_batch({"topic": ["no/topic"], "value": ["a"]})
    with pytest.raises(Exception, match="INVALID_TOPIC_EXCEPTION"):
        write(options._replace(topic=None), rows)
