"""A transactional producer, request by request, and what consumers see of its records.

The versions are those of librdkafka, of Java with transactions v1 and of Java with v2.
"""

import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any, NamedTuple

from tests.scenarios.raw_client import RawClient, request_frame
from tests.unit.apis.harness import batch

from penstock.model.errors import ErrorCode, get_error
from penstock.protocol.api_keys import ApiKey
from penstock.protocol.batch import iter_headers
from penstock.protocol.records import iter_records

NONE = ErrorCode.NONE
PATIENCE_S = 180.0
FETCH_VERSION = 11
TIMEOUT = timedelta(seconds=60)
PASSING = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.NOT_ENOUGH_REPLICAS,
}


class Versions(NamedTuple):
    init: int
    add: int | None  # None: a write adds its partition (transactions v2)
    add_offsets: int
    produce: int
    commit_offsets: int
    end: int


CLIENTS = {
    "librdkafka": Versions(4, 0, 0, 10, 3, 1),
    "Java, transactions v1": Versions(4, 3, 3, 11, 4, 4),
    "Java, transactions v2": Versions(5, None, 4, 12, 5, 5),
}


class Client:
    """A transactional producer; every call returns the first code that is not transient."""

    def __init__(self, raw: RawClient, name: str, versions: Versions) -> None:
        self.raw = raw
        self.name = name
        self.versions = versions
        self.producer = self.epoch = -1
        self.sequences: dict[tuple[str, int], int] = {}

    def init(self) -> ErrorCode:
        self.raw.ask(ApiKey.FIND_COORDINATOR, 1, key=self.name, key_type=1)
        response = retried(
            lambda: self.raw.ask(
                ApiKey.INIT_PRODUCER_ID,
                self.versions.init,
                transactional_id=self.name,
                transaction_timeout=TIMEOUT,
                producer_id=-1,
                producer_epoch=-1,
            )
        )
        self.producer, self.epoch = response.producer_id, response.producer_epoch
        self.sequences.clear()
        return get_error(response.error_code)

    def add(self, topic: str, partition: int) -> ErrorCode:
        """Transactions v1 only."""
        if self.versions.add is None:
            return NONE
        named = [{"name": topic, "partitions": [partition]}]
        return retried_code(
            lambda: (
                self.raw.ask(
                    ApiKey.ADD_PARTITIONS_TO_TXN,
                    self.versions.add,
                    v3_and_below_transactional_id=self.name,
                    v3_and_below_producer_id=self.producer,
                    v3_and_below_producer_epoch=self.epoch,
                    v3_and_below_topics=named,
                )
                .results_by_topic_v3_and_below[0]
                .results_by_partition[0]
                .partition_error_code
            )
        )

    def write(self, topic: str, partition: int, value: bytes) -> ErrorCode:
        sequence = self.sequences.get((topic, partition), 0)
        code = self.send(topic, partition, value, sequence=sequence, epoch=self.epoch)
        if code is NONE:
            self.sequences[topic, partition] = sequence + 1
        return code

    def send(
        self, topic: str, partition: int, value: bytes, *, sequence: int, epoch: int
    ) -> ErrorCode:
        records = batch(
            value,
            producer_id=self.producer,
            producer_epoch=epoch,
            base_sequence=sequence,
            transactional=True,
        )
        named = [{"name": topic, "partition_data": [{"index": partition, "records": records}]}]
        return retried_code(
            lambda: (
                self.raw.ask(
                    ApiKey.PRODUCE,
                    self.versions.produce,
                    acks=-1,
                    timeout=timedelta(seconds=10),
                    transactional_id=self.name,
                    topic_data=named,
                )
                .responses[0]
                .partition_responses[0]
                .error_code
            )
        )

    def commit_offset(self, group: str, topic: str, offset: int, **who: Any) -> ErrorCode:
        about = {
            "transactional_id": self.name,
            "producer_id": self.producer,
            "producer_epoch": self.epoch,
            "group_id": group,
        }
        self.raw.ask(ApiKey.FIND_COORDINATOR, 1, key=group, key_type=0)
        if self.versions.add is not None:
            added = retried_code(
                lambda: (
                    self.raw.ask(
                        ApiKey.ADD_OFFSETS_TO_TXN, self.versions.add_offsets, **about
                    ).error_code
                )
            )
            assert added is NONE
        entry = {"partition_index": 0, "committed_offset": offset, "committed_metadata": ""}
        return retried_code(
            lambda: (
                self.raw.ask(
                    ApiKey.TXN_OFFSET_COMMIT,
                    self.versions.commit_offsets,
                    topics=[{"name": topic, "partitions": [entry]}],
                    **{"generation_id": -1, "member_id": "", **about, **who},
                )
                .topics[0]
                .partitions[0]
                .error_code
            )
        )

    def end(self, *, commit: bool) -> ErrorCode:
        response = retried(
            lambda: self.raw.ask(
                ApiKey.END_TXN,
                self.versions.end,
                transactional_id=self.name,
                producer_id=self.producer,
                producer_epoch=self.epoch,
                committed=commit,
            )
        )
        code = get_error(response.error_code)
        if code is NONE and self.versions.add is None:
            self.producer, self.epoch = response.producer_id, response.producer_epoch
            self.sequences.clear()
        return code


