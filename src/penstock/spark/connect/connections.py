"""Connections of a Spark process to clusters: an event loop on its own thread, and clients on it
that are shared by all callers with the same settings.

Spark forks its Python processes and reuses them for many tasks. Invariant: a process never touches
an event loop or a socket of the process that it was forked from.
"""

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
from penstock.client.errors import InvalidAddress, InvalidClientConfig
from penstock.client.group_values import CommittedOffset
from penstock.client.loop_thread import LoopThread
from penstock.client.metadata import ClusterMetadata
from penstock.client.security.config import PLAINTEXT, ClientSecurity
from penstock.client.security.properties import is_security_setting, parse_client_security
from penstock.model.ids import TopicPartition
from penstock.protocol.batch import Buffer
from penstock.spark.connect.cluster_security import security_of
from penstock.spark.errors import BadOption, SparkSourceError
from penstock.spark.option_values import RawOptions

_Result = TypeVar("_Result")
# A client's operations have their own deadlines; this one is for an event loop that hangs.
_GRACE_MS = 10_000
_CLOSE_TIMEOUT_S = 5.0


# The client configs that are supported here, by Kafka's names.
CLIENT_OPTIONS = (
    *("bootstrap.servers", "client.id", "request.timeout.ms"),
    *("metadata.max.age.ms", "retry.backoff.ms", "socket.connection.setup.timeout.ms"),
)


class ClientSettings(NamedTuple):
    bootstrap: str
    client_id: str = "penstock-spark"
    request_timeout_ms: int = 30_000  # per operation, including retries
    metadata_max_age_ms: int = 300_000
    retry_backoff_ms: int = 100
    connect_timeout_ms: int = 10_000
    security: ClientSecurity = PLAINTEXT


def settings_of(bootstrap: str, *, request_timeout_ms: int = 30_000) -> ClientSettings:
    """For a client that no options describe. Raises InvalidClientConfig."""
    return ClientSettings(
        bootstrap, request_timeout_ms=request_timeout_ms, security=security_of(bootstrap)
    )


def client_settings(options: Mapping[str, str]) -> ClientSettings:
    """Read Kafka's client configs, with or without the prefix `kafka.`."""
    raw = RawOptions(options)
    bootstrap = raw.find_kafka("bootstrap.servers")
    if not bootstrap:
        raise SparkSourceError(
            "option kafka.bootstrap.servers is missing: name the cluster's brokers, for example "
            '.option("kafka.bootstrap.servers", "127.0.0.1:9092")'
        )
    try:
        parse_bootstrap(bootstrap)
    except InvalidAddress as error:
        raise BadOption("kafka.bootstrap.servers", bootstrap, str(error)) from None
    default = ClientSettings(bootstrap)
    try:
        security = parse_client_security(raw.all_kafka(is_security_setting))
    except InvalidClientConfig as error:
        raise SparkSourceError(f"kafka.* options: {error}") from None
    milliseconds = raw.positive_kafka
    return ClientSettings(
        bootstrap=bootstrap,
        client_id=raw.find_kafka("client.id") or default.client_id,
        request_timeout_ms=milliseconds("request.timeout.ms", default.request_timeout_ms),
        metadata_max_age_ms=milliseconds("metadata.max.age.ms", default.metadata_max_age_ms),
        retry_backoff_ms=milliseconds("retry.backoff.ms", default.retry_backoff_ms),
        connect_timeout_ms=milliseconds(
            "socket.connection.setup.timeout.ms", default.connect_timeout_ms
        ),
        security=security,
    )


def shared_client(settings: ClientSettings) -> "BlockingClient":
    """This process's client with these settings. It connects on first use."""
    # One atomic step, so that two threads that come first get the same one.
    return _processes.setdefault(os.getpid(), _Process()).get_client(settings)


class BlockingClient:
    """A ClusterClient for threads: each call blocks until its result, a ClientError or the timeout.

    `start` does not block; its futures keep several operations in flight.
    """

    def __init__(self, settings: ClientSettings, loop: LoopThread) -> None:
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
            security=settings.security,
        )

    def metadata(
        self, topics: Iterable[str] | None = None, *, allow_auto_creation: bool = False
    ) -> ClusterMetadata:
        """Fresh metadata. None: all topics. A topic that does not exist is included with its
        error."""
        return self.run(
            lambda client: client.metadata(topics, allow_auto_creation=allow_auto_creation)
        )

    def list_offsets(
        self,
        wanted: Mapping[TopicPartition, int],
        *,
        isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    ) -> dict[TopicPartition, ListedOffset]:
        """`wanted`: EARLIEST, LATEST, MAX_TIMESTAMP or a timestamp in ms for each partition."""
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
        """Blocking; `start(lambda client: client.fetch(...))` fetches ahead."""
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

    def produce(self, tp: TopicPartition, batch: Buffer, *, acks: int = -1) -> Produced:
        """One record batch, sent unchanged."""
        return self.run(lambda client: client.produce(tp, batch, acks=acks))

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
            future.cancel()  # after a timeout; no effect on a finished one

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
        """Omits partitions without a committed offset. None: all partitions of the group."""
        return self._client.run(lambda client: client.groups.fetch_offsets(group, partitions))

    def commit_offsets(self, group: str, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """Rejected with UNKNOWN_MEMBER_ID while the group has members."""
        self._client.run(lambda client: client.groups.commit_offsets(group, offsets))


class _Process:
    """The clients of one process; cheap to create, because a racing thread may create another."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: LoopThread | None = None
        self._clients: dict[ClientSettings, BlockingClient] = {}

    def get_client(self, settings: ClientSettings) -> BlockingClient:
        with self._lock:
            self._loop = self._loop or LoopThread("penstock-connections")
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


# By process id. Entries inherited through a fork stay here untouched: closing them, or even
# garbage-collecting them, would affect the parent's sockets.
_processes: dict[int, _Process] = {}


@atexit.register
def close_connections() -> None:
    """Close this process's connections; the next `shared_client` opens new ones."""
    process = _processes.pop(os.getpid(), None)
    if process is not None:
        process.close()
