"""Three brokers that show certificates to each other: a kill under load loses nothing, and nobody
without one is heard."""

import pytest
from tests.profile import scaled

import penstock
from penstock.testing import Cluster
from penstock.testing.certificates import CertificateAuthority

pytestmark = pytest.mark.xdist_group("cluster")
_WAIT_S = 180.0
_REFUSED_S = 5.0  # plaintext is tried again until then
_CONFIG = {"min.insync.replicas": 2, "unclean.leader.election.enable": False}


def test_kill_under_load_loses_nothing_between_brokers_with_mtls() -> None:
    count = scaled(test=2_000, verify=20_000, release=20_000)
    with Cluster(brokers=3, security="tls", config=_CONFIG) as cluster:
        cluster.create_topic("orders", partitions=3, replication_factor=3)
        for partition in range(3):
            cluster.wait_in_sync("orders", partition, 3)
        config, servers = cluster.client_config, cluster.bootstrap_servers
        with penstock.Producer(servers, config=config) as producer:
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


def test_plaintext_and_strangers_are_not_heard() -> None:
    stranger = CertificateAuthority().issue("broker")
    with Cluster(brokers=2, security="tls") as cluster:
        trust = {
            "security.protocol": "ssl",
            "ssl.ca.location": cluster.client_config["ssl.ca.location"],
        }
        shown = {
            "ssl.certificate.pem": stranger.certificate_pem.decode(),
            "ssl.key.pem": stranger.key_pem().decode(),
        }
        for config in ({}, trust, {**trust, **shown}):
            with (
                penstock.Admin(
                    cluster.bootstrap_servers, config=config, timeout_s=_REFUSED_S
                ) as admin,
                pytest.raises(penstock.ClientError),
            ):
                admin.list_topics()


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
