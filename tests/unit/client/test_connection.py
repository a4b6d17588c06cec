from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import Any

import pytest
from tests.unit.client.conftest import Run
from tests.unit.client.scripted_broker import (
    ZERO,
    Answer,
    Hang,
    HangUp,
    ReceivedRequest,
    ScriptedBroker,
)

from penstock.client.address import Address
from penstock.client.call import Call
from penstock.client.connection import BrokerConnection, ConnectionLimits
from penstock.client.data_calls import produce_call
from penstock.client.errors import (
    ClientError,
    ConnectFailed,
    Disconnected,
    RequestTimedOut,
    UnsupportedByBroker,
)
from penstock.client.metadata import metadata_call
from penstock.model.ids import TopicPartition
from penstock.protocol.api_keys import ApiKey

ASK = metadata_call([])


def answer_number(number: int) -> Answer:
    return {
        "throttle_time": ZERO,
        "brokers": (),
        "cluster_id": str(number),
        "controller_id": -1,
        "topics": (),
    }


def hang(_: ReceivedRequest) -> Answer:
    raise Hang


def hang_up(_: ReceivedRequest) -> Answer:
    raise HangUp


async def fails(awaitable: Any) -> ClientError:
    with pytest.raises(ClientError) as caught:
        await awaitable
    return caught.value


def test_responses_reach_their_requests_in_order(run: Run) -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as broker:
            numbers = iter(range(100))
            broker.handlers[ApiKey.METADATA] = lambda _: answer_number(next(numbers))
            connection = await BrokerConnection.open(broker.address)
            replies = await asyncio.gather(
                *(connection.call(ASK, timeout_ms=60_000) for _ in range(100))
            )
            assert [reply.cluster_id for reply in replies] == [str(n) for n in range(100)]
            await connection.close()

    run(scenario)


def test_requests_are_pipelined_up_to_max_in_flight(run: Run) -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as broker:
            waiting, release = asyncio.Event(), asyncio.Event()

            async def slowly(_: ReceivedRequest) -> Answer:
                waiting.set()
                await release.wait()
                return answer_number(1)

            broker.handlers[ApiKey.METADATA] = slowly
            limits = ConnectionLimits(max_in_flight=3)
            connection = await BrokerConnection.open(broker.address, limits=limits)
            calls = [asyncio.create_task(connection.call(ASK, timeout_ms=60_000)) for _ in range(8)]
            await waiting.wait()
            assert connection.in_flight == 3
            release.set()
            await asyncio.gather(*calls)
            assert connection.in_flight == 0
            await connection.close()

    run(scenario)


def test_late_response_closes_the_connection_and_fails_its_requests(run: Run) -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as broker:
            broker.handlers[ApiKey.METADATA] = hang
            connection = await BrokerConnection.open(broker.address)
            patient = asyncio.create_task(connection.call(ASK, timeout_ms=60_000))
            error = await fails(connection.call(ASK, timeout_ms=30))
            assert isinstance(error, RequestTimedOut)
            assert str(error) == f"{broker.address} did not answer Metadata within 0.03 s"
            assert isinstance(await fails(patient), Disconnected)
            assert not connection.is_open
            assert isinstance(await fails(connection.call(ASK, timeout_ms=30)), Disconnected)
            await connection.close()

    run(scenario)


@pytest.mark.parametrize(
    ("bytes_sent", "complaint"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "does not answer in Kafka's protocol"),
        (b"\0\0\0\x08" + b"\0\0\0\x63" + b"abcd", "malformed response.*out of order"),
        (b"\0\0\0\x02ab", "malformed response.*no header"),
        # The right correlation id, then an invalid body.
        (b"\0\0\0\x0c" + b"\0\0\0\x02" + b"\xff" * 8, "malformed response"),
    ],
)
def test_an_invalid_response_closes_the_connection(
    run: Run, bytes_sent: bytes, complaint: str
) -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as broker:
            broker.handlers[ApiKey.METADATA] = lambda _: bytes_sent
            connection = await BrokerConnection.open(broker.address)
            with pytest.raises(Disconnected, match=complaint):
                await connection.call(ASK, timeout_ms=60_000)
            assert not connection.is_open
            await connection.close()

    run(scenario)


def test_a_closed_connection_fails_in_flight_requests(run: Run) -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as broker:
            broker.handlers[ApiKey.METADATA] = hang_up
            connection = await BrokerConnection.open(broker.address)
            error = await fails(connection.call(ASK, timeout_ms=60_000))
            assert str(error) == f"the broker at {broker.address} closed the connection"
            await connection.close()

    run(scenario)


def test_a_cancelled_request_still_consumes_its_response(run: Run) -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as broker:
            received, release = asyncio.Event(), asyncio.Event()
            numbers = iter(range(2))

            async def slowly(_: ReceivedRequest) -> Answer:
                received.set()
                await release.wait()
                return answer_number(next(numbers))

            broker.handlers[ApiKey.METADATA] = slowly
            connection = await BrokerConnection.open(broker.address)
            given_up = asyncio.create_task(connection.call(ASK, timeout_ms=60_000))
            await received.wait()
            given_up.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await given_up
            release.set()
            reply = await connection.call(ASK, timeout_ms=60_000)
            assert reply.cluster_id == "1"
            await connection.close()

    run(scenario)


