"""Finds the broker that a request belongs to, sends it, and retries elsewhere after leadership
moved.

Owns a client's metadata and connections; runs no task. Invariant: every attempt and every wait is
bounded by the caller's deadline.
"""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from penstock.client.address import Address
from penstock.client.call import Call, PrivateCall
from penstock.client.connection import ConnectionLimits
from penstock.client.connection_pool import ConnectionPool, Lane
from penstock.client.deadline import CHANCE, Deadline, backoff_ms
from penstock.client.errors import (
    ClientError,
    ConnectFailed,
    Disconnected,
    OutOfTime,
    RefusedByBroker,
    RequestTimedOut,
)
from penstock.client.metadata import (
    BrokerMetadata,
    ClusterMetadata,
    merge_topics,
    metadata_call,
    read_metadata,
)
from penstock.client.security.config import PLAINTEXT, ClientSecurity
from penstock.model.cluster import BrokerId
from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicPartition

Wanted = TypeVar("Wanted")
Answer = TypeVar("Answer")
_NEXT_BROKER_S = 1.0  # for an answer that any broker can give
# One broker's result for each of its partitions.
AskLeader = Callable[
    [BrokerMetadata, Mapping[TopicPartition, Wanted]],
    Awaitable[Mapping[TopicPartition, Answer | ClientError]],
]


@dataclass(frozen=True, slots=True, kw_only=True)
class RouterSettings:
    client_id: str = "penstock"
    request_timeout_ms: int = 30_000
    metadata_max_age_ms: int = 300_000
    retry_backoff_ms: int = 100
    max_retry_backoff_ms: int = 1_000
    limits: ConnectionLimits = field(default_factory=ConnectionLimits)
    security: ClientSecurity = PLAINTEXT


