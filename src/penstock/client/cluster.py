"""The asynchronous client of a cluster, for raw record batches: used by followers, Spark and tools.

It never looks into a batch. Delivery is at least once: a lost response is retried, so a batch
without producer id and sequence may be appended twice.
"""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType, TracebackType
from typing import Self

from penstock.client.acls import AclClient
from penstock.client.address import parse_bootstrap
from penstock.client.admin import AdminClient
from penstock.client.connection import ConnectionLimits
from penstock.client.connection_pool import Lane
from penstock.client.data_calls import (
    FetchedPartition,
    FetchFrom,
    FetchOptions,
    IsolationLevel,
    ListedOffset,
    Produced,
    epoch_ends_call,
    fetch_call,
    list_offsets_call,
    produce_call,
    read_epoch_ends,
    read_fetched,
    read_listed,
    read_produced,
)
from penstock.client.deadline import Deadline
from penstock.client.delayed import DelayedClient
from penstock.client.errors import ClientError, RefusedByBroker
from penstock.client.groups import GroupClient
from penstock.client.metadata import BrokerMetadata, ClusterMetadata
from penstock.client.metrics import MetricsClient
from penstock.client.offset_times import OffsetTimesClient
from penstock.client.quotas import QuotaClient
from penstock.client.reassignments import ReassignmentClient
from penstock.client.replicas import ReplicasClient
from penstock.client.router import AskLeader, Router, RouterSettings
from penstock.client.scram_users import ScramUserClient
from penstock.client.security.config import PLAINTEXT, ClientSecurity
from penstock.client.transactions import TransactionClient
from penstock.model.errors import ErrorCode
from penstock.model.ids import Offset, TopicId, TopicPartition
from penstock.protocol.batch import Buffer