def test_api_versions_is_retried_in_a_version_that_an_older_broker_names(run: Run) -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as broker:
            ordinary = broker.handlers[ApiKey.API_VERSIONS]

            def refuse(request: ReceivedRequest) -> Answer:
                if request.version > 2:
                    # Always in version 0: error 35 and one key, 18, with versions 0 to 2.
                    body = b"\0\x23" + b"\0\0\0\x01" + b"\0\x12\0\0\0\x02"
                    return (len(body) + 4).to_bytes(4, "big") + b"\0\0\0\x01" + body
                return ordinary(request)  # type: ignore[return-value]

            broker.handlers[ApiKey.API_VERSIONS] = refuse
            broker.handlers[ApiKey.METADATA] = lambda _: answer_number(5)
            connection = await BrokerConnection.open(broker.address)
            assert [request.version for request in broker.requests] == [3, 2]
            assert (await connection.call(ASK, timeout_ms=60_000)).cluster_id == "5"
            await connection.close()

    run(scenario)


def test_versions_are_negotiated_once_per_connection(run: Run) -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as broker:
            broker.served[ApiKey.METADATA] = (0, 7)
            broker.handlers[ApiKey.METADATA] = lambda _: answer_number(5)
            connection = await BrokerConnection.open(broker.address)
            for _ in range(3):
                await connection.call(ASK, timeout_ms=60_000)
            assert [(a.api_key, a.version) for a in broker.requests] == [
                (ApiKey.API_VERSIONS, 3),
                *[(ApiKey.METADATA, 7)] * 3,
            ]
            await connection.close()

    run(scenario)


def test_an_unsupported_request_is_not_sent(run: Run) -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as broker:
            broker.served[ApiKey.METADATA] = (0, 3)
            connection = await BrokerConnection.open(broker.address)
            error = await fails(connection.call(ASK, timeout_ms=60_000))
            assert isinstance(error, UnsupportedByBroker)
            assert "serves Metadata in versions 0 to 3" in str(error)
            missing = Call(ApiKey.DESCRIBE_CLUSTER, range(2), {})
            assert "in no version" in str(await fails(connection.call(missing, timeout_ms=60_000)))
            assert broker.count(ApiKey.METADATA) == 0
            assert connection.is_open
            await connection.close()

    run(scenario)


def test_a_request_without_response_does_not_shift_later_responses(run: Run) -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as broker:
            broker.handlers[ApiKey.PRODUCE] = lambda _: None
            broker.handlers[ApiKey.METADATA] = lambda _: answer_number(5)
            connection = await BrokerConnection.open(broker.address)
            call = produce_call(TopicPartition("t", 0), bytes(2**20), acks=0, timeout_ms=1)
            for _ in range(20):
                await connection.send(call, timeout_ms=60_000)
            assert (await connection.call(ASK, timeout_ms=60_000)).cluster_id == "5"
            assert broker.count(ApiKey.PRODUCE) == 20
            await connection.close()

    run(scenario)


def test_close_fails_in_flight_requests(run: Run) -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as broker:
            received = asyncio.Event()

            def note_and_hang(_: ReceivedRequest) -> Answer:
                received.set()
                raise Hang

            broker.handlers[ApiKey.METADATA] = note_and_hang
            connection = await BrokerConnection.open(broker.address)
            waiting = asyncio.create_task(connection.call(ASK, timeout_ms=60_000))
            await received.wait()
            await connection.close()
            assert isinstance(await fails(waiting), Disconnected)

    run(scenario)


def test_a_failed_connection_names_address_and_reason(run: Run) -> None:
    async def scenario() -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            address = Address("127.0.0.1", free.getsockname()[1])
        with pytest.raises(ConnectFailed, match=f"cannot reach a broker at {address}.*refused"):
            await BrokerConnection.open(address)
        with pytest.raises(ConnectFailed, match="cannot be resolved"):
            await BrokerConnection.open(Address("no-such-host.invalid", 9092))

    run(scenario)


def test_a_server_that_never_responds_times_out(run: Run) -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as broker:
            broker.handlers[ApiKey.API_VERSIONS] = hang
            with pytest.raises(ConnectFailed, match=r"no answer within 0\.05 s"):
                await BrokerConnection.open(
                    broker.address, limits=ConnectionLimits(connect_timeout_ms=50)
                )

    run(scenario)


def test_a_connection_that_is_closed_before_the_first_answer_hints_at_tls(run: Run) -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as broker:
            broker.handlers[ApiKey.API_VERSIONS] = hang_up
            with pytest.raises(ConnectFailed, match="if that listener uses TLS, set "):
                await BrokerConnection.open(broker.address)

    run(scenario)


def test_a_server_with_another_protocol_is_recognised(run: Run) -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as broker:
            broker.handlers[ApiKey.API_VERSIONS] = lambda _: b"HTTP/1.1 400 Bad Request\r\n"
            with pytest.raises(ConnectFailed, match="does not answer in Kafka's protocol"):
                await BrokerConnection.open(broker.address)

    run(scenario)
