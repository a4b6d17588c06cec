"""Controller requests to brokers: in order, retried, dropped with the registration."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count

import pytest
from tests.unit.controller.cluster import FakeChannel, node, settled

from penstock.controller.channel_manager import (
    FIRST_BACKOFF_MS,
    MAX_BACKOFF_MS,
    MAX_PENDING,
    ChannelDependencies,
    ControllerChannelManager,
)
from penstock.controller.state import AddressedRequest
from penstock.logs.event_logger import message_logger
from penstock.model.cluster import (
    BrokerId,
    ControllerEpoch,
    ControllerRequestBody,
    UpdateMetadataRequest,
)
from penstock.model.errors import ErrorCode, Refusal

A, B = BrokerId(0), BrokerId(1)


def update(number: int) -> UpdateMetadataRequest:
    return UpdateMetadataRequest(
        controller_id=A, controller_epoch=ControllerEpoch(number), is_full=False
    )


@dataclass
class ChannelHarness:
    channel: FakeChannel = field(default_factory=FakeChannel)
    backoffs_ms: list[int] = field(default_factory=list)
    reports: list[str] = field(default_factory=list)
    stale: list[bool] = field(default_factory=list)
    full_state: tuple[ControllerRequestBody, ...] = (update(1000), update(1001))

    async def back_off(self, duration_ms: int) -> None:
        self.backoffs_ms.append(duration_ms)
        await asyncio.sleep(0)

    def numbers(self, broker: BrokerId) -> list[int]:
        return [request.controller_epoch for request in self.channel.broker(broker).requests]

    @asynccontextmanager
    async def open(self) -> AsyncIterator[ControllerChannelManager]:
        dependencies = ChannelDependencies(
            channel=self.channel,
            full_state=lambda broker: self.full_state,
            on_stale_controller=lambda: self.stale.append(True),
            wait_ms=self.back_off,
            logger=message_logger(self.reports.append),
            numbers=count(1),
        )
        async with asyncio.timeout(180), asyncio.TaskGroup() as tasks:
            channels = ControllerChannelManager(tasks, dependencies)
            channels.set_brokers({A: node(0, epoch=1), B: node(1, epoch=1)})
            yield channels
            channels.close()


def test_each_broker_gets_its_requests_in_order() -> None:
    async def scenario() -> None:
        harness = ChannelHarness()
        async with harness.open() as channels:
            requests = [AddressedRequest(broker, update(n)) for n in range(20) for broker in (A, B)]
            assert await asyncio.gather(*channels.send(requests)) == [True] * 40
        assert harness.numbers(A) == harness.numbers(B) == list(range(20))

    asyncio.run(scenario())


def test_an_unreachable_broker_is_retried_and_does_not_delay_others() -> None:
    async def scenario() -> None:
        harness = ChannelHarness()
        harness.channel.unreachable.add(B)
        async with harness.open() as channels:
            first, second, other = channels.send(
                [
                    AddressedRequest(B, update(1)),
                    AddressedRequest(B, update(2)),
                    AddressedRequest(A, update(3)),
                ]
            )
            assert await other
            await settled()
            assert len(harness.backoffs_ms) > 10
            assert not first.done()
            harness.channel.unreachable.clear()
            assert await first
            assert await second
        assert harness.numbers(B) == [1, 2]
        assert harness.backoffs_ms[:3] == [
            FIRST_BACKOFF_MS,
            2 * FIRST_BACKOFF_MS,
            4 * FIRST_BACKOFF_MS,
        ]
        assert max(harness.backoffs_ms) == MAX_BACKOFF_MS
        assert len(harness.reports) == 1
        assert "broker 1 cannot be reached" in harness.reports[0]

    asyncio.run(scenario())


def test_request_numbers_increase_across_restarts_and_a_retry_keeps_its_number() -> None:
    async def scenario() -> None:
        harness = ChannelHarness()
        async with harness.open() as channels:
            harness.channel.unreachable.add(B)
            (first,) = channels.send([AddressedRequest(B, update(1))])
            await settled()
            harness.channel.unreachable.clear()
            assert await first
            tries = len(harness.channel.sent)
            assert tries > 1
            assert len(set(harness.channel.sent)) == 1
            channels.set_brokers({B: node(1, epoch=2)})
            await asyncio.gather(
                *channels.send([AddressedRequest(B, update(2)), AddressedRequest(B, update(3))])
            )
        later = harness.channel.sent[tries:]
        assert [request.broker_epoch for request in later] == [2, 2]
        assert harness.channel.sent[0].number < later[0].number < later[1].number

    asyncio.run(scenario())


def test_pending_requests_end_with_the_broker_registration() -> None:
    async def scenario() -> None:
        harness = ChannelHarness()
        harness.channel.unreachable.add(B)
        async with harness.open() as channels:
            deliveries = channels.send(
                [AddressedRequest(B, update(1)), AddressedRequest(B, update(2))]
            )
            await settled()
            channels.set_brokers({A: node(0, epoch=1)})
            assert await asyncio.gather(*deliveries) == [False, False]
            harness.channel.unreachable.clear()
            await settled()
        assert harness.numbers(B) == []

    asyncio.run(scenario())


def test_a_restarted_broker_gets_no_request_for_its_old_epoch() -> None:
    async def scenario() -> None:
        harness = ChannelHarness()
        harness.channel.unreachable.add(B)
        async with harness.open() as channels:
            [old] = channels.send([AddressedRequest(B, update(1))])
            await settled()
            channels.set_brokers({A: node(0, epoch=1), B: node(1, epoch=2)})
            harness.channel.unreachable.clear()
            [new] = channels.send([AddressedRequest(B, update(2))])
            assert await new
            assert not await old
        assert harness.numbers(B) == [2]

    asyncio.run(scenario())


def test_queue_overflow_sends_the_full_state() -> None:
    async def scenario() -> None:
        harness = ChannelHarness()
        harness.channel.unreachable.add(B)
        async with harness.open() as channels:
            deliveries = channels.send([AddressedRequest(B, update(0))])
            await settled()  # the first is being sent
            deliveries += channels.send(
                [AddressedRequest(B, update(n)) for n in range(1, MAX_PENDING + 3)]
            )
            harness.channel.unreachable.clear()
            assert set(await asyncio.gather(*deliveries)) == {True}
        assert harness.numbers(B) == [0, 1000, 1001, MAX_PENDING + 2]
        assert any("sending the full state" in report for report in harness.reports)

    asyncio.run(scenario())


def test_a_full_state_larger_than_the_queue_is_sent_once() -> None:
    async def scenario() -> None:
        harness = ChannelHarness(full_state=tuple(update(n) for n in range(2 * MAX_PENDING)))
        harness.channel.unreachable.add(B)
        async with harness.open() as channels:
            deliveries = channels.send(
                [AddressedRequest(B, update(n)) for n in range(MAX_PENDING + 50)]
            )
            harness.channel.unreachable.clear()
            assert set(await asyncio.gather(*deliveries)) == {True}
        assert len(harness.numbers(B)) == len(harness.full_state) + 49
        assert len([report for report in harness.reports if "full state" in report]) == 1

    asyncio.run(scenario())


def test_stale_controller_epoch_deposes_the_controller() -> None:
    async def scenario() -> None:
        harness = ChannelHarness()
        harness.channel.refusals[B] = Refusal(ErrorCode.STALE_CONTROLLER_EPOCH)
        async with harness.open() as channels:
            assert await asyncio.gather(*channels.send([AddressedRequest(B, update(1))])) == [False]
        assert harness.stale == [True]

    asyncio.run(scenario())


def test_a_request_with_a_stale_broker_epoch_is_dropped() -> None:
    async def scenario() -> None:
        harness = ChannelHarness()
        harness.channel.refusals[B] = Refusal(ErrorCode.STALE_BROKER_EPOCH)
        async with harness.open() as channels:
            requests = [AddressedRequest(B, update(1)), AddressedRequest(B, update(2))]
            assert await asyncio.gather(*channels.send(requests)) == [False, True]
        assert harness.stale == []

    asyncio.run(scenario())


@pytest.mark.parametrize("error", [ValueError("a bug"), Refusal(ErrorCode.INVALID_REQUEST)])
def test_an_unexpected_error_ends_the_controller(error: Exception) -> None:
    async def scenario() -> None:
        harness = ChannelHarness()
        harness.channel.refusals[B] = error
        async with harness.open() as channels:
            channels.send([AddressedRequest(B, update(1))])
            await settled()

    with pytest.raises(ExceptionGroup) as raised:
        asyncio.run(scenario())
    assert raised.value.exceptions == (error,)
