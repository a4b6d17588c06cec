"""Brokers on a ZooKeeper that asks who they are: they work through its failures, and what they
write is theirs alone."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError
from tests.cluster.commands import PENSTOCK, TIMEOUT_S
from tests.profile import is_long
from tests.secured_zookeeper import USER, SecuredZooKeeper, jaas_config, secured_zookeeper
from tests.zookeeper import kazoo_client, skip_without_zookeeper

import penstock
from penstock.server.broker_process import BrokerNotStarted
from penstock.testing import Cluster

pytestmark = pytest.mark.xdist_group("cluster")
# In short, tests/unit/metadata_store/test_zookeeper_security.py has sessions do the same.
_long = pytest.mark.skipif(not is_long(), reason="sessions are enough in short: PROFILE=verify")


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredZooKeeper]:
    skip_without_zookeeper()
    with secured_zookeeper(tmp_path_factory.mktemp("secured")) as zookeeper:
        yield zookeeper


_PATIENT = {"zookeeper.connection.timeout.ms": "60000"}  # with a busy machine


def cluster_on(
    secured: SecuredZooKeeper,
    path: str,
    *,
    brokers: int = 1,
    changes: Mapping[str, str] | None = None,
) -> Cluster:
    settings = secured.settings() | _PATIENT | {"zookeeper.set.acl": "true"} | dict(changes or {})
    connect = settings.pop("zookeeper.connect") + path
    return Cluster(brokers=brokers, config=settings, zookeeper=connect)


@pytest.fixture(scope="module")
def cluster(secured: SecuredZooKeeper) -> Iterator[Cluster]:
    with cluster_on(secured, "/cluster", brokers=2) as cluster:
        yield cluster


@pytest.fixture
def stranger(secured: SecuredZooKeeper, cluster: Cluster) -> Iterator[KazooClient]:
    with kazoo_client(f"{secured.plaintext}/cluster") as client:
        yield client


def test_a_stranger_sees_the_cluster_and_changes_nothing(
    cluster: Cluster, stranger: KazooClient
) -> None:
    cluster.create_topic("seen")
    with penstock.Admin(cluster.bootstrap_servers) as admin:
        admin.create_user("ada", "of-ada")
    assert stranger.get_children("/brokers/ids") == ["1", "2"]
    assert "seen" in stranger.get_children("/brokers/topics")
    for path in ("/config/users", "/config/users/ada", "/config/brokers"):
        with pytest.raises(NoAuthError):
            stranger.get(path)
    with pytest.raises(NoAuthError):
        stranger.get_children("/config/users")
    for path in ("/controller", "/brokers/ids/1", "/brokers/topics/seen", "/config/topics/seen"):
        with pytest.raises(NoAuthError):
            stranger.set(path, b"{}")
    for path in ("/brokers/topics/forged", "/admin/delete_topics/seen", "/forged"):
        with pytest.raises(NoAuthError):
            stranger.create(path)


@_long
def test_brokers_fail_over_and_log_in_again(cluster: Cluster) -> None:
    cluster.create_topic("moved", partitions=2, replication_factor=2)
    first = cluster.controller
    other = 3 - first
    cluster.cut_from_zookeeper(other)
    cluster.join_to_zookeeper(other)  # the session goes on, on a new connection
    cluster.kill(first)
    cluster.wait_controller(lambda controller: controller == other)
    cluster.create_topic("after")
    cluster.start(first)
    cluster.wait_in_sync("moved", 0, 2)
    with penstock.Producer(cluster.bootstrap_servers) as producer:
        producer.send("moved", b"v").result(60)


def test_members_of_older_groups_are_strangers_or_log_in(
    secured: SecuredZooKeeper, cluster: Cluster
) -> None:
    cluster.create_topic("old")
    with penstock.Producer(cluster.bootstrap_servers) as producer:
        for number in range(4):
            producer.send("old", b"%d" % number)
    login = secured.settings()
    by_tls = login.pop("zookeeper.connect") + "/cluster"
    settings: list[dict[str, Any]] = [
        {"zookeeper": f"{secured.plaintext}/cluster", "group": "anonymous"},
        {"zookeeper": by_tls, "group": "by-login", "zookeeper_config": login},
    ]
    for more in settings:
        with penstock.ZooKeeperConsumer("old", from_beginning=True, **more) as consumer:
            assert [next(consumer).value for _ in range(4)] == [b"0", b"1", b"2", b"3"]


@_long
def test_znodes_are_opened_and_secured_by_a_command(
    secured: SecuredZooKeeper, cluster: Cluster, stranger: KazooClient, tmp_path: Path
) -> None:
    config = tmp_path / "server.properties"
    config.write_text(
        "".join(
            f"{name}={value}\n".replace("\\", "\\\\") for name, value in secured.settings().items()
        )
    )
    connect = f"{secured.tls}/cluster"

    def run(command: str) -> str:
        arguments = ["zookeeper", command, "--config", str(config), "--zookeeper", connect]
        return subprocess.run(
            [str(PENSTOCK), *arguments],
            check=True,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
        ).stdout

    assert "by everybody" in run("unsecure")
    stranger.get("/config/users")
    stranger.create("/brokers/ids/forged")
    stranger.delete("/brokers/ids/forged")
    assert "by the brokers only" in run("secure")
    with pytest.raises(NoAuthError):
        stranger.get("/config/users")
    with pytest.raises(NoAuthError):
        stranger.create("/brokers/ids/forged")
    cluster.create_topic("after-securing")


def test_a_broker_with_another_password_does_not_start(secured: SecuredZooKeeper) -> None:
    jaas = {"penstock.zookeeper.sasl.jaas.config": jaas_config(USER, "guessed")}
    with pytest.raises(BrokerNotStarted, match="ZooKeeper refuses the login of broker"):
        cluster_on(secured, "/other", changes=jaas).start_all()


@_long
def test_a_broker_without_a_login_does_not_join(
    secured: SecuredZooKeeper, cluster: Cluster
) -> None:
    """It could not register, and must not serve without having done so."""
    anonymous = Cluster(brokers=1, zookeeper=f"{secured.plaintext}/cluster")
    with pytest.raises(BrokerNotStarted, match="NoAuth"):
        anonymous.start_all()
