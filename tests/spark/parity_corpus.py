"""The topics that both connectors read: written once, then read only.

Invariant: a record's number determines its offset and timestamp, so that a test can name them.
"""

from __future__ import annotations

from typing import NamedTuple

from tests.spark.topics import (
    Sent,
    ask,
    create_topic,
    delete_records,
    send,
    start_offsets,
    wait_until,
)

from penstock.client.cluster import ClusterClient
from penstock.client.data_calls import FetchFrom
from penstock.model.ids import Offset, TopicPartition
from penstock.protocol.batch import iter_headers

PARTITIONS = 3
PER_PARTITION = (40, 25, 10)  # number of records; different, so that shares are visible
FIRST_MS = 1_700_000_000_000
STEP_MS = 1_000
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
TRIMMED_TO = {0: 10, 1: 0, 2: 10}
KEYS = 5

# Small segments, so that nearly all of a short log can be compacted or deleted.
_SMALL = {"segment.bytes": "2000", "index.interval.bytes": "100"}
_COMPACT = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"} | _SMALL


class Corpus(NamedTuple):
    servers: str
    events: str = "corpus-events"
    more: str = "corpus-more"
    stamped: str = "corpus-stamped"  # the topic with LogAppendTime
    headed: str = "corpus-headed"
    compacted: str = "corpus-compacted"
    trimmed: str = "corpus-trimmed"
    empty: str = "corpus-empty"

    def codec(self, name: str) -> str:
        return f"corpus-codec-{name}"


def time_ms(number: int) -> int:
    """The timestamp of a partition's record, by number."""
    return FIRST_MS + number * STEP_MS


def write_corpus(servers: str) -> Corpus:
    corpus = Corpus(servers)
    create_topic(servers, corpus.empty, partitions=2)
    create_topic(servers, corpus.events, partitions=PARTITIONS)
    send(servers, corpus.events, _events())
    create_topic(servers, corpus.more, partitions=1)
    send(servers, corpus.more, [Sent(b"more", timestamp_ms=time_ms(0))])
    append_time = {"message.timestamp.type": "LogAppendTime"}
    create_topic(servers, corpus.stamped, partitions=1, config=append_time)
    send(servers, corpus.stamped, [Sent(b"stamped"), Sent(b"again")])
    _write_headers(corpus)
    _write_codecs(corpus)
    _write_trimmed(corpus)
    _write_compacted(corpus)
    return corpus


def _events() -> list[Sent]:
    """Includes empty and null keys and values, and one long value."""
    oddities = {0: (b"no key", None), 1: (None, b"no value"), 2: (b"", b""), 3: (None, None)}
    return [
        Sent(*oddities.get(number, (b"%d/%d" % (partition, number), b"%d" % number)),
             partition, time_ms(number))
        for partition, records in enumerate(PER_PARTITION)
        for number in range(records)
    ] + [Sent(b"long " * 40_000, b"long", 0, time_ms(PER_PARTITION[0]))]  # fmt: skip


def _write_headers(corpus: Corpus) -> None:
    headers = [
        (), (("a", b"1"),), (("a", b"1"), ("a", b"2")), (("none", None),), (("", b""),),
        (("naïve ✓", bytes(range(256))),), tuple((f"h{number}", b"v") for number in range(50)),
    ]  # fmt: skip
    create_topic(corpus.servers, corpus.headed, partitions=1)
    records = [
        Sent(b"%d" % number, b"k", 0, time_ms(number), pairs)
        for number, pairs in enumerate(headers)
    ]
    send(corpus.servers, corpus.headed, records)


def _write_codecs(corpus: Corpus) -> None:
    """Several batches each, of records that compress and some that do not."""
    for codec in CODECS:
        topic = corpus.codec(codec)
        create_topic(corpus.servers, topic, partitions=2)
        for round_number in range(3):
            records = [
                Sent(b"%d " % number * (1 + number * 7), b"%d" % number, number % 2,
                     time_ms(round_number * 30 + number), (("codec", codec.encode()),))
                for number in range(30)
            ]  # fmt: skip
            send(corpus.servers, topic, records, codec=codec)


def _write_trimmed(corpus: Corpus) -> None:
    """Its first records are deleted; partition 2 is empty, but does not start at 0."""
    create_topic(corpus.servers, corpus.trimmed, partitions=PARTITIONS)
    for partition, records in ((0, 20), (1, 5), (2, 10)):
        written = [
            Sent(b"%d" % number, None, partition, time_ms(number)) for number in range(records)
        ]
        send(corpus.servers, corpus.trimmed, written)
    delete_records(corpus.servers, corpus.trimmed, {at: to for at, to in TRIMMED_TO.items() if to})
    assert start_offsets(corpus.servers, corpus.trimmed, PARTITIONS) == TRIMMED_TO


def _write_compacted(corpus: Corpus) -> None:
    """Repeated keys, one batch per record, with tombstones; waits until there are gaps."""
    create_topic(corpus.servers, corpus.compacted, partitions=1, config=_COMPACT)
    for number in range(60):
        value = None if number == 30 else b"%d " % number * 30
        send(corpus.servers, corpus.compacted, [Sent(value, b"key %d" % (number % KEYS), 0)])
    wait_until("compacted", lambda: _count_batches(corpus.servers, corpus.compacted) < 40)


def _count_batches(servers: str, topic: str) -> int:
    """Counts the batches of a topic with one partition and one record per batch."""

    async def count(client: ClusterClient) -> int:
        batches, offset = 0, 0
        while True:
            wanted = FetchFrom(TopicPartition(topic, 0), Offset(offset))
            (fetched,) = await client.fetch([wanted], max_wait_ms=0)
            headers = [header for _, header in iter_headers(fetched.batches)]
            if not headers:
                return batches
            batches, offset = batches + len(headers), headers[-1].last_offset + 1

    return ask(servers, count)
