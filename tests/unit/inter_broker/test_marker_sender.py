"""Markers are sent to the leaders, batched by broker, and their results reach the coordinator."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from tests.unit.client.scripted_broker import Answer, HangUp, ReceivedRequest
from tests.unit.inter_broker.other_brokers import (
    GONE,
    ME,
    OTHER,
    TwoBrokers,
    two_brokers,
)

from penstock.coordinators.transaction.dependencies import TxnMarkerEntry
from penstock.inter_broker import request_batcher
from penstock.inter_broker.config import InterBrokerConfig
from penstock.inter_broker.marker_sender import MarkerSender
from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicPartition
from penstock.model.markers import TransactionMarker
from penstock.protocol.api_keys import ApiKey
from penstock.replication.marker_append import MarkerCodes, MarkerWrite

KEY = ApiKey.WRITE_TXN_MARKERS
NONE = ErrorCode.NONE
MINE, THEIRS = TopicPartition("orders", 0), TopicPartition("orders", 1)
LOST, NOWHERE = TopicPartition("orders", 2), TopicPartition("deleted", 0)


def marker(producer_id: int, *partitions: TopicPartition, epoch: int = 4) -> TxnMarkerEntry:
    return TxnMarkerEntry(
        transactional_id=f"t{producer_id}",
        producer_id=producer_id,
        producer_epoch=epoch,
        commit=True,
        coordinator_epoch=9,
        transaction_version=2,
        partitions=partitions,
    )


class Harness:
    def __init__(self, brokers: TwoBrokers) -> None:
        self.brokers = brokers
        self.other = brokers.other
        self.other.served[KEY] = (1, 2)
        self.written: list[Sequence[MarkerWrite]] = []
        self.codes: dict[TopicPartition, ErrorCode] = {}  # for partitions led here; default NONE
        self.results: asyncio.Queue[tuple[TxnMarkerEntry, Mapping[TopicPartition, ErrorCode]]] = (
            asyncio.Queue()
        )
        brokers.lead("orders", ME, OTHER, GONE)
        self.sender = MarkerSender(
            ME,
            metadata=brokers.metadata,
            write_here=self._write,
            brokers=brokers.connections,
            config=InterBrokerConfig,
            run=brokers.run,
        )

    async def _write(self, writes: Sequence[MarkerWrite]) -> list[MarkerCodes]:
        self.written.append(writes)
        return [{tp: self.codes.get(tp, NONE) for tp in partitions} for _, partitions in writes]

    def send(self, *markers: TxnMarkerEntry) -> None:
        self.sender.send(markers, lambda *result: self.results.put_nowait(result))

    async def wait_results(self, parts: int) -> dict[tuple[int, TopicPartition], ErrorCode]:
        """Wait for `parts` callbacks and return their results; no partition may occur twice."""
        results: dict[tuple[int, TopicPartition], ErrorCode] = {}
        for _ in range(parts):
            entry, codes = await self.results.get()
            assert not results.keys() & {(entry.producer_id, tp) for tp in codes}
            results |= {(entry.producer_id, tp): code for tp, code in codes.items()}
        return results


def run_scenario(scenario: Callable[[Harness], Awaitable[None]]) -> None:
    async def run() -> None:
        async with two_brokers() as brokers:
            await scenario(Harness(brokers))

    asyncio.run(run())


def respond_to_all(request: ReceivedRequest, code: ErrorCode = NONE) -> dict[str, Any]:
    return {
        "markers": [
            {
                "producer_id": entry.producer_id,
                "topics": [
                    {
                        "name": topic.name,
                        "partitions": [
                            {"partition_index": partition, "error_code": code}
                            for partition in topic.partition_indexes
                        ],
                    }
                    for topic in entry.topics
                ],
            }
            for entry in request.message.markers
        ]
    }


def test_a_marker_with_very_many_partitions_is_split() -> None:
    most = request_batcher.PARTITIONS_PER_REQUEST

    async def scenario(harness: Harness) -> None:
        harness.other.handlers[KEY] = respond_to_all
        harness.brokers.lead("wide", *[OTHER] * (most + 1))
        harness.send(marker(5, *(TopicPartition("wide", number) for number in range(most + 1))))
        assert set((await harness.wait_results(2)).values()) == {NONE}
        named = [
            len(topic.partition_indexes)
            for request in harness.other.requests
            if request.api_key is KEY
            for entry in request.message.markers
            for topic in entry.topics
        ]
        assert named == [most, 1]

    run_scenario(scenario)


def test_each_leader_gets_its_partitions_and_leaderless_ones_fail_at_once() -> None:
    async def scenario(harness: Harness) -> None:
        harness.other.handlers[KEY] = respond_to_all
        harness.codes = {MINE: ErrorCode.NOT_ENOUGH_REPLICAS}
        harness.send(marker(5, MINE, THEIRS, LOST, NOWHERE))
        assert await harness.wait_results(4) == {
            (5, MINE): ErrorCode.NOT_ENOUGH_REPLICAS,
            (5, THEIRS): NONE,
            (5, LOST): ErrorCode.LEADER_NOT_AVAILABLE,
            (5, NOWHERE): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        }
        (((written, partitions),),) = harness.written
        assert partitions == (MINE,)
        assert written == TransactionMarker(
            producer_id=5,
            producer_epoch=4,
            commit=True,
            coordinator_epoch=9,
            transaction_version=2,
        )
        (request,) = (request for request in harness.other.requests if request.api_key is KEY)
        (entry,) = request.message.markers
        assert (entry.producer_id, entry.producer_epoch, entry.transaction_result) == (5, 4, True)
        assert (entry.coordinator_epoch, entry.transaction_version) == (9, 2)

    run_scenario(scenario)


def test_pending_markers_share_a_request_except_two_of_one_producer() -> None:
    async def scenario(harness: Harness) -> None:
        may_answer = asyncio.Event()

        async def answer(request: ReceivedRequest) -> Answer:
            await may_answer.wait()
            return respond_to_all(request)

        harness.other.handlers[KEY] = answer
        harness.send(marker(1, THEIRS))
        while not harness.other.count(KEY):  # noqa: ASYNC110 - a socket has no event
            await asyncio.sleep(0.001)
        harness.send(marker(2, THEIRS), marker(3, THEIRS), marker(2, THEIRS, epoch=5))
        may_answer.set()
        for _ in range(4):
            await harness.results.get()
        requests = [
            [(entry.producer_id, entry.producer_epoch) for entry in request.message.markers]
            for request in harness.other.requests
            if request.api_key is KEY
        ]
        assert requests == [[(1, 4)], [(2, 4), (3, 4)], [(2, 5)]]

    run_scenario(scenario)


def test_a_disconnect_fails_all_markers_of_the_request() -> None:
    async def scenario(harness: Harness) -> None:
        def hang_up(request: ReceivedRequest) -> Answer:
            raise HangUp

        harness.other.handlers[KEY] = hang_up
        harness.send(marker(5, THEIRS), marker(6, THEIRS))
        lost = ErrorCode.NETWORK_EXCEPTION
        assert await harness.wait_results(2) == {(5, THEIRS): lost, (6, THEIRS): lost}

    run_scenario(scenario)


def test_a_partition_missing_in_the_response_is_an_error() -> None:
    async def scenario(harness: Harness) -> None:
        harness.other.handlers[KEY] = lambda request: {"markers": []}
        harness.send(marker(5, THEIRS))
        assert await harness.wait_results(1) == {(5, THEIRS): ErrorCode.UNKNOWN_SERVER_ERROR}

    run_scenario(scenario)
