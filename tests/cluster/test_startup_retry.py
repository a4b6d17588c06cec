"""ZooKeeper fails while a broker starts: the broker retries, and exits with an error if it stays
away.

The proxy closes at a given request of the start, so that the moment is always the same.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import pytest
from tests.scenarios.up_process import try_up
from tests.zookeeper import kazoo_client

from penstock.client.cluster import ClusterClient
from penstock.server.broker_process import BrokerProcess
from penstock.testing.admin_calls import new_topic, run_apart
from penstock.testing.tcp_gate import TcpGate

pytestmark = pytest.mark.xdist_group("zookeeper")

LONG_MS, SHORT_MS, SHORTEST_MS = 30_000, 1500, 1000  # also bounds the start-up retry
PATIENCE_S = 180.0
REGISTRATION = "/brokers/ids/7"
# The znodes that a starting broker reads, in order.
START_UP_READS = ("/cluster/id", "/config/topics", REGISTRATION)


@pytest.fixture
def gate(zookeeper_connect: str) -> Iterator[TcpGate]:
    gate = TcpGate(int(zookeeper_connect.rpartition(":")[2]))
    yield gate
    gate.close()


@pytest.fixture
def chroot() -> str:
    return f"/{uuid4().hex}"


@contextmanager
def starting(connect: str, folder: Path, *, session_ms: int) -> Iterator[BrokerProcess]:
    settings = {
        "broker.id": "7",
        "log.dirs": str(folder),
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "zookeeper.connect": connect,
        "zookeeper.session.timeout.ms": str(session_ms),
    }
    process = BrokerProcess(settings)
    try:
        yield process
    finally:
        if not process.has_ended:
            process.kill()


@pytest.mark.parametrize("znode", START_UP_READS)
def test_a_broker_starts_once_zookeeper_is_back(
    gate: TcpGate, chroot: str, tmp_path: Path, znode: str
) -> None:
    gate.shut_before(f"{chroot}{znode}".encode())
    with starting(gate.address + chroot, tmp_path, session_ms=LONG_MS) as process:
        gate.wait_shut()
        wait_told(process, "lost its connection")
        gate.open()
        process.wait_ready()
        assert "reconnected to" in process.read_logs()
        create_topic(process.bootstrap_servers)
        process.stop()


def test_a_broker_whose_session_expires_during_startup_opens_another(
    gate: TcpGate, zookeeper_connect: str, chroot: str, tmp_path: Path
) -> None:
    """The broker is paused before it registers, for longer than its session timeout."""
    gate.shut_before(f"{chroot}{REGISTRATION}".encode())
    with starting(gate.address + chroot, tmp_path, session_ms=SHORT_MS) as process:
        gate.wait_shut()
        process.pause()
        wait_session_over(zookeeper_connect, chroot)
        gate.open()
        process.resume()
        process.wait_ready()
        assert "ZooKeeper session expired; re-registering broker" in process.read_logs()
        create_topic(process.bootstrap_servers)
        process.stop()


@pytest.mark.parametrize("znode", [START_UP_READS[0], REGISTRATION])
def test_a_broker_without_zookeeper_reports_it_and_exits(
    gate: TcpGate, chroot: str, tmp_path: Path, znode: str
) -> None:
    gate.shut_before(f"{chroot}{znode}".encode())
    begun_s = time.monotonic()
    done = try_up(
        *("--broker-id", "7", "--zookeeper", gate.address + chroot, "--data", str(tmp_path)),
        *("--listen", "127.0.0.1:0", "--set", f"zookeeper.session.timeout.ms={SHORTEST_MS}"),
    )
    gate.wait_shut()
    assert (done.returncode, done.stdout) == (1, "")
    assert time.monotonic() - begun_s > SHORTEST_MS / 1000
    last = done.stderr.splitlines()[-1]
    assert "start_refused: ZooKeeper was unreachable for 1 s while the broker started" in last
    assert last.endswith("start it again when ZooKeeper answers")
    assert "Traceback" not in done.stderr


def wait_told(process: BrokerProcess, words: str) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while words not in (logs := process.read_logs()):
        assert time.monotonic() < deadline_s, logs
        assert not process.has_ended, logs
        time.sleep(0.02)


def wait_session_over(connect: str, chroot: str) -> None:
    """Waits until all earlier sessions have expired.

    Sessions with the same timeout expire in the order of their last heartbeat, and this one is
    opened now and sends none.
    """
    gate = TcpGate(int(connect.rpartition(":")[2]))
    with (
        kazoo_client(gate.address, SHORT_MS / 1000) as silent,
        kazoo_client(connect) as watching,
    ):
        silent.create(f"{chroot}/last", ephemeral=True)
        gate.shut()
        deadline_s = time.monotonic() + PATIENCE_S
        while watching.exists(f"{chroot}/last"):
            assert time.monotonic() < deadline_s
            time.sleep(0.02)
    gate.close()


def create_topic(bootstrap_servers: str) -> None:
    """Creates a topic, which needs ZooKeeper."""

    async def create() -> None:
        async with ClusterClient(bootstrap_servers) as client:
            await client.admin.create_topics([new_topic("orders", 1, 1, None)])

    run_apart(create)
