"""Penstock's raw-batch client against a real broker: Penstock's own, or Kafka."""

from __future__ import annotations

import asyncio
import time

import pytest
from tests.clients.our_topics import ask, new_name, new_topic
from tests.clients.under_test import BrokerUnderTest

from penstock.client.admin_values import (
    AlterConfigOp,
    ConfigResource,
    DescribedConfigSource,
    NewTopic,
)
from penstock.client.cluster import ClusterClient
from penstock.client.data_calls import EARLIEST, LATEST, MAX_TIMESTAMP, FetchFrom
from penstock.client.errors import RefusedByBroker
from penstock.model.admin import ConfigOperation
from penstock.model.errors import ErrorCode
from penstock.model.ids import Offset, TopicPartition
from penstock.protocol.batch import compute_crc, iter_headers
from penstock.protocol.compression import Codec
from penstock.protocol.records import Record, build_batch, iter_records

pytestmark = pytest.mark.xdist_group("clients")

NOW_MS = int(time.time() * 1000)


def batch_of(*values: bytes, at_ms: int = NOW_MS, codec: Codec = Codec.NONE) -> bytes:
    records = [Record(index, at_ms + index, b"k", value) for index, value in enumerate(values)]
    return bytes(build_batch(records, codec=codec))


def values_of(batches: memoryview) -> list[bytes | None]:
    return [
        record.value
        for position, header in iter_headers(batches)
        for record in iter_records(batches[position : position + header.size])
    ]


@pytest.mark.parametrize("codec", list(Codec), ids=lambda codec: codec.name.lower())
def test_a_fetched_batch_equals_the_produced_one(broker: BrokerUnderTest, codec: Codec) -> None:
    partition = TopicPartition(new_topic(broker, partitions=1), 0)
    batch = batch_of(b"one", b"two" * 500, b"three", codec=codec)

    async def work(client: ClusterClient) -> None:
        assert (await client.produce(partition, batch)).base_offset == 0
        assert (await client.produce(partition, batch, acks=1)).base_offset == 3
        (got,) = await client.fetch([FetchFrom(partition, Offset(0))])
        assert (got.error, got.high_watermark, got.log_start_offset) == (ErrorCode.NONE, 6, 0)
        headers = list(iter_headers(got.batches))
        assert [header.base_offset for _, header in headers] == [0, 3]
        for position, header in headers:
            stored = got.batches[position : position + header.size]
            assert compute_crc(stored) == compute_crc(batch) == header.crc
            assert bytes(stored[21:]) == batch[21:]

    ask(broker, work)


def test_a_fetch_inside_a_batch_returns_the_whole_batch(broker: BrokerUnderTest) -> None:
    partition = TopicPartition(new_topic(broker, partitions=1), 0)

    async def work(client: ClusterClient) -> None:
        await client.produce(partition, batch_of(b"a", b"b", b"c"))
        (got,) = await client.fetch([FetchFrom(partition, Offset(2))])
        assert values_of(got.batches) == [b"a", b"b", b"c"]

    ask(broker, work)


def test_the_next_produce_completes_a_waiting_fetch(broker: BrokerUnderTest) -> None:
    partition = TopicPartition(new_topic(broker, partitions=1), 0)

    async def with_two_clients(client: ClusterClient) -> None:
        # The responses to one client come in order, so the waiting fetch needs its own client.
        async with ClusterClient(broker.bootstrap_servers) as other:
            await client.produce(partition, batch_of(b"early"))
            waiting = asyncio.create_task(
                other.fetch([FetchFrom(partition, Offset(1))], max_wait_ms=30_000)
            )
            (got,) = await client.fetch([FetchFrom(partition, Offset(0))])
            assert values_of(got.batches) == [b"early"]
            assert not waiting.done()
            await client.produce(partition, batch_of(b"late"))
            (got,) = await waiting
            assert values_of(got.batches) == [b"late"]

    ask(broker, with_two_clients)


