"""Three brokers that log in at each other by SCRAM or PLAIN over TLS: a kill under load loses
nothing, users are known on each, and nobody else is heard."""

import time

import pytest
from tests.profile import is_long, scaled

import penstock
from penstock.testing import Cluster

pytestmark = pytest.mark.xdist_group("cluster")
_WAIT_S = 180.0
_CONFIG = {"min.insync.replicas": 2, "unclean.leader.election.enable": False}


def _scram_config() -> dict[str, object]:
    """The brokers' user is created by the first of them that starts."""
    module = "org.apache.kafka.common.security.scram.ScramLoginModule required"
    jaas = f'{module} username="broker" password="of-the-brokers";'
    return {
        "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
        "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config": jaas,
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": "User:broker;User:penstock",
    }


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-512", "PLAIN"])
def test_kill_under_load_loses_nothing_between_brokers_that_log_in(mechanism: str) -> None:
    if mechanism == "PLAIN" and not is_long():
        pytest.skip("one mechanism is enough in short: PROFILE=verify")
    count = scaled(test=1_000, verify=20_000, release=20_000)
    config = {**_CONFIG, **(_scram_config() if mechanism != "PLAIN" else {})}
    with Cluster(brokers=3, security="sasl_ssl", config=config) as cluster:
        cluster.create_topic("orders", partitions=3, replication_factor=3)
        for partition in range(3):
            cluster.wait_in_sync("orders", partition, 3)
        settings, servers = cluster.client_config, cluster.bootstrap_servers
        with penstock.Producer(servers, config=settings) as producer:
            sent = [producer.send("orders", b"%d" % number) for number in range(count // 2)]
            victim = cluster.leader("orders", 0)
            cluster.kill(victim)
            sent += [producer.send("orders", b"%d" % n) for n in range(count // 2, count)]
            for future in sent:
                future.result(_WAIT_S)
        cluster.start(victim)
        for partition in range(3):
            cluster.wait_in_sync("orders", partition, 3)
        assert _read(cluster, count) == {b"%d" % number for number in range(count)}
        _check_users(cluster)


def _check_users(cluster: Cluster) -> None:
    """A user that is created on one broker logs in at each, and no longer once it is deleted."""
    servers = cluster.bootstrap_servers.split(",")
    with penstock.Admin(servers[0], config=cluster.client_config) as admin:
        admin.create_user("ada", "of-ada")
        login = {"sasl.username": "ada", "sasl.password": "of-ada"}
        ada = {**cluster.client_config, "sasl.mechanism": "SCRAM-SHA-256", **login}
        for server in servers:
            _wait_until_let_in(server, ada, True)
        admin.delete_user("ada")
    for server in servers:
        _wait_until_let_in(server, ada, False)


def _wait_until_let_in(server: str, config: dict[str, str], wanted: bool) -> None:
    give_up_s = time.monotonic() + _WAIT_S
    while _is_let_in(server, config) is not wanted:
        assert time.monotonic() < give_up_s, f"{server} has not followed"


def _is_let_in(server: str, config: dict[str, str]) -> bool:
    try:
        with penstock.Admin(server, config=config, timeout_s=60) as admin:
            admin.describe_cluster()
    except penstock.AuthenticationFailed:
        return False
    return True


def _read(cluster: Cluster, count: int) -> set[bytes | None]:
    values: set[bytes | None] = set()
    with penstock.Consumer(
        "orders",
        bootstrap_servers=cluster.bootstrap_servers,
        from_beginning=True,
        timeout_s=_WAIT_S,
        config=cluster.client_config,
    ) as consumer:
        for message in consumer:
            values.add(message.value)
            if len(values) == count:
                break
    return values
