"""Servers started from PySpark's jars: one, an ensemble of three, killed, orphaned."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from ipaddress import ip_address
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from tests.unit.metadata_store.backends import States, opened, run
from tests.zookeeper import skip_without_zookeeper

from penstock.config.zookeeper import ZooKeeperConfig
from penstock.metadata_store.errors import ConnectionLoss, ZooKeeperMissing
from penstock.metadata_store.interface import SessionState
from penstock.metadata_store.zookeeper.server import ZooKeeperEnsemble
from penstock.metadata_store.zookeeper.store import ZooKeeperMetadataStore

pytestmark = pytest.mark.xdist_group("zookeeper")


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperEnsemble]:
    skip_without_zookeeper()
    with ZooKeeperEnsemble(tmp_path_factory.mktemp("three"), servers=3) as ensemble:
        yield ensemble


def test_three_servers_have_one_leader_and_any_of_them_serves(three: ZooKeeperEnsemble) -> None:
    modes = sorted(str(server.find_mode()) for server in three.servers)
    assert modes == ["follower", "follower", "leader"]

    async def scenario() -> None:
        async with opened(three.connect) as store:
            writer = await store.open_session()
            await writer.create("/a", b"x")
            for server in three.servers:
                async with opened(server.address) as alone:
                    reader = await alone.open_session()
                    await reader.sync()
                    assert reader.statistics().server == server.address

    run(scenario())


def test_sessions_survive_one_killed_server_of_three(three: ZooKeeperEnsemble) -> None:
    async def scenario() -> None:
        async with opened(three.connect, session_timeout_ms=30_000) as store:
            session = await store.open_session()
            number = session.id
            await session.create("/e", ephemeral=True)
            for server in three.servers:  # among them the leader, and the one of the session
                server.kill()
                while True:
                    try:
                        await session.set("/e", server.address.encode())
                        break
                    except ConnectionLoss:
                        await asyncio.sleep(0.05)
                server.start()
                await asyncio.to_thread(three.wait_serving)
            value = await session.get("/e")
            assert value.stat.ephemeral_owner == session.id == number
            assert value.data == three.servers[-1].address.encode()

    run(scenario())


def test_sessions_are_suspended_without_servers_and_recover_with_them(
    three: ZooKeeperEnsemble,
) -> None:
    async def scenario() -> None:
        async with opened(three.connect, session_timeout_ms=30_000) as store:
            session = await store.open_session()
            states, number = States(session), session.id
            await session.create("/kept", b"x")
            await session.create("/e", ephemeral=True)
            three.kill()
            await states.wait_for(SessionState.SUSPENDED)
            with pytest.raises(ConnectionLoss):
                await session.get("/kept")
            for server in three.servers:
                server.start()
            await states.wait_for(SessionState.CONNECTED)
            assert (await session.get("/kept")).data == b"x"
            stat = await session.exists("/e")
            assert stat is not None
            assert stat.ephemeral_owner == session.id == number
            await asyncio.to_thread(three.wait_serving)

    run(scenario())


def test_a_plain_client_sees_the_same_znodes(zookeeper_connect: str) -> None:
    """kazoo's own client, as operators use it."""

    async def scenario() -> None:
        async with opened(zookeeper_connect) as store:
            session = await store.open_session()
            await session.create("/ours", b"o")
            client = KazooClient(zookeeper_connect + store._config.chroot)
            await asyncio.to_thread(client.start)
            made = asyncio.Event()
            assert await session.exists("/theirs", lambda event: made.set()) is None
            await asyncio.to_thread(client.create, "/theirs", b"t")
            await made.wait()
            assert (await session.get("/theirs")).data == b"t"
            assert (await asyncio.to_thread(client.get, "/ours"))[0] == b"o"
            await asyncio.to_thread(client.stop)
            client.close()

    run(scenario())


