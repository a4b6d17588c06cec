"""Orders on their way to brokers: in order, tried until they arrive, given up with the broker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count

import pytest
from tests.unit.controller.cluster import Channel, node, settled

from penstock.controller.channel_manager import (
    FIRST_PAUSE_MS,
    LONGEST_PAUSE_MS,
    MAX_PENDING,
    ChannelDependencies,
    ControllerChannelManager,
)
from penstock.controller.state import AddressedRequest
from penstock.model.cluster import (
    BrokerId,
    ControllerEpoch,
    ControllerRequestBody,
    UpdateMetadataRequest,
)
from penstock.model.errors import ErrorCode, Refusal

A, B = BrokerId(0), BrokerId(1)


def news(number: int) -> UpdateMetadataRequest:
    return UpdateMetadataRequest(
        controller_id=A, controller_epoch=ControllerEpoch(number), is_full=False
    )


@dataclass
class Post:
    channel: Channel = field(default_factory=Channel)
    pauses_ms: list[int] = field(default_factory=list)
    reports: list[str] = field(default_factory=list)
    stale: list[bool] = field(default_factory=list)
    whole: tuple[ControllerRequestBody, ...] = (news(1000), news(1001))

    async def pause(self, duration_ms: int) -> None:
        self.pauses_ms.append(duration_ms)
        await asyncio.sleep(0)

    def numbers(self, broker: BrokerId) -> list[int]:
        return [order.controller_epoch for order in self.channel.twin(broker).orders]

    @asynccontextmanager
    async def outboxes(self) -> AsyncIterator[ControllerChannelManager]:
        wiring = ChannelDependencies(
            channel=self.channel,
            everything=lambda broker: self.whole,
            on_stale=lambda: self.stale.append(True),
            wait_ms=self.pause,
            report=self.reports.append,
            numbers=count(1),
        )
        async with asyncio.timeout(20), asyncio.TaskGroup() as tasks:
            outboxes = ControllerChannelManager(tasks, wiring)
            outboxes.follow({A: node(0, epoch=1), B: node(1, epoch=1)})
            yield outboxes
            outboxes.close()


def test_each_broker_gets_its_orders_in_their_order() -> None:
    async def story() -> None:
        post = Post()
        async with post.outboxes() as outboxes:
            orders = [AddressedRequest(broker, news(n)) for n in range(20) for broker in (A, B)]
            assert await asyncio.gather(*outboxes.push(orders)) == [True] * 40
        assert post.numbers(A) == post.numbers(B) == list(range(20))

    asyncio.run(story())


def test_a_broker_that_cannot_be_reached_is_tried_again_and_nobody_waits_for_it() -> None:
    async def story() -> None:
        post = Post()
        post.channel.unreachable.add(B)
        async with post.outboxes() as outboxes:
            first, second, other = outboxes.push(
                [
                    AddressedRequest(B, news(1)),
                    AddressedRequest(B, news(2)),
                    AddressedRequest(A, news(3)),
                ]
            )
            assert await other
            await settled()
            assert len(post.pauses_ms) > 10
            assert not first.done()
            post.channel.unreachable.clear()
            assert await first
            assert await second
        assert post.numbers(B) == [1, 2]
        assert post.pauses_ms[:3] == [FIRST_PAUSE_MS, 2 * FIRST_PAUSE_MS, 4 * FIRST_PAUSE_MS]
        assert max(post.pauses_ms) == LONGEST_PAUSE_MS
        assert len(post.reports) == 1
        assert "broker 1 cannot be reached" in post.reports[0]

    asyncio.run(story())


def test_numbers_grow_from_order_to_order_and_over_lives_and_a_copy_has_the_same() -> None:
    async def story() -> None:
        post = Post()
        async with post.outboxes() as outboxes:
            post.channel.unreachable.add(B)
            (first,) = outboxes.push([AddressedRequest(B, news(1))])
            await settled()
            post.channel.unreachable.clear()
            assert await first
            tries = len(post.channel.sent)
            assert tries > 1
            assert len(set(post.channel.sent)) == 1
            outboxes.follow({B: node(1, epoch=2)})
            await asyncio.gather(
                *outboxes.push([AddressedRequest(B, news(2)), AddressedRequest(B, news(3))])
            )
        later = post.channel.sent[tries:]
        assert [request.broker_epoch for request in later] == [2, 2]
        assert post.channel.sent[0].number < later[0].number < later[1].number

    asyncio.run(story())


def test_what_waits_for_a_broker_ends_when_the_broker_does() -> None:
    async def story() -> None:
        post = Post()
        post.channel.unreachable.add(B)
        async with post.outboxes() as outboxes:
            deliveries = outboxes.push([AddressedRequest(B, news(1)), AddressedRequest(B, news(2))])
            await settled()
            outboxes.follow({A: node(0, epoch=1)})
            assert await asyncio.gather(*deliveries) == [False, False]
            post.channel.unreachable.clear()
            await settled()
        assert post.numbers(B) == []

    asyncio.run(story())


def test_another_life_of_a_broker_gets_nothing_that_was_meant_for_the_first() -> None:
    async def story() -> None:
        post = Post()
        post.channel.unreachable.add(B)
        async with post.outboxes() as outboxes:
            [old] = outboxes.push([AddressedRequest(B, news(1))])
            await settled()
            outboxes.follow({A: node(0, epoch=1), B: node(1, epoch=2)})
            post.channel.unreachable.clear()
            [new] = outboxes.push([AddressedRequest(B, news(2))])
            assert await new
            assert not await old
        assert post.numbers(B) == [2]

    asyncio.run(story())


def test_a_full_outbox_is_emptied_and_the_broker_told_everything_anew() -> None:
    async def story() -> None:
        post = Post()
        post.channel.unreachable.add(B)
        async with post.outboxes() as outboxes:
            deliveries = outboxes.push([AddressedRequest(B, news(0))])
            await settled()  # the first is on its way
            deliveries += outboxes.push(
                [AddressedRequest(B, news(n)) for n in range(1, MAX_PENDING + 3)]
            )
            post.channel.unreachable.clear()
            assert set(await asyncio.gather(*deliveries)) == {True}
        assert post.numbers(B) == [0, 1000, 1001, MAX_PENDING + 2]
        assert any("gets the whole state" in report for report in post.reports)

    asyncio.run(story())


def test_a_whole_state_of_more_orders_than_an_outbox_holds_is_told_once() -> None:
    async def story() -> None:
        post = Post(whole=tuple(news(n) for n in range(2 * MAX_PENDING)))
        post.channel.unreachable.add(B)
        async with post.outboxes() as outboxes:
            deliveries = outboxes.push(
                [AddressedRequest(B, news(n)) for n in range(MAX_PENDING + 50)]
            )
            post.channel.unreachable.clear()
            assert set(await asyncio.gather(*deliveries)) == {True}
        assert len(post.numbers(B)) == len(post.whole) + 49
        assert len([report for report in post.reports if "whole state" in report]) == 1

    asyncio.run(story())


def test_who_is_told_of_a_newer_controller_learns_that_its_time_is_over() -> None:
    async def story() -> None:
        post = Post()
        post.channel.refusals[B] = Refusal(ErrorCode.STALE_CONTROLLER_EPOCH)
        async with post.outboxes() as outboxes:
            assert await asyncio.gather(*outboxes.push([AddressedRequest(B, news(1))])) == [False]
        assert post.stale == [True]

    asyncio.run(story())


def test_an_order_for_an_earlier_life_is_dropped() -> None:
    async def story() -> None:
        post = Post()
        post.channel.refusals[B] = Refusal(ErrorCode.STALE_BROKER_EPOCH)
        async with post.outboxes() as outboxes:
            orders = [AddressedRequest(B, news(1)), AddressedRequest(B, news(2))]
            assert await asyncio.gather(*outboxes.push(orders)) == [False, True]
        assert post.stale == []

    asyncio.run(story())


@pytest.mark.parametrize("error", [ValueError("a bug"), Refusal(ErrorCode.INVALID_REQUEST)])
def test_what_nobody_foresaw_ends_the_controller(error: Exception) -> None:
    async def story() -> None:
        post = Post()
        post.channel.refusals[B] = error
        async with post.outboxes() as outboxes:
            outboxes.push([AddressedRequest(B, news(1))])
            await settled()

    with pytest.raises(ExceptionGroup) as raised:
        asyncio.run(story())
    assert raised.value.exceptions == (error,)
