"""Logs written by a real Kafka broker, and what its Java clients reported about every record.

Two copies of one data directory: `clean` after a clean stop, `killed` after a second run that was
killed while a transaction was open. Nothing here knows Penstock.
"""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from tests.interop.kafka_broker import KafkaBroker, KafkaClients, NewRecord, WrittenRecord
from tests.interop.kafka_jars import KafkaJars

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
CODEC_TOPICS = tuple(f"codec-{codec}" for codec in CODECS)
TRANSACTIONS = "transactions"
COMPACTED = "compacted"
APPEND_TIME = "append-time"
TWO_PARTITIONS = "two-partitions"

BASE_TIME_MS = 1_700_000_000_000
SEGMENT_BYTES = 8_192

# Old timestamps must neither roll nor delete a segment, and compaction should start soon.
BROKER_PROPERTIES = {
    "log.retention.ms": "-1",
    "log.roll.ms": "315360000000",
    "log.cleaner.backoff.ms": "100",
}

COMMITTING = {
    "transactional.id": "committing",
    "compression.type": "lz4",
    "transaction.timeout.ms": "900000",
}
ABORTING = {
    "transactional.id": "aborting",
    "compression.type": "none",
    "transaction.timeout.ms": "900000",
}
OPEN = {"transactional.id": "open", "transaction.timeout.ms": "900000"}
PLAIN = {"enable.idempotence": "false", "batch.size": "2000"}
IDEMPOTENT = {"enable.idempotence": "true", "batch.size": "2000"}


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenPartition:
    """One partition and the records that were written to it."""

    topic: str
    partition: int
    topic_id: str  # Kafka's base64 form
    written: tuple[WrittenRecord, ...]  # in offset order, with aborted records but without markers
    aborted_offsets: frozenset[int] = frozenset()  # of records whose transaction was aborted
    open_offsets: frozenset[int] = frozenset()  # offsets of records whose transaction never ended
    log_end_offset: int = 0

    @property
    def directory_name(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaData:
    """A stopped data directory; `root/data` holds the logs, `root` can be started again."""

    root: Path
    partitions: Mapping[str, WrittenPartition]  # keyed by directory name

    @property
    def data(self) -> Path:
        return self.root / "data"

    def directory(self, name: str) -> Path:
        return self.data / name

    def copy_to(self, root: Path) -> KafkaData:
        """A copy that a test may change."""
        copy_tree(self.root, root)
        return replace(self, root=root)


@dataclass(frozen=True, slots=True, kw_only=True)
class Corpus:
    """Both copies; read only, tests copy what they change."""

    clean: KafkaData
    killed: KafkaData


def write_corpus(jars: KafkaJars, work: Path) -> Corpus:
    """Start Kafka, write, stop, copy; start again, write more, kill, copy."""
    broker = KafkaBroker(jars, work / "node", BROKER_PROPERTIES)
    with broker, KafkaClients(jars, broker.bootstrap, work / "first.log") as clients:
        journal = _Journal(clients)
        _create_topics(journal)
        _write_codecs(journal, count=600, seed=1)
        _write_transactions(journal, rounds=6)
        _write_compacted(journal, broker)
        first = journal.partitions()
    clean = KafkaData(root=work / "clean", partitions=first)
    copy_tree(broker.directory, clean.root)
    broker.start()
    try:
        with KafkaClients(jars, broker.bootstrap, work / "second.log") as clients:
            journal.continue_with(clients)
            _write_codecs(journal, count=60, seed=2)
            _write_transactions(journal, rounds=2)
            _leave_a_transaction_open(journal)
            second = journal.partitions()
    finally:
        broker.kill()
    killed = KafkaData(root=work / "killed", partitions=second)
    copy_tree(broker.directory, killed.root)
    return Corpus(clean=clean, killed=killed)


def make_records(count: int, *, seed: int, keys: int | None = None) -> Iterator[NewRecord]:
    """Records of every shape: with and without key, value, headers; times that step back."""
    for number in range(count):
        digest = hashlib.sha256(f"{seed}/{number}".encode()).hexdigest().encode()
        key_number = number if keys is None else int(digest[:8], 16) % keys
        yield NewRecord(
            key=None if keys is None and number % 7 == 3 else b"key-%d" % key_number,
            value=None if number % 11 == 5 else digest * (1 + number % 4),
            headers=_HEADERS if number % 3 == 0 else (),
            timestamp_ms=BASE_TIME_MS + number * 7 - (number % 5) * 20,
        )


_HEADERS = (("twice", b"1"), ("twice", b"2"), ("nothing", None), ("empty", b""))


def copy_tree(source: Path, target: Path) -> None:
    """Copy a directory; the zero tails of preallocated indexes stay holes."""
    subprocess.run(["cp", "-a", "--sparse=always", str(source), str(target)], check=True)


@dataclass(slots=True)
class _Journal:
    """The records written so far; owned by write_corpus."""

    clients: KafkaClients
    topic_ids: dict[str, str] = field(default_factory=dict)
    written: dict[tuple[str, int], list[WrittenRecord]] = field(default_factory=dict)
    aborted: dict[str, set[int]] = field(default_factory=dict)
    still_open: dict[str, set[int]] = field(default_factory=dict)

    def continue_with(self, clients: KafkaClients) -> None:
        self.clients = clients

    def create(self, topic: str, *, partitions: int = 1, **config: str) -> None:
        self.topic_ids[topic] = self.clients.create_topic(topic, partitions=partitions, **config)
        for partition in range(partitions):
            self.written[topic, partition] = []

    def send(
        self,
        topic: str,
        records: Sequence[NewRecord],
        *,
        partition: int = 0,
        producer: Mapping[str, str],
    ) -> set[int]:
        written = self.clients.send(topic, records, partition=partition, producer=producer)
        self.written[topic, partition].extend(written)
        return {record.offset for record in written}

    def partitions(self) -> dict[str, WrittenPartition]:
        return {
            f"{topic}-{number}": self._partition(topic, number) for topic, number in self.written
        }

    def _partition(self, topic: str, partition: int) -> WrittenPartition:
        _, log_end_offset = self.clients.consume(topic, partition=partition)
        return WrittenPartition(
            topic=topic,
            partition=partition,
            topic_id=self.topic_ids[topic],
            written=tuple(sorted(self.written[topic, partition])),
            aborted_offsets=frozenset(self.aborted.get(topic, ())),
            open_offsets=frozenset(self.still_open.get(topic, ())),
            log_end_offset=log_end_offset,
        )


def _create_topics(journal: _Journal) -> None:
    segment = str(SEGMENT_BYTES)
    for number, topic in enumerate(CODEC_TOPICS):
        interval = "4096" if number % 2 == 0 else "256"
        journal.create(topic, internal__segment__bytes=segment, index__interval__bytes=interval)
    journal.create(TRANSACTIONS, internal__segment__bytes=segment, index__interval__bytes="512")
    journal.create(
        COMPACTED,
        internal__segment__bytes=segment,
        index__interval__bytes="512",
        cleanup__policy="compact",
        min__cleanable__dirty__ratio="0.01",
    )
    journal.create(APPEND_TIME, message__timestamp__type="LogAppendTime")
    journal.create(TWO_PARTITIONS, partitions=2)


def _write_codecs(journal: _Journal, *, count: int, seed: int) -> None:
    records = list(make_records(count, seed=seed))
    for codec, topic in zip(CODECS, CODEC_TOPICS, strict=True):
        maker = PLAIN if codec in ("none", "gzip") else IDEMPOTENT
        journal.send(topic, records, producer=maker | {"compression.type": codec})
    few = records[:20]
    journal.send(APPEND_TIME, few, producer=PLAIN)
    for partition in range(2):
        journal.send(TWO_PARTITIONS, few[partition:], partition=partition, producer=PLAIN)


def _write_transactions(journal: _Journal, *, rounds: int, topic: str = TRANSACTIONS) -> None:
    for number in range(rounds):
        records = list(make_records(24, seed=100 + number))
        journal.clients.begin(COMMITTING)
        journal.clients.begin(ABORTING)
        journal.send(topic, records[:8], producer=COMMITTING)
        aborted = journal.send(topic, records[8:16], producer=ABORTING)
        journal.send(topic, records[16:], producer=IDEMPOTENT)
        if number % 2:
            journal.clients.commit(COMMITTING)
        aborted |= journal.send(topic, records[:8], producer=ABORTING)
        journal.aborted.setdefault(topic, set()).update(aborted)
        journal.clients.abort(ABORTING)
        if number % 2 == 0:
            journal.clients.commit(COMMITTING)


def _leave_a_transaction_open(journal: _Journal) -> None:
    journal.clients.begin(OPEN)
    sent = journal.send(TRANSACTIONS, list(make_records(5, seed=9)), producer=OPEN)
    journal.still_open.setdefault(TRANSACTIONS, set()).update(sent)
    journal.send(TRANSACTIONS, list(make_records(5, seed=10)), producer=IDEMPOTENT)


def _write_compacted(journal: _Journal, broker: KafkaBroker) -> None:
    """Write keyed data, some of it aborted, and wait until Kafka's cleaner has compacted it."""
    journal.send(COMPACTED, list(make_records(300, seed=3, keys=40)), producer=IDEMPOTENT)
    keyed = list(make_records(16, seed=4, keys=40))
    journal.clients.begin(ABORTING)
    journal.aborted[COMPACTED] = journal.send(COMPACTED, keyed[:8], producer=ABORTING)
    journal.clients.abort(ABORTING)
    journal.clients.begin(COMMITTING)
    journal.send(COMPACTED, keyed[8:], producer=COMMITTING)
    journal.clients.commit(COMMITTING)
    journal.send(COMPACTED, list(make_records(150, seed=5, keys=40)), producer=PLAIN)
    journal.send(COMPACTED, list(make_records(150, seed=6, keys=40)), producer=PLAIN)
    _wait_until_cleaned(broker, f"{COMPACTED}-0")


def _wait_until_cleaned(broker: KafkaBroker, name: str) -> None:
    """Waits until a pass has reached the active segment; the number of passes depends on timing."""
    active = max(int(path.stem) for path in (broker.data / name).glob("*.log"))
    # "cleaned log compacted-0 (dirty section = [254, 595])"; no other log has enough to clean.
    broker.wait_line(f", {active}])")
