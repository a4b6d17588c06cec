"""What happens to a frame before a handler sees it."""

import struct
import subprocess
import sys
import tracemalloc
from collections.abc import Coroutine
from dataclasses import replace
from inspect import CORO_CLOSED, getcoroutinestate
from typing import Any

import pytest
from tests.unit.apis.harness import ApiHarness, FakeConnection, build

from penstock.apis.api import Api, Request
from penstock.apis.dispatcher import Dispatcher
from penstock.apis.preload import load_ahead
from penstock.apis.refused_versions import MAX_REMEMBERED, RefusedVersions
from penstock.apis.registry import APIS, SERVED
from penstock.apis.services import Services
from penstock.model.stop_requests import BrokerEnding
from penstock.protocol.api_keys import ApiKey
from penstock.protocol.frames import encode_request_frame
from penstock.protocol.malformed import MalformedRequest, RequestOverLimit, UnknownApiKey
from penstock.protocol.messages import get_request_schema, get_response_schema
from penstock.protocol.private_keys import PrivateKey
from penstock.protocol.produce_request import OLD_VERSIONS


def frame(key: int, version: int, body: bytes = b"") -> bytearray:
    """Build a frame with header version 1, so for versions that are not flexible."""
    head = key.to_bytes(2, "big", signed=True) + version.to_bytes(2, "big", signed=True)
    return bytearray(head + (7).to_bytes(4, "big") + b"\xff\xff" + body)


@pytest.mark.parametrize("key", [-1, 93, 2**15 - 1])
def test_a_key_that_does_not_exist_is_malformed(harness: ApiHarness, key: int) -> None:
    with pytest.raises(MalformedRequest, match=f"API key {key} does not exist"):
        harness.send_frame(frame(key, 0))


@pytest.mark.parametrize("key", sorted(set(ApiKey) - set(APIS)))
def test_an_api_that_is_not_served_closes_the_connection(harness: ApiHarness, key: ApiKey) -> None:
    flexible = bytes(1) if key.first_flexible_version == 0 else b""
    in_flight = harness.send_frame(frame(key, 0, flexible))
    assert not in_flight.is_answered
    assert "is not served here" in str(harness.connection.closed_because)


@pytest.mark.parametrize("key", sorted(set(APIS) - {ApiKey.API_VERSIONS}))
def test_versions_that_are_not_served_close_the_connection(
    harness: ApiHarness, key: ApiKey
) -> None:
    versions = APIS[key].versions
    for version in {-1, versions[0] - 1, versions[-1] + 1, 2**15 - 1}:
        connection = FakeConnection()
        in_flight = harness.send_frame(frame(key, version, bytes(1)), connection)
        assert (in_flight.is_answered, connection.is_closed) == (False, True)
        assert f"{versions[0]} to {versions[-1]}" in str(connection.closed_because)


@pytest.mark.parametrize("refused", [(ApiKey.FETCH, 99), (ApiKey.STOP_REPLICA, 0)])
def test_a_refused_version_is_logged_once_for_each_client(
    harness: ApiHarness, refused: tuple[ApiKey, int]
) -> None:
    def is_logged(name: bytes) -> bool:
        connection = FakeConnection()
        client = len(name).to_bytes(2, "big") + name
        head = frame(*refused)[:8]
        harness.send_frame(bytearray(head + client + bytes(1)), connection)
        assert connection.is_closed
        return connection.is_close_logged

    assert [is_logged(name) for name in (b"a", b"a", b"b", b"a", b"b")] == [
        True,
        False,
        True,
        False,
        False,
    ]


def test_an_api_key_that_nobody_has_is_logged_once_for_an_address(harness: ApiHarness) -> None:
    logged = []
    for key in (999, 999, 998, 999):
        with pytest.raises(UnknownApiKey) as unknown:
            harness.send_frame(frame(key, 0), FakeConnection())
        logged.append(unknown.value.is_logged)
    assert logged == [True, False, True, False]


def test_refused_clients_are_remembered_by_the_beginning_of_their_ids() -> None:
    refused = RefusedVersions()
    tracemalloc.start()
    try:
        for number in range(MAX_REMEMBERED):
            assert refused.is_first(("10.0.0.1", f"{number:05}{'x' * 30_000}", 3, 99))
        held_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held_bytes < 2_000_000


def test_the_memory_of_refused_versions_is_bounded() -> None:
    refused = RefusedVersions()
    assert all(refused.is_first(("host", "client", 1, number)) for number in range(1001))
    assert not refused.is_first(("host", "client", 1, 1000))
    assert refused.is_first(("host", "client", 1, 0))  # the oldest was forgotten


