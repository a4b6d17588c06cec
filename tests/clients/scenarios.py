"""Produce and fetch scenarios that every client must pass, whatever its language.

A test module provides its client as the fixture `client` and derives a class from
`ClientScenarios`. Groups have their own tests: here partitions are assigned.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from typing import NamedTuple, Protocol

import pytest
from tests.clients.under_test import PARTITIONS, BrokerUnderTest

from penstock.protocol.compression import Codec

KEYED = 120
UNKEYED = 120
KEYS = 12
INSIDE_FIRST_BATCH = 5  # an offset at which no batch begins
SETTLE_TIMEOUT_S = 180.0
READ_TIMEOUT_S = 180.0

Headers = tuple[tuple[str, bytes], ...]
HEADERS: Headers = (("written-by", b"a client"),)

_FILLER = b"every codec makes this shorter, " * 8
# Not in the future, so that the broker accepts it, and too young for retention to delete.
_FIRST_MS = int(time.time() * 1000) - 3_600_000
_STEP_MS = 1000

ACKS = ("0", "1", "all")
COMBINATIONS = [(codec, acks) for codec in Codec for acks in ACKS]


class Message(NamedTuple):
    number: int
    key: bytes | None
    value: bytes
    timestamp_ms: int


class Received(NamedTuple):
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes
    headers: Headers


class Start(NamedTuple):
    """Where reading begins; with neither field, at the beginning of the partition."""

    offset: int | None = None
    timestamp_ms: int | None = None


class Client(Protocol):
    """The operations that the scenarios need, implemented with a client's own calls."""

    sets_timestamps: bool  # otherwise messages have the time at which they were sent

    def create_topic(self, topic: str, partitions: int) -> None: ...

    def produce(
        self,
        topic: str,
        messages: Sequence[Message],
        *,
        codec: str,
        acks: str,
        headers: Headers = HEADERS,
    ) -> None:
        """Sends over one connection, to the partitions that the client chooses."""

    def end_offset(self, topic: str, partition: int) -> int: ...

    def find_offset(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        """The first offset with this timestamp or a later one."""

    def read(self, topic: str, partition: int, start: Start, end_offset: int) -> list[Received]:
        """All records from `start` up to `end_offset`, or fewer after READ_TIMEOUT_S."""


class Written(NamedTuple):
    topic: str
    codec: Codec
    sent: list[Message]
    partitions: list[list[Received]]  # as read from the beginning


def make_messages() -> list[Message]:
    keys = [b"key-%d" % (number % KEYS) for number in range(KEYED)] + [None] * UNKEYED
    return [
        Message(number, key, b"%05d %s" % (number, _FILLER), _FIRST_MS + number * _STEP_MS)
        for number, key in enumerate(keys)
    ]


def write_topic(client: Client, broker: BrokerUnderTest, codec: Codec, acks: str) -> Written:
    """Writes a topic with this codec and acks, and reads it from its beginning."""
    topic = f"story-{codec.name.lower()}-{acks}-{uuid.uuid4().hex[:8]}"
    sent = make_messages()
    client.create_topic(topic, PARTITIONS)
    broker.wait_until_led(topic)
    client.produce(topic, sent, codec=codec.name.lower(), acks=acks)
    ends = _wait_for_ends(client, topic, len(sent))
    partitions = [client.read(topic, index, Start(), end) for index, end in enumerate(ends)]
    return Written(topic, codec, sent, partitions)


def _wait_for_ends(client: Client, topic: str, count: int) -> list[int]:
    """With acks=0 there is no response: polls the end offsets until all messages are in the log."""
    deadline = time.monotonic() + SETTLE_TIMEOUT_S
    while True:
        ends = [client.end_offset(topic, index) for index in range(PARTITIONS)]
        if sum(ends) >= count or time.monotonic() > deadline:
            return ends


class ClientScenarios:
    def test_every_message_is_delivered_exactly_once(
        self, written: Written, client: Client
    ) -> None:
        sent = {message.value: message for message in written.sent}
        received = [record for records in written.partitions for record in records]
        assert sorted(record.value for record in received) == sorted(sent)
        assert {record.value: record.key for record in received} == {
            message.value: message.key for message in written.sent
        }
        assert {record.headers for record in received} == {HEADERS}
        if client.sets_timestamps:
            assert all(r.timestamp_ms == sent[r.value].timestamp_ms for r in received)

    def test_a_partition_keeps_the_order_in_which_messages_were_sent(
        self, written: Written
    ) -> None:
        for index, records in enumerate(written.partitions):
            assert [record.partition for record in records] == [index] * len(records)
            assert [record.offset for record in records] == list(range(len(records)))
            values = [record.value for record in records]
            assert values == sorted(values)

    def test_all_messages_with_a_key_are_in_one_partition(self, written: Written) -> None:
        homes = {(r.key, r.partition) for records in written.partitions for r in records if r.key}
        assert len(homes) == KEYS
        assert {partition for _, partition in homes} == set(range(PARTITIONS))

    def test_reading_can_start_at_an_offset_inside_a_batch(
        self, written: Written, client: Client
    ) -> None:
        for index, records in enumerate(written.partitions):
            start = Start(offset=INSIDE_FIRST_BATCH)
            received = client.read(written.topic, index, start, len(records))
            assert received == records[INSIDE_FIRST_BATCH:]

    def test_reading_can_start_at_a_timestamp(self, written: Written, client: Client) -> None:
        for index, records in enumerate(written.partitions):
            time_ms = records[len(records) // 2].timestamp_ms
            if client.sets_timestamps:
                time_ms -= _STEP_MS // 2  # between two records: expects the later one
            first = next(r.offset for r in records if r.timestamp_ms >= time_ms)
            assert client.find_offset(written.topic, index, time_ms) == first
            start = Start(timestamp_ms=time_ms)
            assert client.read(written.topic, index, start, len(records)) == records[first:]

    def test_no_offset_is_found_after_the_last_timestamp(
        self, written: Written, client: Client
    ) -> None:
        last_ms = max(record.timestamp_ms for record in written.partitions[0])
        assert client.find_offset(written.topic, 0, last_ms + 1) is None

    def test_batches_are_stored_with_the_codec_of_the_producer(
        self, written: Written, broker: BrokerUnderTest
    ) -> None:
        if broker.data is None:
            pytest.skip("skipped: the broker's files are not known; set PENSTOCK_TEST_DATA")
        for index, records in enumerate(written.partitions):
            batches = broker.stored_batches(written.topic, index)
            assert {Codec(batch.codec) for batch in batches} == {written.codec}
            assert sum(batch.record_count for batch in batches) == len(records)
            # So that the test of offsets inside a batch does read from inside one.
            assert INSIDE_FIRST_BATCH not in {batch.base_offset for batch in batches}