def test_a_large_fetch_response_arrives_completely(broker: BrokerUnderTest) -> None:
    partition = TopicPartition(new_topic(broker, partitions=1), 0)
    value = bytes(range(256)) * 3_600

    async def work(client: ClusterClient) -> None:
        for _ in range(12):
            await client.produce(partition, batch_of(value))
        offset, seen = 0, 0
        while offset < 12:
            (got,) = await client.fetch([FetchFrom(partition, Offset(offset), 64 * 1024**2)])
            values = values_of(got.batches)
            assert set(values) == {value}
            offset, seen = offset + len(values), seen + len(values)
        assert seen == 12

    ask(broker, work)


def test_offsets_are_listed_by_position_and_by_timestamp(broker: BrokerUnderTest) -> None:
    partition = TopicPartition(new_topic(broker, partitions=1), 0)

    async def offset_at(client: ClusterClient, time_ms: int) -> tuple[int, int]:
        fetched = (await client.list_offsets({partition: time_ms}))[partition]
        return fetched.offset, fetched.timestamp_ms

    async def work(client: ClusterClient) -> None:
        assert await offset_at(client, EARLIEST) == await offset_at(client, LATEST) == (0, -1)
        await client.produce(partition, batch_of(b"a", b"b", at_ms=NOW_MS))
        await client.produce(partition, batch_of(b"c", b"d", at_ms=NOW_MS + 1_000))
        assert await offset_at(client, LATEST) == (4, -1)
        assert await offset_at(client, NOW_MS) == (0, NOW_MS)
        assert await offset_at(client, NOW_MS + 2) == (2, NOW_MS + 1_000)
        assert await offset_at(client, NOW_MS + 1_001) == (3, NOW_MS + 1_001)
        assert await offset_at(client, NOW_MS + 9_999) == (-1, -1)
        assert await offset_at(client, MAX_TIMESTAMP) == (3, NOW_MS + 1_001)

    ask(broker, work)


def test_an_empty_partition_has_a_log_end_offset(broker: BrokerUnderTest) -> None:
    topic = new_topic(broker, partitions=2)
    full, empty = TopicPartition(topic, 0), TopicPartition(topic, 1)

    async def work(client: ClusterClient) -> None:
        await client.produce(full, batch_of(b"a", b"b", b"c"))
        assert await client.log_end_offsets([full, empty]) == {full: 3, empty: 0}

    ask(broker, work)


def test_a_fetch_beyond_the_log_end_is_out_of_range(broker: BrokerUnderTest) -> None:
    partition = TopicPartition(new_topic(broker, partitions=1), 0)

    async def work(client: ClusterClient) -> None:
        (got,) = await client.fetch([FetchFrom(partition, Offset(5))], max_wait_ms=0)
        assert (got.error, len(got.batches)) == (ErrorCode.OFFSET_OUT_OF_RANGE, 0)

    ask(broker, work)


def test_a_damaged_batch_is_rejected_and_not_stored(broker: BrokerUnderTest) -> None:
    partition = TopicPartition(new_topic(broker, partitions=1), 0)
    damaged = bytearray(batch_of(b"value"))
    damaged[-1] ^= 1

    async def work(client: ClusterClient) -> None:
        with pytest.raises(Exception, match="CORRUPT_MESSAGE"):
            await client.produce(partition, damaged, timeout_ms=2_000)
        assert (await client.log_end_offsets([partition]))[partition] == 0

    ask(broker, work)


def test_a_batch_above_max_message_bytes_is_rejected(broker: BrokerUnderTest) -> None:
    topic = new_topic(broker, partitions=1, max__message__bytes="1000")

    async def work(client: ClusterClient) -> None:
        with pytest.raises(RefusedByBroker) as caught:
            await client.produce(TopicPartition(topic, 0), batch_of(bytes(2_000)))
        assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE

    ask(broker, work)


def test_records_are_deleted_up_to_an_offset(broker: BrokerUnderTest) -> None:
    partition = TopicPartition(new_topic(broker, partitions=1), 0)

    async def work(client: ClusterClient) -> None:
        await client.produce(partition, batch_of(b"a", b"b", b"c"))
        assert await client.admin.delete_records({partition: Offset(2)}) == {partition: 2}
        assert (await client.list_offsets({partition: EARLIEST}))[partition].offset == 2
        assert await client.admin.delete_records({partition: Offset(-1)}) == {partition: 3}
        with pytest.raises(RefusedByBroker) as caught:
            await client.admin.delete_records({partition: Offset(9)})
        assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE

    ask(broker, work)