@pytest.mark.parametrize("key", sorted(APIS))
def test_every_served_version_has_its_schemas(key: ApiKey) -> None:
    without = OLD_VERSIONS if key is ApiKey.PRODUCE else ()  # encoded and decoded by hand
    for version in sorted(set(APIS[key].versions) - set(without)):
        assert get_request_schema(key, version).__version__ == version
        assert get_response_schema(key, version).__version__ == version


def test_a_body_with_trailing_bytes_is_malformed(harness: ApiHarness) -> None:
    with pytest.raises(MalformedRequest, match="ends at byte"):
        harness.send_frame(frame(ApiKey.METADATA, 0, bytes(4) + b"more"))


def test_a_body_that_ends_early_is_malformed(harness: ApiHarness) -> None:
    with pytest.raises(MalformedRequest):
        harness.send_frame(frame(ApiKey.METADATA, 0, b"\0\0\0\1"))


@pytest.mark.parametrize("key", sorted(set(APIS) - {ApiKey.PRODUCE}))
def test_only_produce_requests_may_be_large(harness: ApiHarness, key: ApiKey) -> None:
    """The largest other request is SyncGroup, with the assignments of all members."""
    limit = 20 << 20 if key is ApiKey.SYNC_GROUP else 4 << 20
    caller = harness.connection.caller
    harness.dispatcher.check_frame(caller, key, limit)
    with pytest.raises(RequestOverLimit, match=f"{key.title} request of {limit + 1} bytes"):
        harness.dispatcher.check_frame(caller, key, limit + 1)


@pytest.mark.parametrize("key", [-1, 2**15 - 1, PrivateKey.CONTROLLER_REQUEST])
def test_a_large_frame_of_an_api_that_is_not_served_here_is_not_received(
    harness: ApiHarness, key: int
) -> None:
    with pytest.raises(RequestOverLimit, match=f"API {key} request"):
        harness.dispatcher.check_frame(harness.connection.caller, key, (4 << 20) + 1)


def test_a_produce_request_above_every_limit_is_named_with_the_setting(harness: ApiHarness) -> None:
    caller = harness.connection.caller
    with pytest.raises(
        RequestOverLimit, match=r"Produce request .*socket\.request\.max\.bytes"
    ) as over:
        harness.dispatcher.check_frame(caller, ApiKey.PRODUCE, (100 << 20) + 1)
    assert over.value.api == "Produce"


def test_bytes_that_are_hardly_a_request_are_left_to_the_connection(harness: ApiHarness) -> None:
    """As a size, the first four bytes of HTTP are more than a gigabyte."""
    size, key = struct.unpack(">ih", b"GET / ")
    harness.dispatcher.check_frame(harness.connection.caller, key, size)


def test_large_produce_requests_are_handled(harness: ApiHarness) -> None:
    harness.dispatcher.check_frame(harness.connection.caller, ApiKey.PRODUCE, 100 << 20)
    with pytest.raises(MalformedRequest):
        harness.send_frame(frame(ApiKey.PRODUCE, 3, bytes(20 << 20)))


def test_a_frame_above_its_limit_is_logged_once_for_each_address(harness: ApiHarness) -> None:
    def is_logged(host: str) -> bool:
        caller = harness.connection.caller._replace(host=host)
        with pytest.raises(RequestOverLimit) as refused:
            harness.dispatcher.check_frame(caller, ApiKey.FETCH, 100 << 20)
        return refused.value.is_logged

    assert [is_logged(host) for host in ("a", "a", "b", "a")] == [True, False, True, False]


def test_a_request_with_too_many_elements_names_client_api_and_limit(harness: ApiHarness) -> None:
    """And once only, because some clients retry for ever."""
    body = (60_001).to_bytes(4, "big") + b"\0\1t" * 60_001  # topics of Metadata v1: structs
    refusals = []
    for _ in range(2):
        with pytest.raises(RequestOverLimit) as refused:
            harness.send_frame(frame(ApiKey.METADATA, 1, body))
        refusals.append((str(refused.value), refused.value.is_logged))
    assert [is_logged for _, is_logged in refusals] == [True, False]
    text = refusals[0][0]
    assert "Metadata v1 of client None" in text
    # Metadata may use half of the setting.
    assert "more than 30000 elements (penstock.request.max.elements) at topics" in text