def test_a_server_keeps_its_znodes_over_a_restart(tmp_path: Path) -> None:
    skip_without_zookeeper()
    ensemble = ZooKeeperEnsemble(tmp_path)
    ensemble.start()

    async def write() -> None:
        async with opened(ensemble.connect) as store:
            await (await store.open_session()).create("/a")

    async def count() -> int:
        store = await ZooKeeperMetadataStore.open(ZooKeeperConfig.parse(ensemble.connect))
        names = await (await store.open_session()).children("/")
        await store.close()
        return len(names)

    run(write())
    ensemble.stop()
    assert not ensemble.servers[0].is_running
    ensemble.start()  # with new ports
    assert asyncio.run(count()) == 2  # ZooKeeper's own znode, and the test's
    ensemble.stop()


def test_a_server_that_cannot_start_shows_its_log(tmp_path: Path) -> None:
    skip_without_zookeeper()
    ensemble = ZooKeeperEnsemble(tmp_path)
    data = tmp_path / "zookeeper1" / "data"
    data.mkdir(parents=True)
    (data / "version-2").write_text("not a folder")
    with pytest.raises(ZooKeeperMissing) as refused:
        ensemble.start()
    assert "ZooKeeper server 1 ended" in str(refused.value)
    assert "version-2" in str(refused.value)
    assert not any(server.is_running for server in ensemble.servers)


def test_servers_end_with_the_process_that_started_them(tmp_path: Path) -> None:
    skip_without_zookeeper()
    program = (
        "import sys, time\n"
        "from penstock.metadata_store.zookeeper.server import ZooKeeperEnsemble\n"
        "ensemble = ZooKeeperEnsemble(sys.argv[1]); ensemble.start()\n"
        "print(ensemble.connect, flush=True); time.sleep(600)\n"
    )
    owner = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert owner.stdout is not None
    with owner:
        host, _, port = owner.stdout.readline().strip().rpartition(":")
        with socket.create_connection((host, int(port))):
            pass
        os.kill(owner.pid, signal.SIGKILL)
    deadline = time.monotonic() + 180
    while is_listening(host, int(port)):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def is_listening(host: str, port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((host, port)) == 0


@pytest.mark.skipif(not Path("/proc/net/tcp6").exists(), reason="Linux only")
def test_servers_listen_on_loopback_alone_and_have_no_admin_server(
    three: ZooKeeperEnsemble,
) -> None:
    """Three ports of each at most: for clients, for the quorum (the leader's) and for elections."""
    for server in three.servers:
        addresses = listening_addresses(server.process_group)
        assert {address for address, _ in addresses} == {"127.0.0.1"}
        assert len(addresses) <= 3
        assert server.address in {f"{address}:{port}" for address, port in addresses}


def listening_addresses(process_group: int) -> set[tuple[str, int]]:
    """TCP addresses on which a process of the group listens."""
    inodes = {
        str(link.readlink())
        for process in Path("/proc").glob("[0-9]*")
        if is_in_group(process, process_group)
        for link in (process / "fd").iterdir()
    }
    addresses = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            _, local, _, state, *others = line.split()
            if state == "0A" and f"socket:[{others[5]}]" in inodes:
                address, _, port = local.partition(":")
                words = bytes.fromhex(address)
                octets = b"".join(words[at : at + 4][::-1] for at in range(0, len(words), 4))
                host = ip_address(octets)
                addresses.add((str(getattr(host, "ipv4_mapped", None) or host), int(port, 16)))
    return addresses


def is_in_group(process: Path, group: int) -> bool:
    with suppress(ProcessLookupError, FileNotFoundError):
        return os.getpgid(int(process.name)) == group
    return False


@pytest.mark.parametrize("word", ["conf", "cons", "dump", "envi", "mntr", "ruok", "stat", "wchs"])
def test_of_the_four_letter_words_a_server_obeys_none_that_tells_about_clients(
    three: ZooKeeperEnsemble, word: str
) -> None:
    """srvr is left, which ZooKeeper always obeys: its version, its mode and its counters."""
    host, _, port = three.servers[0].address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=180) as connection:
        connection.sendall(word.encode())
        answer = connection.makefile().read()
    assert answer.strip() == f"{word} is not executed because it is not in the whitelist."


@pytest.mark.parametrize("servers", [0, 6])
def test_an_ensemble_has_one_to_five_servers(tmp_path: Path, servers: int) -> None:
    with pytest.raises(ValueError, match="1 to 5 servers"):
        ZooKeeperEnsemble(tmp_path, servers)
