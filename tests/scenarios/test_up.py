"""`penstock up`: starts, stops, restarts, and reports what it rejects."""

import asyncio
import os
import signal
import socket
import subprocess
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.scenarios.up_process import penstock_up, try_up, up_command

import penstock
from penstock.client.cluster import ClusterClient
from penstock.config.listeners import Listener
from penstock.server.local_cluster import LocalCluster

ANY = "127.0.0.1:0"
TWO_LISTENERS = (
    *("--set", "listener.security.protocol.map=A:PLAINTEXT,B:PLAINTEXT"),
    *("--set", "inter.broker.listener.name=B"),
)


def send(servers: str, *values: bytes) -> None:
    with penstock.Producer(servers) as producer:
        for value in values:
            producer.send_and_wait("events", value)


def read(servers: str, count: int) -> list[bytes | None]:
    values: list[bytes | None] = []
    with penstock.Consumer(
        "events", bootstrap_servers=servers, from_beginning=True, timeout_s=30
    ) as consumer:
        for message in consumer:
            values.append(message.value)
            if len(values) == count:
                break
    return values


def advertised_addresses(servers: str) -> set[tuple[str, int]]:
    async def ask() -> set[tuple[str, int]]:
        async with ClusterClient(servers) as client:
            metadata = await client.metadata([])
            return {(node.address.host, node.address.port) for node in metadata.brokers.values()}

    return asyncio.run(ask())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_the_broker_cleanly_and_a_restart_has_all_data(
    tmp_path: Path, number: signal.Signals
) -> None:
    data = tmp_path / "data"
    with penstock_up("--data", str(data), "--listen", ANY) as first:
        send(first.bootstrap_servers, b"one", b"two")
        assert first.end(number) == 0
    assert (data / ".kafka_cleanshutdown").exists()
    with penstock_up("--data", str(data), "--listen", ANY) as second:
        assert read(second.bootstrap_servers, 2) == [b"one", b"two"]
        assert second.end() == 0


def test_a_crash_of_the_interpreter_names_what_every_thread_did(tmp_path: Path) -> None:
    without_core = ("sh", "-c", 'ulimit -c 0; exec "$@"', "sh")
    with penstock_up("--data", str(tmp_path), "--listen", ANY, prefix=without_core) as up:
        assert up.end(signal.SIGSEGV) == -signal.SIGSEGV
    assert "Fatal Python error: Segmentation fault" in up.logs
    stacks = [line for line in up.logs if line.endswith("(most recent call first):")]
    assert len(stacks) >= 2, "of the event loop and the watchdog, at least"


def test_the_broker_starts_in_less_than_a_second_of_cpu_time(tmp_path: Path) -> None:
    """CPU time, because wall time includes the machine's other work."""
    with penstock_up("--data", str(tmp_path), "--listen", ANY) as up:
        assert used_s(up.pid) < 1.0
        assert up.end() == 0


def used_s(pid: int) -> float:
    """User and system time of all threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_simultaneous_signals_count_as_one(tmp_path: Path) -> None:
    """`timeout` sends them so, to the process and to its group."""
    with penstock_up("--data", str(tmp_path), "--listen", ANY) as up:
        os.kill(up.pid, signal.SIGINT)
        assert up.end(signal.SIGTERM) == 0
    assert (tmp_path / ".kafka_cleanshutdown").exists()


def test_the_folders_of_a_cluster_are_not_partitions_of_a_single_broker(tmp_path: Path) -> None:
    """`penstock up --brokers 3` and `penstock up` may run in the same directory."""
    listener = Listener("PLAINTEXT", "127.0.0.1", 0)
    cluster = LocalCluster(tmp_path, listeners=[[listener]], zookeeper="zk:2181")
    folder = cluster.folder_of(1)
    (folder / "orders-0").mkdir(parents=True)
    with penstock_up("--data", str(tmp_path), "--listen", ANY) as up:
        assert up.end() == 0
        assert any(f"{folder} is not a partition's folder; ignoring it" in log for log in up.logs)
    assert [path.name for path in folder.iterdir()] == ["orders-0"]


def test_without_options_the_data_is_in_the_working_directory(tmp_path: Path) -> None:
    with penstock_up("--listen", ANY, cwd=tmp_path) as up:
        send(up.bootstrap_servers, b"here")
        assert up.end() == 0
    assert (tmp_path / "penstock-data" / "events-0").is_dir()


def test_a_start_up_line_says_what_is_advertised_and_how_to_change_it(tmp_path: Path) -> None:
    with penstock_up("--data", str(tmp_path / "d"), "--listen", ANY) as up:
        up.end()
        logs = "\n".join(up.logs)
    assert "it advertises the address that each client connected to" in logs
    assert "advertised.listeners" in logs


def test_settings_without_effect_are_named_in_one_line_at_start(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("num.io.threads=4\nnum.partitions=2\nnum.network.threads=9\n")
    with penstock_up("--config", str(file), "--data", str(tmp_path / "d"), "--listen", ANY) as up:
        up.end()
    (line,) = [line for line in up.logs if "config settings_without_effect: " in line]
    assert "2 of the settings change nothing here: " in line
    assert "num.io.threads (no effect: one event loop serves a broker)" in line
    assert "num.network.threads" in line
    assert "num.partitions" not in line


def test_strict_starts_if_every_setting_has_an_effect(tmp_path: Path) -> None:
    with penstock_up("--strict", "--data", str(tmp_path / "d"), "--listen", ANY) as up:
        assert up.end() == 0


def test_on_every_interface_a_client_gets_the_address_it_connected_to(tmp_path: Path) -> None:
    with penstock_up("--data", str(tmp_path / "d"), "--listen", "0.0.0.0:0") as up:
        port = int(up.bootstrap_servers.rpartition(":")[2])
        for host in ("127.0.0.1", "127.0.0.2", *machine_addresses()):
            assert advertised_addresses(f"{host}:{port}") == {(host, port)}
        assert up.end() == 0


def machine_addresses() -> list[str]:
    """The addresses of other interfaces, if any; connecting a UDP socket sends nothing."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return []
        return [str(probe.getsockname()[0])]


