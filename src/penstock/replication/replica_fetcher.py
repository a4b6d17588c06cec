"""Fetches from leaders over the network: a task and a connection for each, however many partitions.

What is asked and what an answer does is `FollowerState`'s; here are connections, pauses and
time-outs. No session (KIP-227): each request says all. Invariant: a leader has one request of ours
at a time.
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
from penstock.model.cluster import BrokerEpoch, BrokerId
from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicId, TopicPartition
from penstock.replication.config import FollowerConfig
from penstock.replication.follower_state import FIRST_PAUSE_MS, FollowerState
from penstock.replication.topic_config import Report

YIELD_BYTES = 1 << 20  # appended before others have their turn
IDLE_MS = 60_000  # without partitions there is only news to wait for
REPORTED_FAILURES = 4  # in a row: until then it is a leader that comes or goes


class FetcherDependencies(NamedTuple):
    """What a fetcher needs of its broker."""

    follower_state: FollowerState
    broker_id: BrokerId
    broker_epoch: Callable[[], BrokerEpoch]
    find_address: Callable[[BrokerId], Address | None]  # None: not known yet, or not alive
    topic_id_of: Callable[[TopicPartition], TopicId]  # of one that lives here
    config: Callable[[], FollowerConfig]
    now_ms: Callable[[], int]
    report: Report


class ReplicaFetcherManager:
    """`run` is a task of the broker and ends with it. Owned by the event loop."""

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
    """Of one leader. Without partitions it sleeps, and keeps no connection."""

    def __init__(self, dependencies: FetcherDependencies, leader: BrokerId) -> None:
        self._dependencies = dependencies
        self._leader = leader
        self._has_news = asyncio.Event()
        self._connection: BrokerConnection | None = None
        self._is_asking = False  # a request is with the leader, which may hold it for a while
        self._failures = 0  # in a row
        self._has_reported = False  # what goes wrong is said once, until it works again

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
        """What is new does not wait until the leader has something for the others."""
        self._has_news.set()
        if self._is_asking:
            self._hang_up()

    # -- one request -----------------------------------------------------------------------

    async def _fetch(self, wanted: Sequence[FetchFrom]) -> None:
        try:
            fetched = await self._ask(wanted)
        except ClientError as error:
            self._hang_up()
            if not self._has_news.is_set():
                await self._rest_after(error)
            return
        self._failures, self._has_reported = 0, False
        await self._take(wanted, fetched)

    async def _ask(self, wanted: Sequence[FetchFrom]) -> list[FetchedPartition]:
        # Before anything is waited for: what is wanted lives here now, and may be deleted then.
        ids = {
            each.partition.topic: self._dependencies.topic_id_of(each.partition) for each in wanted
        }
        connection = await self._connect()
        if self._has_news.is_set():  # meanwhile: the leader might hold what is asked for long
            return []
        call = follower_fetch_call(wanted, self._options(), ids)
        self._is_asking = True
        try:
            timeout_ms = self._dependencies.config().timeout_ms
            answer: Answer = await connection.call(call, timeout_ms=timeout_ms)
        finally:
            self._is_asking = False
        code, fetched = answer
        if code is not ErrorCode.NONE:
            raise Disconnected(f"broker {self._leader} refuses the fetch: {code.name}")
        return fetched

    def _options(self) -> FetchOptions:
        settings = self._dependencies.config()
        return FetchOptions(
            max_wait_ms=settings.max_wait_ms,
            min_bytes=settings.min_bytes,
            max_bytes=settings.response_max_bytes,
            replica_id=self._dependencies.broker_id,
            broker_epoch=self._dependencies.broker_epoch(),
        )

    async def _take(self, wanted: Sequence[FetchFrom], fetched: Sequence[FetchedPartition]) -> None:
        asked = {each.partition: each for each in wanted}
        held_bytes = 0
        for each in fetched:
            if each.partition in asked:
                self._dependencies.follower_state.take(self._leader, asked[each.partition], each)
                held_bytes += len(each.batches)
            if held_bytes >= YIELD_BYTES:
                held_bytes = 0
                await asyncio.sleep(0)

    # -- the connection --------------------------------------------------------------------

    async def _connect(self) -> BrokerConnection:
        if self._connection is None or not self._connection.is_open:
            address = self._dependencies.find_address(self._leader)
            if address is None:
                raise Disconnected(f"broker {self._leader} is not known to be alive")
            client_id = f"broker-{self._dependencies.broker_id}-follower"
            self._connection = await BrokerConnection.open(address, client_id=client_id)
        return self._connection

    def _hang_up(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.abort()

    # -- pauses ----------------------------------------------------------------------------

    async def _rest_after(self, error: ClientError) -> None:
        """Briefly at first, and without a word: orders come before the leader's address does."""
        self._failures += 1
        most_ms = self._dependencies.config().backoff_ms
        pause_ms = backoff_ms(self._failures, first_ms=FIRST_PAUSE_MS, most_ms=most_ms)
        if self._failures >= REPORTED_FAILURES and not self._has_reported:
            self._has_reported = True
            self._dependencies.report(
                f"cannot fetch from broker {self._leader} ({error}); it is tried again"
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
