"""Connections of a process of Spark's to clusters: one event loop on a thread of its own, and the
clients on it, kept for whoever asks next with the same settings.

Spark's processes come from forks and live for many tasks. Invariant: a process never touches a loop
or a socket of the process that it was forked from.
"""

import asyncio
import atexit
import os
import threading
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import NamedTuple, TypeVar

from penstock.client.address import parse_bootstrap
from penstock.client.cluster import ClusterClient
from penstock.client.connection import ConnectionLimits
from penstock.client.data_calls import (
    FetchedPartition,
    FetchFrom,
    IsolationLevel,
    ListedOffset,
    Produced,
)
from penstock.client.errors import ClientClosed, InvalidAddress
from penstock.client.group_values import CommittedOffset
from penstock.client.metadata import ClusterMetadata
from penstock.model.ids import TopicPartition
from penstock.protocol.batch import Buffer
from penstock.spark.errors import BadOption, SparkSourceError
from penstock.spark.option_values import RawOptions

_Result = TypeVar("_Result")
# What a client does is bounded by its own deadlines; this is for a loop that does not turn.
_GRACE_MS = 10_000
_CLOSE_TIMEOUT_S = 5.0


# Kafka's names of what a client can be told here.
CLIENT_OPTIONS = (
    *("bootstrap.servers", "security.protocol", "client.id", "request.timeout.ms"),
    *("metadata.max.age.ms", "retry.backoff.ms", "socket.connection.setup.timeout.ms"),
)


class ClientSettings(NamedTuple):
    bootstrap: str
    client_id: str = "penstock-spark"
    request_timeout_ms: int = 30_000  # for all attempts of one operation together
    metadata_max_age_ms: int = 300_000
    retry_backoff_ms: int = 100
    connect_timeout_ms: int = 10_000


def client_settings(options: Mapping[str, str]) -> ClientSettings:
    """Of Kafka's client options, with or without `kafka.` before them, those that matter here."""
    given = RawOptions(options)
    protocol = given.find_kafka("security.protocol") or "PLAINTEXT"
    if protocol.upper() != "PLAINTEXT":
        raise BadOption(
            "kafka.security.protocol",
            protocol,
            "only PLAINTEXT is built so far; connect to a PLAINTEXT listener of the cluster",
        )
    bootstrap = given.find_kafka("bootstrap.servers")
    if not bootstrap:
        raise SparkSourceError(
            "option kafka.bootstrap.servers is missing: say where the cluster is, for example "
            '.option("kafka.bootstrap.servers", "127.0.0.1:9092")'
        )
    try:
        parse_bootstrap(bootstrap)
    except InvalidAddress as error:
        raise BadOption("kafka.bootstrap.servers", bootstrap, str(error)) from None
    default = ClientSettings(bootstrap)
    milliseconds = given.positive_kafka
    return ClientSettings(
        bootstrap=bootstrap,
        client_id=given.find_kafka("client.id") or default.client_id,
        request_timeout_ms=milliseconds("request.timeout.ms", default.request_timeout_ms),
        metadata_max_age_ms=milliseconds("metadata.max.age.ms", default.metadata_max_age_ms),
        retry_backoff_ms=milliseconds("retry.backoff.ms", default.retry_backoff_ms),
        connect_timeout_ms=milliseconds(
            "socket.connection.setup.timeout.ms", default.connect_timeout_ms
        ),
    )


def shared_client(settings: ClientSettings) -> "BlockingClient":
    """This process's client with these settings; nothing is connected before it is asked."""
    # One atomic step: of two threads that come first, both get the same.
    return _processes.setdefault(os.getpid(), _Process()).get_client(settings)


