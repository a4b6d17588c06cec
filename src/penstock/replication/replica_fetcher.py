"""Fetches from leaders over the network: one task and connection per leader, for all partitions.

`FollowerState` decides what to fetch and applies what comes; here are connections, backoff and
time-outs. Without a fetch session (KIP-227): each request is complete, or names the next part of
very many partitions. Invariant: at most one request is in flight per leader.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import NamedTuple

from penstock.client.address import Address
from penstock.client.connection import BrokerConnection
from penstock.client.data_calls import FetchedPartition, FetchFrom, FetchOptions
from penstock.client.deadline import backoff_ms
from penstock.client.errors import ClientError, Disconnected
from penstock.client.follower_fetch import Answer, follower_fetch_call
from penstock.client.security.authenticator import Authenticator
from penstock.logs.event_logger import EventLogger
from penstock.model.cluster import BrokerEpoch, BrokerId
from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicId, TopicPartition
from penstock.replication.config import FollowerConfig
from penstock.replication.follower_state import FIRST_BACKOFF_MS, FollowerState

YIELD_BYTES = 1 << 20  # appended before other tasks get a turn
IDLE_MS = 60_000  # without partitions only news can end the wait
PARTITIONS_PER_REQUEST = 10_000  # a request may not name much more (docs/limits.md)
REPORTED_FAILURES = 4  # consecutive; fewer are normal while a leader starts or stops


class FetcherDependencies(NamedTuple):
    """Dependencies of a fetcher on its broker."""

    follower_state: FollowerState
    broker_id: BrokerId
    broker_epoch: Callable[[], BrokerEpoch]
    find_address: Callable[[BrokerId], Address | None]  # None: not registered
    topic_id_of: Callable[[TopicPartition], TopicId]  # of a partition on this broker
    config: Callable[[], FollowerConfig]
    now_ms: Callable[[], int]
    logger: EventLogger
    authenticator: Authenticator | None = None  # None: plaintext


def choose_part(
    wanted: Sequence[FetchFrom], turn: int, partitions_per_request: int = PARTITIONS_PER_REQUEST
) -> tuple[Sequence[FetchFrom], int]:
    """The partitions that one request names, and the number of parts that take turns."""
    parts = max(1, -(-len(wanted) // partitions_per_request))
    start = turn % parts * partitions_per_request
    return wanted[start : start + partitions_per_request], parts


class ReplicaFetcherManager:
    """One fetcher per leader. `run` is a task of the broker and ends with it."""

    def __init__(self, dependencies: FetcherDependencies) -> None:
        self._dependencies = dependencies
        self._fetchers: dict[BrokerId, _ReplicaFetcher] = {}
        self._has_news = asyncio.Event()
        self._has_news.set()
        dependencies.follower_state.on_news = self._on_news

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            while True:
                await self._has_news.wait()
                self._has_news.clear()
                for leader in self._dependencies.follower_state.leaders:
                    if leader not in self._fetchers:
                        fetcher = self._fetchers[leader] = _ReplicaFetcher(
                            self._dependencies, leader
                        )
                        tasks.create_task(fetcher.run(), name=f"fetch-from-{leader}")

    def _on_news(self, leader: BrokerId) -> None:
        fetcher = self._fetchers.get(leader)
        if fetcher is None:
            self._has_news.set()
        else:
            fetcher.wake()


class _ReplicaFetcher:
    """The fetcher of one leader. Without partitions it sleeps and has no connection."""

    def __init__(self, dependencies: FetcherDependencies, leader: BrokerId) -> None:
        self._dependencies = dependencies
        self._leader = leader
        self._has_news = asyncio.Event()
        self._connection: BrokerConnection | None = None
        self._has_request = False  # in flight; the leader may hold it for a while
        self._turn = 0  # which part of the partitions the next request names
        self._failures = 0  # consecutive
        self._has_reported = False  # failures are reported once, until a fetch succeeds

    async def run(self) -> None:
        try:
            while True:
                self._has_news.clear()
                wanted = self._dependencies.follower_state.list_wanted(self._leader)
                if wanted:
                    await self._fetch(wanted)
                else:
                    await self._wait_news(self._pause_ms())
        finally:
            self._hang_up()

    def wake(self) -> None:
        """New partitions do not wait for a request that the leader holds: it is given up."""
        self._has_news.set()
        if self._has_request:
            self._hang_up()

    # -- one request -----------------------------------------------------------------------

    async def _fetch(self, all_wanted: Sequence[FetchFrom]) -> None:
        wanted, parts = choose_part(all_wanted, self._turn)
        self._turn += 1
        try:
            fetched = await self._send(wanted, parts)
        except ClientError as error:
            self._hang_up()
            if not self._has_news.is_set():
                await self._back_off(error)
            return
        self._failures, self._has_reported = 0, False
        await self._apply(wanted, fetched)

    async def _send(self, wanted: Sequence[FetchFrom], parts: int) -> list[FetchedPartition]:
        # Before any await: a wanted partition may be deleted meanwhile.
        ids = {fetch.tp.topic: self._dependencies.topic_id_of(fetch.tp) for fetch in wanted}
        connection = await self._connect()
        if self._has_news.is_set():  # meanwhile: the leader might hold this request for long
            return []
        call = follower_fetch_call(wanted, self._options(parts), ids)
        self._has_request = True
        try:
            timeout_ms = self._dependencies.config().timeout_ms
            response: Answer = await connection.call(call, timeout_ms=timeout_ms)
        finally:
            self._has_request = False
        code, fetched = response
        if code is not ErrorCode.NONE:
            raise Disconnected(f"broker {self._leader} refuses the fetch: {code.name}")
        return fetched

    def _options(self, parts: int) -> FetchOptions:
        """The partitions of the other parts wait for this request: they share the waiting time."""
        config = self._dependencies.config()
        return FetchOptions(
            max_wait_ms=config.max_wait_ms // parts,
            min_bytes=config.min_bytes,
            max_bytes=config.response_max_bytes,
            replica_id=self._dependencies.broker_id,
            broker_epoch=self._dependencies.broker_epoch(),
        )

    async def _apply(
        self, wanted: Sequence[FetchFrom], fetched: Sequence[FetchedPartition]
    ) -> None:
        requested = {fetch.tp: fetch for fetch in wanted}
        appended_bytes = 0
        for data in fetched:
            fetch = requested.get(data.tp)
            if fetch is not None:
                self._dependencies.follower_state.apply(self._leader, fetch, data)
                appended_bytes += len(data.batches)
            if appended_bytes >= YIELD_BYTES:
                appended_bytes = 0
                await asyncio.sleep(0)

    # -- the connection --------------------------------------------------------------------

    async def _connect(self) -> BrokerConnection:
        if self._connection is None or not self._connection.is_open:
            address = self._dependencies.find_address(self._leader)
            if address is None:
                raise Disconnected(f"broker {self._leader} is not registered")
            client_id = f"broker-{self._dependencies.broker_id}-follower"
            self._connection = await BrokerConnection.open(
                address,
                client_id=client_id,
                authenticator=self._dependencies.authenticator,
            )
        return self._connection

    def _hang_up(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.abort()

    # -- backoff ---------------------------------------------------------------------------

    async def _back_off(self, error: ClientError) -> None:
        """Short and silent at first: LeaderAndIsr requests arrive before the leader's address."""
        self._failures += 1
        max_ms = self._dependencies.config().backoff_ms
        pause_ms = backoff_ms(self._failures, first_ms=FIRST_BACKOFF_MS, most_ms=max_ms)
        if self._failures >= REPORTED_FAILURES and not self._has_reported:
            self._has_reported = True
            self._dependencies.logger.warning(
                "fetch_failed",
                f"cannot fetch from broker {self._leader} ({error}); retrying",
                leader=self._leader,
            )
        await self._wait_news(pause_ms)

    def _pause_ms(self) -> int:
        if self._leader not in self._dependencies.follower_state.leaders:
            self._hang_up()
        due_ms = self._dependencies.follower_state.next_due_ms(self._leader)
        return IDLE_MS if due_ms is None else max(1, due_ms - self._dependencies.now_ms())

    async def _wait_news(self, pause_ms: int) -> None:
        try:
            async with asyncio.timeout(pause_ms / 1000):
                await self._has_news.wait()
        except TimeoutError:
            pass
