"""A broker on a real ZooKeeper: the znodes that a plain client sees, and those that remain."""

import json
import socket
from pathlib import Path
from uuid import uuid4

import pytest
from tests.profile import is_long
from tests.scenarios.up_process import penstock_up, try_up
from tests.zookeeper import kazoo_client

import penstock
from penstock.controller.znodes import report_path
from penstock.testing.embedded_broker import BrokerNotStarted

pytestmark = pytest.mark.xdist_group("zookeeper")


@pytest.mark.parametrize("election", ["race", "queue"])
def test_a_broker_registers_and_becomes_controller_below_its_chroot(
    zookeeper_connect: str, election: str
) -> None:
    connect = f"{zookeeper_connect}/{uuid4().hex}"
    config = {"zookeeper.connect": connect, "broker.id": 7, "controller.election": election}
    with penstock.Broker(config=config) as broker:
        broker.create_topic("orders", partitions=3)
        with kazoo_client(connect) as client:
            controller = json.loads(client.get("/controller")[0])
            registered = json.loads(client.get("/brokers/ids/7")[0])
            topic = json.loads(client.get("/brokers/topics/orders")[0])
            queued = client.get_children("/controller_queue") if election == "queue" else []
        assert controller["brokerid"] == 7
        port = int(broker.bootstrap_servers.rpartition(":")[2])
        assert registered["port"] == port
        assert topic["partitions"] == {"0": [7], "1": [7], "2": [7]}
        assert len(queued) == (election == "queue")
    with kazoo_client(connect) as client:
        assert client.get_children("/brokers/ids") == []
        assert client.exists("/controller") is None
        assert client.exists("/brokers/topics/orders") is not None


def test_without_zookeeper_a_broker_does_not_start_and_says_why() -> None:
    config = {"zookeeper.connect": "127.0.0.1:1", "zookeeper.connection.timeout.ms": 300}
    with pytest.raises(BrokerNotStarted) as refused, penstock.Broker(config=config):
        pass
    assert "no ZooKeeper answered within 300 ms at 127.0.0.1:1" in str(refused.value)


def test_a_taken_port_leaves_no_files_behind(zookeeper_connect: str, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        done = try_up(
            *("--broker-id", "2", "--zookeeper", f"{zookeeper_connect}/{uuid4().hex}"),
            *("--data", str(tmp_path / "data"), "--listen", address),
        )
    assert done.returncode == 1
    assert address in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_taken_broker_id_leaves_no_files_and_no_report_of_lost_replicas(
    zookeeper_connect: str, tmp_path: Path
) -> None:
    """The report would take the replicas of the running broker out of the ISR when it restarts."""
    connect = f"{zookeeper_connect}/{uuid4().hex}"
    with penstock.Broker(config={"zookeeper.connect": connect, "broker.id": 7}) as broker:
        broker.create_topic("orders")
        with kazoo_client(connect) as client:
            before = client.get(report_path(7))[0]
        done = try_up(
            *("--broker-id", "7", "--zookeeper", connect),
            *("--data", str(tmp_path / "data"), "--listen", "127.0.0.1:0"),
        )
        with kazoo_client(connect) as client:
            assert client.get(report_path(7))[0] == before
    assert done.returncode == 1
    assert "broker id 7 is registered by another process" in done.stderr
    assert list(tmp_path.iterdir()) == []


READ_BY_THE_BROKER = ("/cluster/id",)
READ_BY_THE_CONTROLLER = ("/brokers/topics/orders", "/controller_epoch")


@pytest.mark.parametrize(
    "path",
    [*READ_BY_THE_BROKER, *READ_BY_THE_CONTROLLER]
    if is_long()
    else [*READ_BY_THE_BROKER, READ_BY_THE_CONTROLLER[0]],
)
def test_a_damaged_znode_refuses_the_start_with_one_line(
    zookeeper_connect: str, tmp_path: Path, path: str
) -> None:
    chroot = f"/{uuid4().hex}"
    with kazoo_client(zookeeper_connect) as client:
        client.create(f"{chroot}{path}", b"{", makepath=True)
        if path in READ_BY_THE_CONTROLLER:
            client.ensure_path(f"{chroot}{path}/partitions")  # the topic was in use
    done = try_up(
        *("--broker-id", "2", "--zookeeper", f"{zookeeper_connect}{chroot}"),
        *("--data", str(tmp_path / "data"), "--listen", "127.0.0.1:0"),
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert f": {path} cannot be read: " in done.stderr.splitlines()[-1]
    assert done.stderr.endswith("; repair the znode's data, then restart\n")
    assert "Traceback" not in done.stderr


def test_a_broker_that_is_elected_and_finds_a_damaged_znode_ends_with_one_line(
    zookeeper_connect: str, tmp_path: Path
) -> None:
    connect = f"{zookeeper_connect}/{uuid4().hex}"
    arguments = ("--broker-id", "2", "--zookeeper", connect, "--data", str(tmp_path))
    with penstock_up(*arguments, "--listen", "127.0.0.1:0") as up:
        with kazoo_client(connect) as client:
            client.set("/controller_epoch", b"none")
            client.delete("/controller")
        assert up.wait() == 3
    assert "Traceback" not in "\n".join(up.logs)
    assert up.logs[-1].endswith(
        "stopped, because it cannot continue: /controller_epoch cannot be read: its data is "
        "b'none', not a number; repair the znode's data, then restart"
    )
