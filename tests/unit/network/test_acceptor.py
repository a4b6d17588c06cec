"""Connection limits, listening addresses and descriptor exhaustion."""

import asyncio
import errno
import os
import resource
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from tests.unit.network.harness import LOOPS, NetworkHarness, framed, serve, until

from penstock.config.effective_config import resolve_broker
from penstock.config.raw_config import RawConfig
from penstock.logs.event_logger import message_logger
from penstock.logs.rate_limit import LINES_PER_PEER
from penstock.network.acceptor import bind_all, plain_host
from penstock.network.limits import MIB, NetworkLimits
from penstock.network.server import Server
from penstock.purgatory.loop_timers import LoopTimers


def test_at_max_connections_the_next_one_waits_for_a_close() -> None:
    async def scenario(serving: NetworkHarness) -> None:
        first, second = await serving.connect(), await serving.connect()
        assert await first.ask(b"1") == b"1"
        assert await second.ask(b"2") == b"2"
        third = await serving.connect()  # in the listen backlog
        asking = asyncio.create_task(third.ask(b"3"))
        assert await first.ask(b"1") == b"1"
        assert serving.server.statistics().connections == 2
        assert not asking.done()
        second.sock.close()
        assert await asking == b"3"

    serve(scenario, limits=NetworkLimits(max_connections=2))


def test_connections_above_max_connections_per_ip_are_refused() -> None:
    async def scenario(serving: NetworkHarness) -> None:
        clients = [await serving.connect() for _ in range(3)]
        for client in clients:
            await client.ask(b"x")
        assert await (await serving.connect()).is_cut_off()
        assert serving.server.statistics().refused == 1
        clients[0].sock.close()
        await serving.until(lambda: serving.server.statistics().connections == 2)
        assert await (await serving.connect()).ask(b"x") == b"x"

    serve(scenario, limits=NetworkLimits(max_connections_per_ip=3))


def test_an_address_may_have_its_own_limit() -> None:
    async def scenario(serving: NetworkHarness) -> None:
        assert await (await serving.connect()).ask(b"x") == b"x"
        assert await (await serving.connect()).is_cut_off()

    limits = NetworkLimits(max_connections_per_ip=0, connections_of_ip={"127.0.0.1": 1})
    serve(scenario, limits=limits)


def test_new_connections_per_second_are_bounded() -> None:
    async def scenario(serving: NetworkHarness) -> None:
        clients = [await serving.connect() for _ in range(5)]
        asking = [asyncio.create_task(client.ask(b"x")) for client in clients]
        await serving.until(lambda: serving.server.statistics().accepted >= 2)
        for _ in range(5):
            serving.pass_time(1000)
            await asyncio.sleep(0.01)
        assert [await task for task in asking] == [b"x"] * 5

    serve(scenario, limits=NetworkLimits(max_new_connections_per_second=2))


@contextmanager
def few_descriptors_left(count: int) -> Iterator[None]:
    """Let this process open that many more descriptors."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    probe = os.dup(0)
    os.close(probe)
    # All descriptors below the lowest free one are in use. Some above may be too, and stay open.
    resource.setrlimit(resource.RLIMIT_NOFILE, (probe + count, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize("loop", LOOPS)
def test_descriptor_exhaustion_neither_spins_nor_ends_the_server(loop: str) -> None:
    async def scenario(serving: NetworkHarness) -> None:
        old = await serving.connect()
        assert await old.ask(b"x") == b"x"
        waiting = [socket.socket() for _ in range(3)]
        with few_descriptors_left(0):
            for sock in waiting:
                sock.setblocking(False)
                await asyncio.get_running_loop().sock_connect(sock, serving.address)
            await serving.until(lambda: serving.server.statistics().accept_failures >= 1)
            failures = serving.server.statistics().accept_failures
            for _ in range(50):  # a busy server would retry in these iterations of the loop
                assert await old.ask(b"still served") == b"still served"
            assert serving.server.statistics().accept_failures == failures
            assert "raise the limit of open files" in serving.reports[0]
            for _ in range(LINES_PER_PEER + 5):
                failures = serving.server.statistics().accept_failures
                serving.pass_time(250)
                await serving.until(lambda: serving.server.statistics().accept_failures > failures)  # noqa: B023
            assert len(serving.reports) == LINES_PER_PEER
        serving.pass_time(250)
        await serving.until(lambda: serving.server.statistics().connections == 4)
        for sock in waiting:
            sock.close()

    serve(scenario, loop=loop)


def test_a_server_listens_on_every_address_of_a_name_and_on_one_port() -> None:
    sockets = bind_all("localhost", 0, NetworkLimits())
    try:
        addresses = {str(result[4][0]) for result in socket.getaddrinfo("localhost", None)}
        assert {sock.getsockname()[0] for sock in sockets} == addresses
        assert len({sock.getsockname()[1] for sock in sockets}) == 1
    finally:
        for sock in sockets:
            sock.close()


def addresses_of_this_machine() -> list[str]:
    return ["127.0.0.1", "::1"] if socket.has_dualstack_ipv6() else ["127.0.0.1"]


def test_an_empty_host_listens_on_every_address() -> None:
    async def main() -> None:
        hosts: list[tuple[str, str]] = []
        server = Server(
            on_request=lambda request: hosts.append((request.caller.host, request.local_host)),
            timers=LoopTimers(),
            limits=NetworkLimits(),
            logger=message_logger(print),
        )
        _, port = server.bind("EXTERNAL", "", 0)
        server.start()
        for host in addresses_of_this_machine():
            hosts.clear()
            _, writer = await asyncio.open_connection(host, port)
            writer.write(framed(b"x"))
            await until(lambda: bool(hosts))
            assert hosts == [(host, host)]
            writer.close()
        await server.close(0)

    asyncio.run(main())


def test_a_port_in_use_is_reported_with_its_address() -> None:
    (taken,) = bind_all("127.0.0.1", 0, NetworkLimits())
    try:
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match=rf"cannot listen on 127\.0\.0\.1, port {port}") as error:
            bind_all("127.0.0.1", port, NetworkLimits())
        assert error.value.errno == errno.EADDRINUSE
    finally:
        taken.close()


def test_addresses_are_shown_without_mapping_and_interface() -> None:
    assert plain_host("::ffff:10.0.0.1") == "10.0.0.1"
    assert plain_host("fe80::1%eth0") == "fe80::1"
    assert plain_host("::1") == "::1"


def test_the_limits_default_to_kafkas_settings() -> None:
    assert NetworkLimits.from_broker(resolve_broker()) == NetworkLimits()


def test_settings_reach_the_limits() -> None:
    settings = {
        "queued.max.request.bytes": str(128 * MIB),
        "max.connections.per.ip.overrides": "127.0.0.1:7, localhost:9",
        "connections.max.idle.ms": "5000",
    }
    config = resolve_broker(RawConfig.from_mapping(settings, where="test"))
    limits = NetworkLimits.from_broker(config)
    assert limits.receive_budget_bytes == 128 * MIB
    assert limits.connections_of_ip["127.0.0.1"] == 9  # the later entry overrides the earlier one
    assert limits.max_idle_ms == 5000