class ClusterClient:
    """Use as `async with ClusterClient("127.0.0.1:9092") as client`, which fails at once if no
    broker answers; without `async with`, the first operation connects. Owned by one event loop.

    Every operation takes `timeout_ms`, which bounds all its attempts together.
    """

    def __init__(
        self,
        bootstrap: str | Iterable[str],
        *,
        client_id: str = "penstock",
        request_timeout_ms: int = 30_000,
        metadata_max_age_ms: int = 300_000,
        retry_backoff_ms: int = 100,
        limits: ConnectionLimits | None = None,
        security: ClientSecurity = PLAINTEXT,
    ) -> None:
        settings = RouterSettings(
            client_id=client_id,
            request_timeout_ms=request_timeout_ms,
            metadata_max_age_ms=metadata_max_age_ms,
            retry_backoff_ms=retry_backoff_ms,
            limits=limits or ConnectionLimits(),
            security=security,
        )
        self._router = Router(parse_bootstrap(bootstrap), settings)
        self.acls = AclClient(self._router)
        self.scram_users = ScramUserClient(self._router)
        self.admin = AdminClient(self._router)
        self.delayed = DelayedClient(self._router)
        self.groups = GroupClient(self._router)
        self.metrics = MetricsClient(self._router)
        self.quotas = QuotaClient(self._router)
        self.replicas = ReplicasClient(self._router)
        self.offset_times = OffsetTimesClient(self._router)
        self.reassignments = ReassignmentClient(self._router)
        self.transactions = TransactionClient(self._router)

    async def __aenter__(self) -> Self:
        try:
            await self.connect()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def connect(self, *, timeout_ms: int | None = None) -> ClusterMetadata:
        """Connect to any broker, trying each bootstrap address once."""
        return await self._router.refresh((), self._router.deadline(timeout_ms))

    async def close(self) -> None:
        """Pending operations fail with ClientClosed."""
        await self._router.close()

    async def metadata(
        self,
        topics: Iterable[str] | None = None,
        *,
        allow_auto_creation: bool = False,
        timeout_ms: int | None = None,
    ) -> ClusterMetadata:
        """Fetch fresh metadata, of every topic if `topics` is None. A topic that does not exist is
        returned with its error."""
        deadline = self._router.deadline(timeout_ms)
        wanted = None if topics is None else list(topics)
        return await self._router.persist(
            "metadata",
            deadline,
            lambda: self._router.refresh(wanted, deadline, allow_auto_creation=allow_auto_creation),
        )

    async def produce(
        self,
        partition: TopicPartition,
        batches: Buffer,
        *,
        acks: int = -1,
        transactional_id: str | None = None,
        timeout_ms: int | None = None,
    ) -> Produced:
        """Append one record batch as it is. The buffer must not change until this returns.

        acks: -1 waits for every in-sync replica, 1 for the leader, 0 for nobody, in which case the
        result is unknown.
        """
        what = f"produce to {partition}"
        deadline = self._router.deadline(timeout_ms)

        async def ask(
            node: BrokerMetadata, _: Mapping[TopicPartition, Buffer]
        ) -> Mapping[TopicPartition, Produced | ClientError]:
            call = produce_call(
                partition,
                batches,
                acks=acks,
                timeout_ms=deadline.left_for_broker_ms,
                transactional_id=transactional_id,
            )
            if acks == 0:
                await self._router.tell(node.address, call, deadline)
                return {partition: Produced(Offset(-1))}
            answer = await self._router.ask(node.address, call, deadline)
            code, message, produced = read_produced(answer)
            return {partition: produced if not code else RefusedByBroker(what, code, message)}

        done = await self._router.persist_with_leaders(what, {partition: batches}, ask, deadline)
        return done[partition]

    async def fetch(
        self,
        wanted: Sequence[FetchFrom],
        *,
        isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
        max_wait_ms: int = 500,
        min_bytes: int = 1,
        max_bytes: int = 50 * 1024 * 1024,
        timeout_ms: int | None = None,
        topic_ids: Mapping[str, TopicId] = MappingProxyType({}),
    ) -> list[FetchedPartition]:
        """Fetch each partition from its offset on; results come in the order of `wanted`.

        Waits up to `max_wait_ms` for `min_bytes`. Each result has its own error; the call fails
        only when no partition could be read in time. A topic in `topic_ids` that was recreated
        under another id gets UNKNOWN_TOPIC_ID, from brokers with Fetch v13. A broker answers
        fetches of one client in turn; use several clients to fetch in parallel.
        """
        options = FetchOptions(isolation, max_wait_ms, min_bytes, max_bytes)
        deadline = Deadline(
            max_wait_ms + self._router.settings.request_timeout_ms
            if timeout_ms is None
            else timeout_ms
        )
        by_partition = {fetch_from.tp: fetch_from for fetch_from in wanted}

        async def attempt() -> list[FetchedPartition]:
            async def ask(
                node: BrokerMetadata, part: Mapping[TopicPartition, FetchFrom]
            ) -> Mapping[TopicPartition, FetchedPartition | ClientError]:
                return await self._fetch_from(
                    node, list(part.values()), options, deadline, topic_ids
                )

            answers = await self._router.ask_leaders("fetch", by_partition, ask, deadline)
            return self._settle([answers[fetch_from.tp] for fetch_from in wanted], wanted)

        return await self._router.persist("fetch", deadline, attempt)

    async def _fetch_from(
        self,
        node: BrokerMetadata,
        part: Sequence[FetchFrom],
        options: FetchOptions,
        deadline: Deadline,
        topic_ids: Mapping[str, TopicId],
    ) -> Mapping[TopicPartition, FetchedPartition | ClientError]:
        metadata = self._router.metadata
        topics = {fetch_from.tp.topic for fetch_from in part}
        ids = {topic: topic_ids.get(topic) or metadata.find_topic_id(topic) for topic in topics}
        names = {topic_id: name for name, topic_id in ids.items() if topic_id is not None}
        call = fetch_call(part, options, ids)
        answer = await self._router.ask(node.address, call, deadline, lane=Lane.FETCHES)
        code, fetched = read_fetched(answer, names)
        if code:
            raise RefusedByBroker("fetch", code)
        return {fetched_partition.tp: fetched_partition for fetched_partition in fetched}

    def _settle(
        self, answers: Sequence[FetchedPartition | ClientError], wanted: Sequence[FetchFrom]
    ) -> list[FetchedPartition]:
        """Return good results even if others failed; if all failed, raise so that the fetch is
        retried."""
        failures = [error for answer in answers if (error := _failure(answer)) is not None]
        for error in failures:
            if not error.is_retriable:
                raise error
        if failures:
            self._router.mark_stale()
        if failures and len(failures) == len(answers):
            raise failures[0]
        return [
            answer if isinstance(answer, FetchedPartition) else _failed(fetch_from.tp, answer)
            for fetch_from, answer in zip(wanted, answers, strict=True)
        ]

    async def list_offsets(
        self,
        wanted: Mapping[TopicPartition, int],
        *,
        isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
        timeout_ms: int | None = None,
    ) -> dict[TopicPartition, ListedOffset]:
        """The offset of EARLIEST, LATEST, MAX_TIMESTAMP or of a time in milliseconds. LATEST is the
        high watermark, or the last stable offset with READ_COMMITTED."""
        deadline = self._router.deadline(timeout_ms)
        ask = self._asking_offsets(isolation, deadline)
        return await self._router.persist_with_leaders("list offsets", wanted, ask, deadline)

    async def settle_offsets(
        self,
        wanted: Mapping[TopicPartition, int],
        *,
        isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
        timeout_ms: int | None = None,
    ) -> dict[TopicPartition, ListedOffset | ClientError]:
        """As `list_offsets`, with the error of each partition that has no answer."""
        deadline = self._router.deadline(timeout_ms)
        ask = self._asking_offsets(isolation, deadline)
        return await self._router.settle_with_leaders("list offsets", wanted, ask, deadline)

    def _asking_offsets(
        self, isolation: IsolationLevel, deadline: Deadline
    ) -> AskLeader[int, ListedOffset]:
        async def ask(
            node: BrokerMetadata, part: Mapping[TopicPartition, int]
        ) -> Mapping[TopicPartition, ListedOffset | ClientError]:
            call = list_offsets_call(part, isolation=isolation)
            answers = read_listed(await self._router.ask(node.address, call, deadline))
            return {
                partition: listed if not code else RefusedByBroker(f"offsets of {partition}", code)
                for partition, (code, listed) in answers.items()
            }

        return ask

    async def log_end_offsets(
        self, partitions: Iterable[TopicPartition], *, timeout_ms: int | None = None
    ) -> dict[TopicPartition, Offset | ClientError]:
        """Log end offsets of the leaders, beyond the high watermark too: the end offset of the
        leader's current epoch. A partition whose leader does not answer has its error."""
        deadline = self._router.deadline(timeout_ms)

        async def ask(
            node: BrokerMetadata, part: Mapping[TopicPartition, None]
        ) -> Mapping[TopicPartition, Offset | ClientError]:
            partitions = {tp: self._router.metadata.find_partition(*tp) for tp in part}
            call = epoch_ends_call(
                {
                    tp: partition_metadata.leader_epoch
                    for tp, partition_metadata in partitions.items()
                    if partition_metadata is not None
                }
            )
            answers = read_epoch_ends(await self._router.ask(node.address, call, deadline))
            return {
                partition: end.end_offset
                if not code
                else RefusedByBroker(f"end of {partition}", code)
                for partition, (code, end) in answers.items()
            }

        wanted = dict.fromkeys(partitions)
        return await self._router.settle_with_leaders("log end offsets", wanted, ask, deadline)


def _failure(answer: FetchedPartition | ClientError) -> ClientError | None:
    """An error of the request, retriable or fatal; a partition's own error is neither."""
    if isinstance(answer, ClientError):
        return answer
    if answer.error.is_retriable:
        return RefusedByBroker(f"fetch from {answer.tp}", answer.error)
    return None


def _failed(partition: TopicPartition, error: ClientError) -> FetchedPartition:
    code = error.code if isinstance(error, RefusedByBroker) else ErrorCode.NETWORK_EXCEPTION
    nowhere = Offset(-1)
    return FetchedPartition(partition, code, nowhere, nowhere, nowhere, (), memoryview(b""))