def test_a_topic_is_created_extended_and_deleted(broker: BrokerUnderTest) -> None:
    name = new_name()

    async def work(client: ClusterClient) -> None:
        topic = NewTopic(name=name, partitions=2, replication_factor=1)
        created = (await client.admin.create_topics([topic]))[name]
        topic_metadata = (await client.metadata([name])).topics[name]
        assert (created.partitions, len(topic_metadata.partitions)) == (2, 2)
        assert created.topic_id == topic_metadata.topic_id is not None
        with pytest.raises(RefusedByBroker) as caught:
            await client.admin.create_topics([topic])
        assert caught.value.code is ErrorCode.TOPIC_ALREADY_EXISTS
        await client.admin.create_partitions({name: 5})
        assert len((await client.metadata([name])).topics[name].partitions) == 5
        with pytest.raises(RefusedByBroker) as caught:
            await client.admin.create_partitions({name: 3})
        assert caught.value.code is ErrorCode.INVALID_PARTITIONS
        assert name in (await client.metadata()).topics
        await client.admin.delete_topics([name])
        with pytest.raises(RefusedByBroker) as caught:
            await client.admin.delete_topics([name])
        assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    ask(broker, work)


def test_validate_only_creates_no_topic(broker: BrokerUnderTest) -> None:
    name = new_name()

    async def work(client: ClusterClient) -> None:
        await client.admin.create_topics([NewTopic(name=name)], validate_only=True)
        bad = NewTopic(name=name, configs={"retention.ms": "soon"})
        with pytest.raises(RefusedByBroker) as caught:
            await client.admin.create_topics([bad])
        assert caught.value.code is ErrorCode.INVALID_CONFIG
        assert name not in (await client.metadata()).topics

    ask(broker, work)


def test_configs_are_altered_described_and_reset(broker: BrokerUnderTest) -> None:
    topic = ConfigResource.topic(new_topic(broker, retention__ms="1000000"))

    async def retention(client: ClusterClient) -> tuple[str | None, bool]:
        configs = await client.admin.describe_configs(
            [topic], names=["retention.ms"], with_synonyms=True, with_documentation=True
        )
        (entry,) = configs[topic]
        assert entry.documentation
        assert bool(entry.synonyms) >= entry.is_own
        return entry.value, entry.source is DescribedConfigSource.TOPIC

    async def work(client: ClusterClient) -> None:
        assert await retention(client) == ("1000000", True)
        change = AlterConfigOp("retention.ms", "2000000")
        await client.admin.incremental_alter_configs({topic: [change]})
        assert await retention(client) == ("2000000", True)
        back = AlterConfigOp("retention.ms", None, ConfigOperation.DELETE)
        await client.admin.incremental_alter_configs({topic: [back]})
        assert await retention(client) == ("604800000", False)
        with pytest.raises(RefusedByBroker) as caught:
            await client.admin.incremental_alter_configs(
                {topic: [AlterConfigOp("retention.ms", "soon")]}
            )
        assert caught.value.code is ErrorCode.INVALID_CONFIG

    ask(broker, work)


def test_brokers_and_their_log_dirs_are_described(broker: BrokerUnderTest) -> None:
    partition = TopicPartition(new_topic(broker, partitions=1), 0)
    batch = batch_of(b"a", b"b")

    async def work(client: ClusterClient) -> None:
        await client.produce(partition, batch)
        cluster = await client.admin.describe_cluster()
        metadata = await client.metadata([])
        assert cluster.brokers == metadata.brokers
        assert cluster.cluster_id == metadata.cluster_id
        (broker_id,) = cluster.brokers
        directories = (await client.admin.describe_log_dirs())[broker_id]
        sizes = [directory.replicas[partition].size_bytes for directory in directories]
        assert sizes == [len(batch)]
        only = await client.admin.describe_log_dirs(partitions=[partition])
        assert [set(dir_description.replicas) for dir_description in only[broker_id]] == [
            {partition}
        ]
        resource = ConfigResource.broker(broker_id)
        entries = (await client.admin.describe_configs([resource]))[resource]
        assert "log.retention.hours" in {entry.name for entry in entries}

    ask(broker, work)