def test_each_listener_has_its_own_advertised_address(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(
        "listeners=INSIDE://127.0.0.1:0,OUTSIDE://127.0.0.1:0\n"
        "advertised.listeners=INSIDE://127.0.0.1:0,OUTSIDE://logs.example:19092\n"
        "listener.security.protocol.map=INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT\n"
        "inter.broker.listener.name=INSIDE\n"
        f"log.dirs={tmp_path / 'd'}\n"
    )
    with penstock_up("--config", str(file)) as up:
        inside, outside = up.bootstrap_servers.split(",")
        host, _, port = inside.rpartition(":")
        assert advertised_addresses(inside) == {(host, int(port))}
        assert advertised_addresses(outside) == {("logs.example", 19092)}
        assert up.end() == 0


def test_the_command_line_overrides_the_config_file(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(f"num.partitions=3\nbroker.id=7\nlog.dirs={tmp_path / 'd'}\n")
    with penstock_up("--config", str(file), "--listen", ANY, "--set", "num.partitions=2") as up:
        send(up.bootstrap_servers, b"x")
        assert up.end() == 0
    assert sorted(path.name for path in (tmp_path / "d").glob("events-*")) == [
        "events-0",
        "events-1",
    ]
    assert "broker.id=7" in (tmp_path / "d" / "meta.properties").read_text()


def test_a_listen_address_does_not_replace_secured_listeners_in_silence(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("num.partitions=1\nlisteners=PLAINTEXT://:9092,SSL://:9093\n")
    data = tmp_path / "data"
    refused = try_up("--config", str(file), "--data", str(data), "--listen", ANY)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert f"listeners asks for SSL ({file}:2); leave --listen out" in refused.stderr
    assert not data.exists()


def test_a_second_broker_on_the_same_data_is_refused(tmp_path: Path) -> None:
    with penstock_up("--data", str(tmp_path), "--listen", ANY) as up:
        second = try_up("--data", str(tmp_path), "--listen", ANY)
        assert second.returncode == 1
        assert str(tmp_path) in second.stderr
        assert "another" in second.stderr
        send(up.bootstrap_servers, b"undisturbed")
        assert up.end() == 0


def test_another_brokers_data_is_refused(tmp_path: Path) -> None:
    with penstock_up("--data", str(tmp_path), "--listen", ANY, "--broker-id", "4") as up:
        assert up.end() == 0
    refused = try_up("--data", str(tmp_path), "--listen", ANY, "--broker-id", "5")
    assert refused.returncode == 1
    assert "belongs to broker 4, not 5" in refused.stderr


def test_an_address_in_use_is_named(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        refused = try_up("--data", str(tmp_path), "--listen", f"127.0.0.1:{port}")
    assert refused.returncode == 1
    assert f"127.0.0.1:{port}" in refused.stderr
    assert "Traceback" not in refused.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "expected"),
    [
        (("--set", "log.retention.ms=soon"), 2, "log.retention.ms"),
        (("--set", "log.retentoin.ms=1"), 2, "did you mean"),
        (("--set", "nonsense"), 2, "KEY=VALUE"),
        (("--listen", "9092"), 2, "HOST:PORT"),
        (("--metrics", "9404"), 2, "--metrics 9404: HOST:PORT"),
        (("--set", "metrics.listener=:9404"), 2, "metrics.listener"),
        (("--log-format", "xml"), 2, "logging.format"),
        (("--log-level", "loud"), 2, "logging.level"),
        (("--config", "/nowhere/server.properties"), 2, "/nowhere/server.properties"),
        (("--zookeepers", "3"), 2, "--zookeepers"),
        (("--brokers", "2", "--zookeepers", "3", "--zookeeper", "zk:2181"), 2, "--zookeepers"),
        (("--brokers", "2", "--broker-id", "1"), 2, "--broker-id"),
        (
            (
                *("--set", "listeners=SASL_PLAINTEXT://127.0.0.1:0"),
                *("--set", "security.inter.broker.protocol=SASL_PLAINTEXT"),
            ),
            1,
            "GSSAPI, which is not implemented; there are PLAIN, SCRAM-SHA-256, SCRAM-SHA-512",
        ),
        (("--admin-password-file", "x"), 2, "--admin-password-file needs --admin-user"),
        (("--admin-user", "root"), 1, "no listener lets it log in"),
        (("--set", "authorizer.class.name=a.B"), 2, "authorizer.class.name: a.B cannot be loaded"),
        (
            ("--brokers", "2", "--listen", ANY, "--set", "listeners=PLAINTEXT://h:1,SSL://:0"),
            2,
            "listeners asks for SSL (--set); leave --listen out",
        ),
        (
            ("--brokers", "3", *TWO_LISTENERS, "--set", "listeners=A://:9092,B://127.0.0.1:9094"),
            2,
            "A has the ports from 9092 to 9094, and B those from 9094 to 9096",
        ),
        (
            ("--brokers", "2", "--set", "listeners=SSL://:0"),
            2,
            "set inter.broker.listener.name to the one over which brokers reach each other: SSL",
        ),
        (("--brokers", "2", "--set", "zookeeper.set.acl=true"), 2, "zookeeper.set.acl"),
        (
            ("--brokers", "2", "--set", "zookeeper.ssl.client.enable=true"),
            2,
            "zookeeper.ssl.client.enable needs a ZooKeeper that has it: name yours",
        ),
        (("--brokers", "2", "--set", "log.retention.ms=soon"), 2, "log.retention.ms"),
        (("--strict", "--set", "num.io.threads=4"), 2, "num.io.threads (no effect: one event loop"),
        (("--brokers", "2", "--strict", "--set", "num.io.threads=4"), 2, "num.io.threads"),
        (
            ("--strict", "--set", "listener.name.plaintext.max.connections=5"),
            2,
            "listener.name.plaintext.max.connections (no effect",
        ),
    ],
)
def test_invalid_arguments_are_refused_by_name(
    tmp_path: Path, arguments: tuple[str, ...], code: int, expected: str
) -> None:
    refused = try_up("--data", str(tmp_path / "d"), *arguments)
    assert (refused.returncode, "Traceback" in refused.stderr) == (code, False)
    assert expected in refused.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("brokers", [(), ("--brokers", "2")])
def test_a_line_of_the_config_file_that_cannot_be_read_is_named(
    tmp_path: Path, brokers: tuple[str, ...]
) -> None:
    file = tmp_path / "server.properties"
    file.write_text("num.partitions=2\nlog.retention.ms=\\u12\n")
    data = tmp_path / "data"
    done = try_up(*brokers, "--config", str(file), "--data", str(data), "--listen", ANY)
    assert done.returncode == 2
    assert f"{file}:2: " in done.stderr
    assert not data.exists()


def test_a_metrics_address_in_use_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        data = str(tmp_path / "data")
        refused = try_up("--data", data, "--listen", ANY, "--metrics", address)
    assert (refused.returncode, "Traceback" in refused.stderr) == (1, False)
    assert f"metrics cannot be served on {address}" in refused.stderr
    assert list(tmp_path.iterdir()) == []


def test_with_few_descriptors_connections_wait_and_logs_are_served(tmp_path: Path) -> None:
    """Connections once used up the descriptors of the logs, and the broker exited as if its disk
    had failed."""
    few = ("sh", "-c", 'ulimit -n 64; exec "$@"', "sh")
    arguments = ("--data", str(tmp_path), "--listen", ANY, "--set", "num.partitions=100")
    with penstock_up(*arguments, prefix=few) as up, ExitStack() as leaving:
        send(up.bootstrap_servers, b"first")
        host, _, port = up.bootstrap_servers.rpartition(":")
        for _ in range(60):  # more than are accepted, but no more than the backlog
            leaving.enter_context(socket.create_connection((host, int(port))))
        leaving.close()
        with penstock.Producer(up.bootstrap_servers) as producer:
            for partition in range(100):
                producer.send_and_wait("events", b"later", partition=partition)
        assert len(read(up.bootstrap_servers, 101)) == 101
        assert up.end() == 0
        assert any("this process may open 64 files" in line for line in up.logs)
        assert not [line for line in up.logs if "offline" in line]


def test_a_broker_serves_without_a_failed_log_dir(tmp_path: Path) -> None:
    """Its partitions are reported as offline and not recreated in another directory."""
    first, second = tmp_path / "first", tmp_path / "second"
    arguments = ("--set", f"log.dirs={first},{second}", "--listen", ANY)
    with penstock_up(*arguments, "--set", "num.partitions=2") as up:
        send(up.bootstrap_servers, b"one")
        assert up.end() == 0
    homes = {path.name for path in first.glob("events-?")}
    assert homes < {"events-0", "events-1"}, "each directory has a partition"
    second.rename(tmp_path / "unplugged")
    second.write_text("no directory")
    with penstock_up(*arguments) as up:
        assert up.end() == 0
        assert any(f"{second} is offline" in line for line in up.logs)
    assert {path.name for path in first.glob("events-?")} == homes


def test_a_broker_whose_first_log_dir_fails_says_so(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("no directory")
    refused = try_up("--data", str(path), "--listen", ANY)
    assert refused.returncode == 1
    assert f"data directory {path} cannot be used" in refused.stderr


@pytest.mark.parametrize("existed", [False, True])
def test_a_failed_start_leaves_no_files_behind(tmp_path: Path, existed: bool) -> None:
    data = tmp_path / "some" / "data"
    if existed:
        data.mkdir(parents=True)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        done = try_up("--data", str(data), "--listen", address)
    assert done.returncode == 1
    assert address in done.stderr
    assert list(tmp_path.rglob("*")) == ([data.parent, data] if existed else [])


def make_java(home: Path, script: str) -> None:
    """A Java that looks new enough, and runs this in place of ZooKeeper."""
    (home / "bin").mkdir()
    (home / "release").write_text('JAVA_VERSION="21.0.1"\n')
    (home / "bin" / "java").write_text(f"#!/bin/sh\n{script}\n")
    (home / "bin" / "java").chmod(0o755)


@pytest.fixture
def broken_java(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends at once, so that no ZooKeeper starts."""
    home = tmp_path_factory.mktemp("java")
    make_java(home, "echo this Java is broken\nexit 1")
    monkeypatch.setenv("JAVA_HOME", str(home))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_a_cluster_that_is_still_starting(
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    number: signal.Signals,
) -> None:
    home = tmp_path_factory.mktemp("java")
    make_java(home, "exec sleep 600")
    monkeypatch.setenv("JAVA_HOME", str(home))
    data = tmp_path / "data"
    command = up_command("--brokers", "2", "--data", str(data), "--listen", ANY)
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True) as process:
        while not (data / "zookeeper1" / "zookeeper.log").exists():
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(number)
        stdout, stderr = process.communicate(timeout=180)
    assert (process.returncode, stdout) == (1, "")
    assert stderr == "stopped by a signal before every broker served\n"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("broken_java")
def test_a_cluster_without_zookeeper_is_refused_and_leaves_no_files_behind(tmp_path: Path) -> None:
    done = try_up("--brokers", "2", "--data", str(tmp_path / "some" / "data"), "--listen", ANY)
    assert (done.returncode, done.stdout) == (1, "")
    assert "this Java is broken" in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("broken_java")
def test_a_failed_start_of_a_cluster_keeps_what_was_there_before(tmp_path: Path) -> None:
    old = {
        tmp_path / "zookeeper1" / "data" / "version-2" / "log.1": b"znodes",
        tmp_path / "broker1" / "orders-0" / f"{0:020}.log": b"records",
        tmp_path / "broker1.log": b"said before",
    }
    for path, content in old.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    assert try_up("--brokers", "2", "--data", str(tmp_path), "--listen", ANY).returncode == 1
    assert {path: path.read_bytes() for path in old} == old
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "broker1",
        "broker1.log",
        "zookeeper1",
    ]