def test_an_unexpected_error_of_a_handler_is_raised_without_a_response(harness: ApiHarness) -> None:
    """The caller, which is the network, closes the connection and logs the error."""

    def fail(request: Request, services: Services) -> None:
        raise ZeroDivisionError

    key = ApiKey.METADATA
    harness.dispatcher = Dispatcher(
        {key: Api(key=key, versions=range(1), answer=fail)}, harness.services
    )
    with pytest.raises(ZeroDivisionError):
        harness.send_frame(frame(key, 0, bytes(4)))


def test_a_handler_that_fails_after_an_await_fails_its_connection(harness: ApiHarness) -> None:
    async def fail() -> None:
        raise ZeroDivisionError

    def run(work: Coroutine[Any, Any, None]) -> None:
        with pytest.raises(StopIteration):
            work.send(None)

    api = Api(key=ApiKey.METADATA, versions=range(1), answer=lambda request, services: fail())
    services = replace(harness.services, run=run)
    harness.dispatcher = Dispatcher({ApiKey.METADATA: api}, services)
    in_flight = harness.send_frame(frame(ApiKey.METADATA, 0, bytes(4)))
    assert not in_flight.is_answered
    assert [type(error) for error in harness.connection.unexpected_errors] == [ZeroDivisionError]
    assert "Metadata" in str(harness.connection.closed_because)


def test_a_broker_without_metadata_refuses_clients(
    harness: ApiHarness,
) -> None:
    harness.dispatcher = Dispatcher(APIS, harness.services, serves_clients=False)
    harness.send_frame(frame(ApiKey.METADATA, 0, bytes(4)))
    assert "has no metadata of its cluster" in str(harness.connection.closed_because)


def test_a_broker_without_metadata_still_answers_api_versions(
    harness: ApiHarness,
) -> None:
    harness.dispatcher = Dispatcher(APIS, harness.services, serves_clients=False)
    harness.send_frame(frame(ApiKey.API_VERSIONS, 0, b""))
    harness.dispatcher.open()
    harness.send_frame(frame(ApiKey.METADATA, 0, bytes(4)))
    assert harness.connection.closed_because is None


@pytest.mark.parametrize("key", SERVED)
def test_every_handler_serves_what_the_registry_says(key: ApiKey) -> None:
    assert (APIS[key].key, APIS[key].versions) == (key, SERVED[key])


def test_handlers_are_loaded_on_first_use() -> None:
    script = (
        "import sys; from penstock.apis.registry import APIS, ApiKey;"
        "print('penstock.apis.admin.create_topics' in sys.modules);"
        "APIS[ApiKey.CREATE_TOPICS]; print('penstock.apis.admin.create_topics' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    assert done.stdout.split() == [b"False", b"True"]


def test_after_loading_ahead_no_request_waits_for_a_schema(harness: ApiHarness) -> None:
    for _ in load_ahead():
        pass
    before = set(sys.modules)
    harness.make_topic("orders")
    for key, api in APIS.items():
        if key in (ApiKey.API_VERSIONS, ApiKey.METADATA, ApiKey.LIST_OFFSETS, ApiKey.FETCH):
            for version in api.versions:
                harness.dispatcher.on_request(
                    harness.connection.begin(memoryview(empty(key, version)))
                )
    assert {name for name in set(sys.modules) - before if name.startswith("kio.")} == set()


def empty(key: ApiKey, version: int) -> bytearray:
    message = build(get_request_schema(key, version), {"client_software_name": "a"})
    return bytearray(encode_request_frame(message, correlation_id=1, client_id=None)[4:])


def test_a_request_during_shutdown_closes_its_connection_without_an_error(
    harness: ApiHarness,
) -> None:
    def refuse(work: Coroutine[Any, Any, None]) -> None:
        work.close()
        raise BrokerEnding("the broker is ending")

    async def answer() -> None:
        raise AssertionError("nothing starts any more")

    started: list[Coroutine[Any, Any, None]] = []

    def handle(request: Request, services: Services) -> Coroutine[Any, Any, None]:
        started.append(answer())
        return started[0]

    api = Api(key=ApiKey.METADATA, versions=range(1), answer=handle)
    services = replace(harness.services, run=refuse)
    harness.dispatcher = Dispatcher({ApiKey.METADATA: api}, services)
    in_flight = harness.send_frame(frame(ApiKey.METADATA, 0, bytes(4)))
    assert (in_flight.is_answered, harness.reports) == (False, [])
    assert str(harness.connection.closed_because) == "the broker is ending"
    assert getcoroutinestate(started[0]) == CORO_CLOSED
