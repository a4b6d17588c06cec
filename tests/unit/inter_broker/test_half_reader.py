"""A half topic is read on for its group, and the group's shard is asked again once it was full."""

import asyncio
from uuid import UUID

from penstock.coordinators.deferred.half_values import HalfIntake, IntakeReply
from penstock.coordinators.deferred.values import Target
from penstock.inter_broker.half_reader import HalfReader
from penstock.inter_broker.half_reading import SourceChunk
from penstock.inter_broker.half_topics import HalfSource
from penstock.logs.event_logger import NO_LOGGER
from penstock.logs.rate_limit import RateLimitedLogger
from penstock.model.cluster import BrokerId
from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicId, TopicPartition

SOURCE = Target(TopicId(UUID(int=1)), 0)


class FakeShard:
    """Full for its first replies; also the log of the source, in which nothing is new."""

    def __init__(self) -> None:
        self.full_replies = 3
        self.intakes = 0
        self.waits = 0
        self.pauses: list[int] = []

    async def ensure_topic(self) -> None: ...

    async def send_intake(self, intake: HalfIntake) -> IntakeReply:
        self.intakes += 1
        return IntakeReply(ErrorCode.NONE, 5)

    def is_full(self, group: str) -> bool:
        return self.intakes <= self.full_replies

    def find_same_partition(self, topic: str, partition: int) -> Target:
        return SOURCE

    async def read(self, tp: TopicPartition, start: int) -> SourceChunk | None:
        return None

    async def wait(self, tp: TopicPartition, offset: int) -> None:
        self.waits += 1

    async def pause(self, duration_ms: int) -> None:
        self.pauses.append(duration_ms)


def test_a_shard_that_is_full_is_asked_until_it_is_not() -> None:
    shard = FakeShard()
    source = HalfSource(
        "shop", "orders", TopicPartition("orders.half", 0), SOURCE, False, BrokerId(1)
    )
    reader = HalfReader(
        source,
        shard,  # type: ignore[arg-type]
        shard,  # type: ignore[arg-type]
        shard,
        lambda: shard.waits < 2,
        shard.pause,
        RateLimitedLogger(NO_LOGGER, now_ms=lambda: 0, add_timer=lambda delay_ms, call: None),
    )
    asyncio.run(reader.run())
    assert shard.intakes == shard.full_replies + 1, "then it waits for what is new"
    assert len(shard.pauses) == shard.full_replies
