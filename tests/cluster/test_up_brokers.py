"""`penstock up --brokers 3` and `penstock cluster`, as a user sees them."""

import errno
import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import randrange
from typing import Any

import pytest
from tests.profile import is_long
from tests.scenarios.up_process import UpProcess, penstock_up, try_up

import penstock
from penstock.config.properties import write_properties
from penstock.metadata_store.zookeeper.jars import find_jars
from penstock.metadata_store.zookeeper.vulnerabilities import find_vulnerability_warning
from penstock.testing.security_kit import SecurityKit

pytestmark = pytest.mark.xdist_group("cluster")

PATIENCE_S = 180.0


def cli(servers: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "penstock.cli.main", "--bootstrap", servers, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)


def run_command(servers: str, *arguments: str) -> str:
    """Runs a command that must succeed, and returns its output."""
    done = cli(servers, *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def status(servers: str) -> dict[str, object]:
    reported: dict[str, object] = json.loads(run_command(servers, "cluster", "status", "--json"))
    return reported


def read(servers: str, count: int) -> list[bytes | None]:
    with penstock.Consumer(
        "orders", bootstrap_servers=servers, from_beginning=True, timeout_s=30
    ) as consumer:
        return [message.value for _, message in zip(range(count), consumer, strict=False)]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cluster")


@pytest.fixture(scope="module")
def up(data: Path) -> Iterator[UpProcess]:
    """The second start of a cluster, with the data of the first."""
    with penstock_up("--brokers", "3", "--data", str(data), "--listen", "127.0.0.1:0") as first:
        run_command(
            first.bootstrap_servers, "topic", "create", "orders", "--replication-factor", "3"
        )
        with penstock.Producer(first.bootstrap_servers) as producer:
            producer.send_and_wait("orders", b"one")
            producer.send_and_wait("orders", b"two")
        assert first.end() == 0
    with penstock_up("--brokers", "3", "--data", str(data), "--listen", "127.0.0.1:0") as second:
        yield second
        assert second.end() == 0


def test_the_ready_line_names_every_broker_and_a_restart_keeps_the_data(
    up: UpProcess, data: Path
) -> None:
    assert len(set(up.bootstrap_servers.split(","))) == 3
    for server in up.bootstrap_servers.split(","):
        assert read(server, 2) == [b"one", b"two"]
    logs = "\n".join(up.logs)
    assert "ZooKeeper is at 127.0.0.1:" in logs
    warning = find_vulnerability_warning(find_jars())
    assert (warning is not None) is ("WARN ZooKeeper" in logs)
    assert (warning or "") in logs
    for broker in (1, 2, 3):
        assert f"broker {broker} logs to {data}/broker{broker}.log" in logs
        assert (data / f"broker{broker}" / "orders-0").is_dir()


def test_status_shows_brokers_and_problems(up: UpProcess) -> None:
    lines = run_command(up.bootstrap_servers, "cluster", "status").splitlines()
    assert lines[0].startswith("cluster ")
    assert lines[2].split() == ["broker", "address", "rack", "leads", "replicas"]
    for line, address in zip(lines[3:6], up.bootstrap_servers.split(","), strict=True):
        assert line.split()[1] == address
    assert sum(line.endswith("controller") for line in lines[3:6]) == 1
    assert "without a leader" not in "\n".join(lines)
    reported = status(up.bootstrap_servers)
    assert reported["leaderless"] == []
    assert reported["moving"] == {}


def test_a_partition_is_reassigned_and_led_by_the_requested_broker(up: UpProcess) -> None:
    servers = up.bootstrap_servers
    run_command(servers, "topic", "create", "small", "--replication-factor", "1")
    assert (
        run_command(servers, "cluster", "reassign", "small-0", "--to", "3,1") == "small-0 moves\n"
    )
    leader = int(str(wait_moved(servers, [3, 1])["leader"]))
    other = 4 - leader
    run_command(servers, "cluster", "reassign", "small-0", "--to", f"{other},{leader}")
    wait_moved(servers, [other, leader], leader=leader)
    assert "small-0" in str(status(servers)["not_preferred"])

    elect = ("cluster", "elect-leaders", "small-0")
    assert run_command(servers, *elect) == "small-0 has its leader\n"
    assert run_command(servers, *elect) == "small-0 has its leader already\n"
    wait_moved(servers, [other, leader], leader=other)
    assert "small-0" not in str(status(servers)["not_preferred"])


def wait_moved(
    servers: str, replicas: list[int], topic: str = "small", *, leader: int | None = None
) -> dict[str, object]:
    """Waits until every broker has the same metadata: the controller has it first."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        seen = [describe(server, topic) for server in servers.split(",")]
        wanted = (replicas, seen[0]["leader"] if leader is None else leader)
        is_propagated = all(
            (replicas_of(partition), partition["leader"]) == wanted for partition in seen
        )
        if is_propagated and not status(servers)["moving"]:
            return seen[0]
        assert time.monotonic() < deadline, seen


def replicas_of(partition: dict[str, Any]) -> list[int]:
    return [replica["broker"] for replica in partition["replicas"]]


def describe(servers: str, topic: str = "small") -> dict[str, Any]:
    (only,) = json.loads(run_command(servers, "topic", "describe", topic, "--json"))["partitions"]
    return dict(only)


@pytest.mark.skipif(not is_long(), reason="tests/unit/replication has the throttle")
def test_a_throttled_reassignment_waits_until_unthrottled(up: UpProcess) -> None:
    """The limit is one byte per second, and there is more data than fits in one response."""
    servers = up.bootstrap_servers
    run_command(servers, "topic", "create", "heavy", "--replication-factor", "1")
    with penstock.Producer(servers) as producer:
        for _ in range(6):
            producer.send_and_wait("heavy", bytes(500_000))
    (held,) = replicas_of(describe(servers, "heavy"))
    target = [number for number in (1, 2, 3) if number != held][:1]
    move = ("cluster", "reassign", "heavy-0", "--to", str(target[0]))
    assert run_command(servers, *move, "--throttle", "1") == "heavy-0 moves\n"
    for _ in range(3):  # a command takes longer than the reassignment would without the throttle
        assert "heavy-0" in str(status(servers)["moving"])
    assert describe(servers, "heavy")["isr"] == [held]
    assert run_command(servers, "cluster", "unthrottle") == "removed all replication throttles\n"
    assert wait_moved(servers, target, "heavy")["isr"] == target


def test_nothing_to_do_is_reported(up: UpProcess) -> None:
    done = cli(up.bootstrap_servers, "cluster", "reassign")
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == "no reassignment is in progress\n"


def test_an_impossible_command_is_reported_and_exits_with_1(up: UpProcess) -> None:
    done = cli(up.bootstrap_servers, "cluster", "reassign", "orders-0", "--to", "1,9")
    assert (done.returncode, done.stdout) == (1, "")
    assert "orders-0" in done.stderr
    assert "9" in done.stderr
    done = cli(up.bootstrap_servers, "cluster", "elect-leaders", "nothing-0")
    assert done.returncode == 1
    assert "UNKNOWN_TOPIC_OR_PARTITION" in done.stderr


def test_a_reassignment_that_is_not_in_progress_cannot_be_cancelled(up: UpProcess) -> None:
    done = cli(up.bootstrap_servers, "cluster", "reassign", "orders-0", "--cancel")
    assert (done.returncode, done.stdout) == (1, "")
    assert "NO_REASSIGNMENT_IN_PROGRESS" in done.stderr


@pytest.mark.parametrize("broker", [2, 1] if is_long() else [2])
def test_a_used_port_is_reported_and_no_process_or_file_is_left(
    tmp_path: Path, broker: int
) -> None:
    with taken_port() as port:
        first = port + 1 - broker
        done = try_up(
            "--brokers", "2", "--data", str(tmp_path / "d"), "--listen", f"127.0.0.1:{first}"
        )
        with socket.socket() as probe:
            other = port + 1 if broker == 1 else first
            assert probe.connect_ex(("127.0.0.1", other)) == errno.ECONNREFUSED
    assert (done.returncode, done.stdout) == (1, "")
    assert "Traceback" not in done.stderr
    assert done.stderr.startswith(f"broker {broker}: the broker did not start")
    assert f"127.0.0.1:{port}" in done.stderr
    assert list(tmp_path.iterdir()) == []


@contextmanager
def taken_port() -> Iterator[int]:
    """Yields a used port. The port before it is free and stays so, because the system assigns none
    of these."""
    while True:
        port = randrange(20_001, 30_000)
        with socket.socket() as taken, socket.socket() as before:
            try:
                taken.bind(("127.0.0.1", port))
            except OSError:
                continue
            taken.listen()
            if before.connect_ex(("127.0.0.1", port - 1)) == errno.ECONNREFUSED:
                yield port
                return


def test_every_broker_has_the_listeners_of_the_config_with_their_security(
    tmp_path: Path,
) -> None:
    """Certificates between brokers, passwords for people; bootstrap addresses are the people's."""
    kit = SecurityKit("tls")
    keys = kit.broker_config
    config = {
        **{name: keys[name] for name in keys if name.startswith("ssl.")},
        "listeners": "BROKERS://127.0.0.1:0,CLIENTS://127.0.0.1:0",
        "advertised.listeners": "BROKERS://127.0.0.1:0,CLIENTS://localhost:0",
        "listener.security.protocol.map": "BROKERS:SSL,CLIENTS:SASL_SSL",
        "inter.broker.listener.name": "BROKERS",
        "ssl.client.auth": "none",
        "listener.name.brokers.ssl.client.auth": "required",
        "sasl.enabled.mechanisms": "SCRAM-SHA-512",
    }
    file, password = tmp_path / "cluster.properties", tmp_path / "root.password"
    file.write_text(write_properties(config))
    password.write_text("roots-password\n")
    options = ("--config", str(file), "--data", str(tmp_path / "data"))
    admin = ("--admin-user", "root", "--admin-password-file", str(password))
    client = tmp_path / "root.properties"
    client.write_text(
        "security.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-512\nsasl.username=root\n"
        f"ssl.ca.location={keys['ssl.truststore.location']}\n"
        f"sasl.password=${{file:{password}}}\n"
    )
    with penstock_up("--brokers", "2", *options, *admin) as up:
        servers = up.bootstrap_servers
        login = ("--client-config", str(client))
        assert len(servers.split(",")) == 2
        run_command(servers, "topic", "create", "orders", "--replication-factor", "2", *login)
        reported = json.loads(run_command(servers, "cluster", "status", "--json", *login))
        ports = [address.rpartition(":")[2] for address in servers.split(",")]
        assert [broker["address"] for broker in reported["brokers"]] == [
            f"localhost:{port}" for port in ports
        ]
        refused = cli(servers, "topic", "list")
        assert (refused.returncode, refused.stdout) == (1, "")
        assert up.end() == 0
    brokers = (tmp_path / "data" / "broker1.log").read_text()
    assert "BROKERS listens on 127.0.0.1" in brokers