def retried(ask: Callable[[], Any]) -> Any:
    """Retries until the response is not transient."""
    ends_s = time.monotonic() + PATIENCE_S
    while True:
        response = ask()
        if get_error(response.error_code) not in PASSING or time.monotonic() > ends_s:
            return response
        time.sleep(0.02)


class _Code(NamedTuple):
    error_code: int


def retried_code(ask: Callable[[], Any]) -> ErrorCode:
    return get_error(retried(lambda: _Code(int(ask()))).error_code)


# -- what consumers see -------------------------------------------------------------------------


class CommittedReader:
    """Filters fetched records by the rules of read_committed."""

    def __init__(self) -> None:
        self.offset = 0
        self.values: list[bytes] = []
        self._skipped: set[int] = set()  # producers within an aborted transaction

    def take(self, fetched: Any) -> None:
        """Processes the response to a fetch at `offset`."""
        data = bytes(fetched.records or b"")
        aborted = sorted(
            (transaction.first_offset, transaction.producer_id)
            for transaction in fetched.aborted_transactions or ()
        )
        for position, header in iter_headers(data):
            while aborted and aborted[0][0] <= header.base_offset:
                self._skipped.add(aborted.pop(0)[1])
            content = data[position : position + header.size]
            if header.is_control:
                self._skipped.discard(header.producer_id)
            elif header.producer_id not in self._skipped:
                self.values += [record.value or b"" for record in iter_records(content)]
            self.offset = header.next_offset


def read_committed(raw: RawClient, topic: str, partition: int = 0) -> list[bytes]:
    reader = CommittedReader()
    while (fetched := fetch(raw, topic, partition, reader.offset)).records:
        reader.take(fetched)
    return reader.values


def fetch(raw: RawClient, topic: str, partition: int, offset: int) -> Any:
    """Fetches without waiting."""
    return begin_fetch(raw, topic, partition, offset, wait_s=0)()


def begin_fetch(
    raw: RawClient, topic: str, partition: int, offset: int, *, wait_s: float
) -> Callable[[], Any]:
    """Sends a read_committed fetch; the returned function reads the response."""
    requested = {
        "partition": partition,
        "current_leader_epoch": -1,
        "fetch_offset": offset,
        "partition_max_bytes": 1 << 20,
    }
    frame = request_frame(
        ApiKey.FETCH,
        FETCH_VERSION,
        replica_id=-1,
        max_wait=timedelta(seconds=wait_s),
        max_bytes=1 << 20,
        min_bytes=1,
        isolation_level=1,
        topics=[{"topic": topic, "partitions": [requested]}],
    )
    raw.send(frame)
    return lambda: raw.read_response(ApiKey.FETCH, FETCH_VERSION, 0).responses[0].partitions[0]


def stable_offset(raw: RawClient, topic: str, partition: int = 0, *, isolation: int = 1) -> int:
    response = raw.ask(
        ApiKey.LIST_OFFSETS,
        7,
        replica_id=-1,
        isolation_level=isolation,
        topics=[
            {
                "name": topic,
                "partitions": [
                    {"partition_index": partition, "timestamp": -1, "current_leader_epoch": -1}
                ],
            }
        ],
    )
    return int(response.topics[0].partitions[0].offset)


def settled(raw: RawClient, topic: str, partition: int = 0) -> int:
    """The log end offset, once the markers of every transaction are written."""
    ends_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < ends_s:
        stable, end = (
            stable_offset(raw, topic, partition, isolation=isolation) for isolation in (1, 0)
        )
        if stable == end:
            return end
        time.sleep(0.02)
    raise AssertionError(f"{topic}-{partition} is not stable: {stable} of {end}")


def committed_offset(raw: RawClient, group: str, topic: str) -> tuple[int, ErrorCode]:
    response = raw.ask(
        ApiKey.OFFSET_FETCH,
        7,
        group_id=group,
        topics=[{"name": topic, "partition_indexes": [0]}],
        require_stable=True,
    )
    result = response.topics[0].partitions[0]
    return result.committed_offset, get_error(result.error_code)


def stable_committed_offset(raw: RawClient, group: str, topic: str) -> int:
    """The committed offset, once no transaction makes it unstable."""
    ends_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < ends_s:
        offset, code = committed_offset(raw, group, topic)
        if code is NONE:
            return offset
        time.sleep(0.02)
    raise AssertionError(f"the offset of {group} stays undecided: {code.name}")