class Router:
    def __init__(self, bootstrap: tuple[Address, ...], settings: RouterSettings) -> None:
        self.settings = settings
        self.metadata = ClusterMetadata()  # as of the last refresh
        self._bootstrap = bootstrap
        self._links = ConnectionPool(
            client_id=settings.client_id, limits=settings.limits, security=settings.security
        )
        self._topics: set[str] = set()  # topics that this client uses
        self._refreshed_at = float("-inf")  # start of the last full refresh; monotonic
        self._asked_last: frozenset[str] = frozenset()  # topics of that refresh, existing or not
        self._stale_at = float("-inf")  # time of the last failure
        self._refreshing = asyncio.Lock()

    async def close(self) -> None:
        await self._links.close()

    def deadline(self, timeout_ms: int | None) -> Deadline:
        return Deadline(self.settings.request_timeout_ms if timeout_ms is None else timeout_ms)

    def mark_stale(self) -> None:
        """Something contradicted the metadata: refresh it before the next use."""
        self._stale_at = time.monotonic()

    # Metadata.

    async def get_current(self, topics: Collection[str], deadline: Deadline) -> ClusterMetadata:
        """Metadata that is neither stale nor too old, with these topics if they exist."""
        self._topics.update(topics)
        asked_at = time.monotonic()
        try:
            async with asyncio.timeout(deadline.left_ms / 1000), self._refreshing:
                if self._needs_refresh(topics, asked_at):
                    await self.refresh(self._topics, deadline)
        except TimeoutError:
            raise RequestTimedOut("no broker returned the cluster's metadata in time") from None
        return self.metadata

    def _needs_refresh(self, topics: Collection[str], asked_at: float) -> bool:
        if self._refreshed_at >= asked_at:  # another task refreshed meanwhile
            return not self._asked_last.issuperset(topics)
        age_ms = (time.monotonic() - self._refreshed_at) * 1000
        # Retries back off for longer; a caller that does not wait must not refresh every time.
        is_stale = self._stale_at > self._refreshed_at and (
            age_ms > self.settings.retry_backoff_ms / 2
        )
        is_old = age_ms > self.settings.metadata_max_age_ms
        return is_stale or is_old or not self.metadata.topics.keys() >= set(topics)

    async def refresh(
        self,
        topics: Collection[str] | None,
        deadline: Deadline,
        *,
        allow_auto_creation: bool = False,
    ) -> ClusterMetadata:
        """Fetch metadata now; the result has the requested topics, missing ones with their
        errors."""
        began_at = time.monotonic()
        call = metadata_call(topics, allow_auto_creation=allow_auto_creation)
        news = read_metadata(await self.ask_any(call, deadline))
        current = {} if topics is None else self.metadata.topics
        self.metadata = replace(news, topics=merge_topics(current, news.topics))
        self._links.keep_only({*self._known_addresses(), *self._bootstrap})
        requested = self._topics if topics is None else frozenset(topics)
        if requested >= self._topics:
            self._refreshed_at = began_at
            self._asked_last = frozenset(requested)
        return news

    def _known_addresses(self) -> list[Address]:
        return [node.address for node in self.metadata.brokers.values()]

    # Single requests.

    async def ask_any(self, call: Call, deadline: Deadline) -> Any:
        """Ask known brokers in random order, then the bootstrap addresses, until one answers. A
        broker that takes long does not hold the others up: the next one is asked beside it."""
        addresses = self._known_addresses()
        CHANCE.shuffle(addresses)
        waiting = deque(dict.fromkeys([*addresses, *self._bootstrap]))
        pending: set[asyncio.Task[Any]] = set()
        failures: list[ClientError] = []
        try:
            while waiting or pending:
                if waiting:
                    pending.add(asyncio.ensure_future(self.ask(waiting.popleft(), call, deadline)))
                done, pending = await asyncio.wait(
                    pending,
                    timeout=_NEXT_BROKER_S if waiting else None,
                    return_when=asyncio.FIRST_COMPLETED,
                )
                for task in done:
                    try:
                        return task.result()
                    except (ConnectFailed, Disconnected) as error:
                        failures.append(error)
        finally:
            for task in pending:
                task.cancel()
            await asyncio.gather(*pending, return_exceptions=True)
        raise failures[0] if len(failures) == 1 else _all_failed(failures)

    async def ask_controller(self, call: Call, deadline: Deadline) -> Any:
        metadata = await self.get_current((), deadline)
        controller = metadata.brokers.get(metadata.controller_id)
        if controller is None:
            raise RefusedByBroker(
                call.api_key.title, ErrorCode.NOT_CONTROLLER, "no controller is elected"
            )
        return await self.ask(controller.address, call, deadline)

    async def ask_broker(
        self, broker_id: BrokerId, call: Call | PrivateCall, deadline: Deadline
    ) -> Any:
        metadata = await self.get_current((), deadline)
        node = metadata.brokers.get(broker_id)
        if node is None:
            live = ", ".join(str(broker) for broker in sorted(metadata.brokers)) or "none"
            raise RefusedByBroker(
                call.api_key.title,
                ErrorCode.BROKER_NOT_AVAILABLE,
                f"broker {broker_id} is not registered; registered are: {live}",
            )
        return await self.ask(node.address, call, deadline)

    async def ask(
        self,
        address: Address,
        call: Call | PrivateCall,
        deadline: Deadline,
        *,
        lane: Lane = Lane.REQUESTS,
    ) -> Any:
        connection = await self._links.get(address, lane, deadline)
        return await connection.call(call, timeout_ms=deadline.left_ms)

    async def tell(self, address: Address, call: Call, deadline: Deadline) -> None:
        """Send a request that has no response."""
        connection = await self._links.get(address, Lane.REQUESTS, deadline)
        await connection.send(call, timeout_ms=deadline.left_ms)

    # Retries.

    async def persist(
        self, what: str, deadline: Deadline, attempt: Callable[[], Awaitable[Answer]]
    ) -> Answer:
        """Retry until an attempt succeeds, fails for good, or the deadline passes."""
        failures = 0
        last: ClientError | None = None
        while True:
            try:
                return await attempt()
            except ClientError as error:
                if not error.is_retriable:
                    raise
                self.mark_stale()
                failures += 1
                # An attempt that was cut off by the deadline explains less than the one before.
                if last is None or deadline.left_ms:
                    last = error
                wait_ms = backoff_ms(
                    failures,
                    first_ms=self.settings.retry_backoff_ms,
                    most_ms=self.settings.max_retry_backoff_ms,
                )
                if deadline.left_ms <= wait_ms:
                    raise deadline.out_of_time(what, last) from last
                await asyncio.sleep(wait_ms / 1000)

    async def persist_with_all(
        self,
        what: str,
        call: Call,
        read: Callable[[BrokerId, Any], Iterable[Answer]],
        deadline: Deadline,
    ) -> set[Answer]:
        """Union of all brokers' answers. If one fails all are asked again, because another broker
        may have taken over from it."""

        async def attempt() -> set[Answer]:
            answers: set[Answer] = set()
            metadata = await self.get_current((), deadline)
            for broker_id, node in metadata.brokers.items():
                answers.update(read(broker_id, await self.ask(node.address, call, deadline)))
            return answers

        return await self.persist(what, deadline, attempt)

    async def persist_with_leaders(
        self,
        what: str,
        wanted: Mapping[TopicPartition, Wanted],
        ask: AskLeader[Wanted, Answer],
        deadline: Deadline,
    ) -> dict[TopicPartition, Answer]:
        """Ask each partition's leader; only partitions that failed are retried."""
        done: dict[TopicPartition, Answer] = {}

        async def attempt() -> None:
            left = {tp: wanted[tp] for tp in wanted if tp not in done}
            answers = await self.ask_leaders(what, left, ask, deadline)
            failures = []
            for partition, answer in answers.items():
                if isinstance(answer, ClientError):
                    failures.append(answer)
                else:
                    done[partition] = answer
            if failures:
                raise min(failures, key=lambda error: error.is_retriable)

        await self.persist(what, deadline, attempt)
        return done

    async def settle_with_leaders(
        self,
        what: str,
        wanted: Mapping[TopicPartition, Wanted],
        ask: AskLeader[Wanted, Answer],
        deadline: Deadline,
    ) -> dict[TopicPartition, Answer | ClientError]:
        """Ask each partition's leader. A partition whose leader refuses for good, or does not
        answer in time, has its error; the others have their results."""
        settled: dict[TopicPartition, Answer | ClientError] = {}
        last: dict[TopicPartition, ClientError] = {}

        async def attempt() -> None:
            left = {tp: wanted[tp] for tp in wanted if tp not in settled}
            last.clear()
            for tp, answer in (await self.ask_leaders(what, left, ask, deadline)).items():
                if isinstance(answer, ClientError) and answer.is_retriable:
                    last[tp] = answer
                else:
                    settled[tp] = answer
            if last:
                raise next(iter(last.values()))

        try:
            await self.persist(what, deadline, attempt)
        except OutOfTime:
            if not settled:
                raise
            settled.update({tp: deadline.out_of_time(what, last[tp]) for tp in last})
            if len(settled) < len(wanted):
                raise
        return settled

    async def ask_leaders(
        self,
        what: str,
        wanted: Mapping[TopicPartition, Wanted],
        ask: AskLeader[Wanted, Answer],
        deadline: Deadline,
    ) -> dict[TopicPartition, Answer | ClientError]:
        """One attempt per partition, all leaders in parallel."""
        metadata = await self.get_current({tp.topic for tp in wanted}, deadline)
        answers: dict[TopicPartition, Answer | ClientError] = {}
        by_leader: dict[BrokerMetadata, dict[TopicPartition, Wanted]] = {}
        for partition, question in wanted.items():
            leader = metadata.find_leader(*partition)
            if leader is None:
                answers[partition] = _no_leader(what, metadata, partition)
            else:
                by_leader.setdefault(leader, {})[partition] = question

        async def ask_one(node: BrokerMetadata, part: Mapping[TopicPartition, Wanted]) -> None:
            try:
                got = await ask(node, part)
            except ClientError as error:
                got = dict.fromkeys(part, error)
            missing = Disconnected(f"{node.address} left this partition out of its response")
            answers.update({tp: got.get(tp, missing) for tp in part})

        if len(by_leader) == 1:
            await ask_one(*by_leader.popitem())
            return answers
        async with asyncio.TaskGroup() as tasks:
            for node, part in by_leader.items():
                tasks.create_task(ask_one(node, part), name=f"ask {node.address}")
        return answers


def _no_leader(what: str, metadata: ClusterMetadata, tp: TopicPartition) -> RefusedByBroker:
    topic = metadata.topics.get(tp.topic)
    if topic is None:
        return RefusedByBroker(
            what,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"topic {tp.topic!r} does not exist; create it first",
        )
    if metadata.find_partition(*tp) is None:
        return RefusedByBroker(
            what,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"topic {tp.topic!r} has {len(topic.partitions)} partitions, "
            f"none with the number {tp.partition}",
        )
    return RefusedByBroker(
        what, ErrorCode.LEADER_NOT_AVAILABLE, f"{tp} has no leader at the moment"
    )


def _all_failed(failures: list[ClientError]) -> ClientError:
    if not any(failure.is_retriable for failure in failures):
        return failures[0]
    texts = "; ".join(str(error) for error in failures)
    return Disconnected(f"none of {len(failures)} brokers answered: {texts}")