class BlockingClient:
    """A ClusterClient for threads: each call waits for its result, a ClientError or the time limit.

    `start` does not wait: its future is how many operations are kept in flight.
    """

    def __init__(self, settings: ClientSettings, loop: "_LoopThread") -> None:
        self.settings = settings
        self.groups = BlockingGroups(self)
        self._loop = loop
        self._client = ClusterClient(
            settings.bootstrap,
            client_id=settings.client_id,
            request_timeout_ms=settings.request_timeout_ms,
            metadata_max_age_ms=settings.metadata_max_age_ms,
            retry_backoff_ms=settings.retry_backoff_ms,
            limits=ConnectionLimits(connect_timeout_ms=settings.connect_timeout_ms),
        )

    def metadata(
        self, topics: Iterable[str] | None = None, *, allow_auto_creation: bool = False
    ) -> ClusterMetadata:
        """Asked now. None: every topic. A topic that does not exist is there with its error."""
        return self.run(
            lambda client: client.metadata(topics, allow_auto_creation=allow_auto_creation)
        )

    def list_offsets(
        self,
        wanted: Mapping[TopicPartition, int],
        *,
        isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    ) -> dict[TopicPartition, ListedOffset]:
        """EARLIEST, LATEST, MAX_TIMESTAMP or a time in milliseconds for each partition."""
        return self.run(lambda client: client.list_offsets(wanted, isolation=isolation))

    def fetch(
        self,
        wanted: Sequence[FetchFrom],
        *,
        isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
        max_wait_ms: int = 500,
        min_bytes: int = 1,
        max_bytes: int = 50 * 1024 * 1024,
    ) -> list[FetchedPartition]:
        """`start(lambda client: client.fetch(...))` fetches while others are read."""
        return self.run(
            lambda client: client.fetch(
                wanted,
                isolation=isolation,
                max_wait_ms=max_wait_ms,
                min_bytes=min_bytes,
                max_bytes=max_bytes,
            ),
            timeout_ms=max_wait_ms + self.settings.request_timeout_ms,
        )

    def produce(self, partition: TopicPartition, batch: Buffer, *, acks: int = -1) -> Produced:
        """One record batch, as it is."""
        return self.run(lambda client: client.produce(partition, batch, acks=acks))

    def run(
        self,
        work: Callable[[ClusterClient], Awaitable[_Result]],
        *,
        timeout_ms: int | None = None,
    ) -> _Result:
        """Any other operation: `run(lambda client: client.admin.delete_topics([name]))`."""
        limit_ms = self.settings.request_timeout_ms if timeout_ms is None else timeout_ms
        future = self.start(work)
        try:
            return future.result((limit_ms + _GRACE_MS) / 1000)
        finally:
            future.cancel()  # what nobody waits for any more; a finished one is left as it is

    def start(self, work: Callable[[ClusterClient], Awaitable[_Result]]) -> "Future[_Result]":
        async def operate() -> _Result:
            return await work(self._client)

        return self._loop.submit(operate)

    def close(self) -> "Future[None]":
        return self._loop.submit(self._client.close)


class BlockingGroups:
    """Committed offsets of consumer groups."""

    def __init__(self, client: BlockingClient) -> None:
        self._client = client

    def fetch_offsets(
        self, group: str, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, CommittedOffset]:
        """Partitions without a committed offset are left out. None: all that have one."""
        return self._client.run(lambda client: client.groups.fetch_offsets(group, partitions))

    def commit_offsets(self, group: str, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """Refused with UNKNOWN_MEMBER_ID while the group has members."""
        self._client.run(lambda client: client.groups.commit_offsets(group, offsets))


class _Process:
    """What one process has; made cheaply, so that it may be made once too often."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: _LoopThread | None = None
        self._clients: dict[ClientSettings, BlockingClient] = {}

    def get_client(self, settings: ClientSettings) -> BlockingClient:
        with self._lock:
            self._loop = self._loop or _LoopThread()
            client = self._clients.get(settings)
            if client is None:
                client = self._clients[settings] = BlockingClient(settings, self._loop)
            return client

    def close(self) -> None:
        with self._lock:
            clients, self._clients = list(self._clients.values()), {}
            loop, self._loop = self._loop, None
        for future in [client.close() for client in clients]:
            future.result(_CLOSE_TIMEOUT_S)
        if loop is not None:
            loop.stop()


class _LoopThread:
    """An event loop that turns on a thread of its own until it is stopped."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._turn, name="penstock-connections", daemon=True)
        self._thread.start()

    def submit(self, work: Callable[[], Awaitable[_Result]]) -> "Future[_Result]":
        assert threading.current_thread() is not self._thread, "would wait for itself"

        async def operate() -> _Result:
            return await work()

        coroutine = operate()
        try:
            return asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        except RuntimeError:  # the loop is closed
            coroutine.close()
            raise ClientClosed("the connections of this process were closed") from None

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_CLOSE_TIMEOUT_S)

    def _turn(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
            self._loop.run_until_complete(_cancel_the_rest())
        finally:
            self._loop.close()


async def _cancel_the_rest() -> None:
    """Who still waits is told, so that nothing is left half done."""
    rest = asyncio.all_tasks() - {asyncio.current_task()}
    for task in rest:
        task.cancel()
    await asyncio.gather(*rest, return_exceptions=True)


# By process id. What was inherited by a fork stays here untouched: to end it, even to collect it as
# garbage, would reach into the parent's sockets.
_processes: dict[int, _Process] = {}


@atexit.register
def close_connections() -> None:
    """Of this process; the next who asks for a client gets a new one."""
    process = _processes.pop(os.getpid(), None)
    if process is not None:
        process.close()
