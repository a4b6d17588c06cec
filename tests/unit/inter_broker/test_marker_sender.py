"""Markers on their way: to which broker, in which request, and what the coordinator hears."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from tests.unit.client.scripted_broker import Answer, Asked, HangUp
from tests.unit.inter_broker.other_brokers import (
    GONE,
    ME,
    OTHER,
    TwoBrokers,
    two_brokers,
)

from penstock.coordinators.transaction.dependencies import TxnMarkerEntry
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
    def __init__(self, around: TwoBrokers) -> None:
        self.around = around
        self.other = around.other
        self.other.served[KEY] = (1, 2)
        self.written: list[Sequence[MarkerWrite]] = []
        self.codes: dict[TopicPartition, ErrorCode] = {}  # of partitions here; else NONE
        self.heard: asyncio.Queue[tuple[TxnMarkerEntry, Mapping[TopicPartition, ErrorCode]]] = (
            asyncio.Queue()
        )
        around.lead("orders", ME, OTHER, GONE)
        self.sender = MarkerSender(
            ME,
            metadata=around.metadata,
            write_here=self._write,
            brokers=around.connections,
            config=InterBrokerConfig,
            run=around.run,
        )

    async def _write(self, wanted: Sequence[MarkerWrite]) -> list[MarkerCodes]:
        self.written.append(wanted)
        return [{name: self.codes.get(name, NONE) for name in names} for _, names in wanted]

    def send(self, *markers: TxnMarkerEntry) -> None:
        self.sender.send(markers, lambda *told: self.heard.put_nowait(told))

    async def hear(self, parts: int) -> dict[tuple[int, TopicPartition], ErrorCode]:
        """Of so many answers, each of which is the only one about its partitions."""
        found: dict[tuple[int, TopicPartition], ErrorCode] = {}
        for _ in range(parts):
            told, codes = await self.heard.get()
            assert not found.keys() & {(told.producer_id, code) for code in codes}
            found |= {(told.producer_id, each): code for each, code in codes.items()}
        return found


def run_scenario(scenario: Callable[[Harness], Awaitable[None]]) -> None:
    async def run() -> None:
        async with two_brokers() as around:
            await scenario(Harness(around))

    asyncio.run(run())


def answer_all(asked: Asked, code: ErrorCode = NONE) -> dict[str, Any]:
    return {
        "markers": [
            {
                "producer_id": each.producer_id,
                "topics": [
                    {
                        "name": topic.name,
                        "partitions": [
                            {"partition_index": number, "error_code": code}
                            for number in topic.partition_indexes
                        ],
                    }
                    for topic in each.topics
                ],
            }
            for each in asked.message.markers
        ]
    }


def test_each_leader_gets_its_part_and_what_has_none_is_told_at_once() -> None:
    async def scenario(harness: Harness) -> None:
        harness.other.handlers[KEY] = answer_all
        harness.codes = {MINE: ErrorCode.NOT_ENOUGH_REPLICAS}
        harness.send(marker(5, MINE, THEIRS, LOST, NOWHERE))
        assert await harness.hear(4) == {
            (5, MINE): ErrorCode.NOT_ENOUGH_REPLICAS,
            (5, THEIRS): NONE,
            (5, LOST): ErrorCode.LEADER_NOT_AVAILABLE,
            (5, NOWHERE): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        }
        (((written, names),),) = harness.written
        assert names == (MINE,)
        assert written == TransactionMarker(
            producer_id=5,
            producer_epoch=4,
            commit=True,
            coordinator_epoch=9,
            transaction_version=2,
        )
        (sent,) = (each for each in harness.other.asked if each.api_key is KEY)
        (told,) = sent.message.markers
        assert (told.producer_id, told.producer_epoch, told.transaction_result) == (5, 4, True)
        assert (told.coordinator_epoch, told.transaction_version) == (9, 2)

    run_scenario(scenario)


def test_markers_that_come_meanwhile_go_together_and_two_of_a_producer_apart() -> None:
    async def scenario(harness: Harness) -> None:
        may_answer = asyncio.Event()

        async def answer(asked: Asked) -> Answer:
            await may_answer.wait()
            return answer_all(asked)

        harness.other.handlers[KEY] = answer
        harness.send(marker(1, THEIRS))
        while not harness.other.count(KEY):  # noqa: ASYNC110 - a socket has no event
            await asyncio.sleep(0.001)
        harness.send(marker(2, THEIRS), marker(3, THEIRS), marker(2, THEIRS, epoch=5))
        may_answer.set()
        for _ in range(4):
            await harness.heard.get()
        requests = [
            [(each.producer_id, each.producer_epoch) for each in asked.message.markers]
            for asked in harness.other.asked
            if asked.api_key is KEY
        ]
        assert requests == [[(1, 4)], [(2, 4), (3, 4)], [(2, 5)]]

    run_scenario(scenario)


def test_a_broker_that_hangs_up_has_answered_nothing() -> None:
    async def scenario(harness: Harness) -> None:
        def hang_up(asked: Asked) -> Answer:
            raise HangUp

        harness.other.handlers[KEY] = hang_up
        harness.send(marker(5, THEIRS), marker(6, THEIRS))
        lost = ErrorCode.NETWORK_EXCEPTION
        assert await harness.hear(2) == {(5, THEIRS): lost, (6, THEIRS): lost}

    run_scenario(scenario)


def test_what_an_answer_leaves_out_is_not_taken_for_done() -> None:
    async def scenario(harness: Harness) -> None:
        harness.other.handlers[KEY] = lambda asked: {"markers": []}
        harness.send(marker(5, THEIRS))
        assert await harness.hear(1) == {(5, THEIRS): ErrorCode.UNKNOWN_SERVER_ERROR}

    run_scenario(scenario)
