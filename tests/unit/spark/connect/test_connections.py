"""Blocking clients for Spark's processes, against a real broker."""

import os
import pickle
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import penstock
from penstock.client.data_calls import EARLIEST, LATEST, FetchFrom
from penstock.client.errors import ClientError, OutOfTime
from penstock.client.group_values import CommittedOffset
from penstock.model.ids import Offset, TopicPartition
from penstock.protocol.records import Record, build_batch
from penstock.spark.connect.cluster_security import (
    security_of,
    security_options,
    use_security,
)
from penstock.spark.connect.connections import (
    ClientSettings,
    client_settings,
    close_connections,
    settings_of,
    shared_client,
)
from penstock.spark.errors import SparkSourceError


@pytest.fixture
def settings(penstock_broker: penstock.Broker) -> ClientSettings:
    return ClientSettings(penstock_broker.bootstrap_servers)


def test_options_are_taken_with_and_without_prefix() -> None:
    options = {
        "Kafka.Bootstrap.Servers": "a:1,b:2",
        "client.id": "mine",
        "kafka.request.timeout.ms": "1500",
        "kafka.socket.connection.setup.timeout.ms": "70",
    }
    assert client_settings(options) == ClientSettings(
        "a:1,b:2", client_id="mine", request_timeout_ms=1500, connect_timeout_ms=70
    )


def test_option_with_and_without_prefix_must_agree() -> None:
    twice = {"kafka.bootstrap.servers": "a:1", "bootstrap.servers": "b:2"}
    with pytest.raises(SparkSourceError, match="set only one of the two"):
        client_settings(twice)
    assert client_settings(twice | {"bootstrap.servers": "a:1"}).bootstrap == "a:1"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "kafka.bootstrap.servers is missing"),
        ({"kafka.bootstrap.servers": " "}, "kafka.bootstrap.servers is missing"),
        (
            {"kafka.bootstrap.servers": "a:1", "kafka.security.protocol": "SASL_SSL"},
            "sasl.mechanism is not set",
        ),
        (
            {"kafka.bootstrap.servers": "a:1", "kafka.ssl.truststore.location": "/ca.pem"},
            "ssl.truststore.location: not in effect with security.protocol=plaintext",
        ),
        (
            {"kafka.bootstrap.servers": "a:1", "kafka.sasl.password": "x", "sasl.password": "y"},
            "sasl.password and kafka.sasl.password differ",
        ),
        (
            {"kafka.bootstrap.servers": "a:1", "kafka.request.timeout.ms": "soon"},
            "kafka.request.timeout.ms='soon': write a whole number, at least 1",
        ),
        (
            {"kafka.bootstrap.servers": "a:1", "retry.backoff.ms": "0"},
            "kafka.retry.backoff.ms='0': write a whole number, at least 1",
        ),
    ],
)
def test_invalid_option_is_named(options: dict[str, str], message: str) -> None:
    with pytest.raises(SparkSourceError, match=message.replace(".", r"\.")):
        client_settings(options)


def test_produced_records_are_fetched_back(settings: ClientSettings, penstock_topic: str) -> None:
    client = shared_client(settings)
    tp = TopicPartition(penstock_topic, 0)
    batch = build_batch([Record(0, 5, None, b"one"), Record(1, 6, None, b"two")])
    assert client.produce(tp, batch).base_offset == 0
    assert client.list_offsets({tp: LATEST})[tp].offset == 2
    assert client.list_offsets({tp: EARLIEST})[tp].offset == 0
    (fetched,) = client.fetch([FetchFrom(tp, Offset(0))])
    assert bytes(fetched.batches[61:]) == bytes(memoryview(batch)[61:])
    assert len(client.metadata([penstock_topic]).topics[penstock_topic].partitions) >= 1


def test_committed_offsets_of_a_group_are_fetched_back(
    settings: ClientSettings, penstock_topic: str
) -> None:
    client = shared_client(settings)
    tp = TopicPartition(penstock_topic, 0)
    client.groups.commit_offsets(f"group-{penstock_topic}", {tp: CommittedOffset(7)})
    committed = client.groups.fetch_offsets(f"group-{penstock_topic}", [tp])
    assert committed[tp].offset == 7


def test_same_settings_share_a_client(settings: ClientSettings) -> None:
    seen: list[object] = []
    threads = [
        threading.Thread(target=lambda: seen.append(shared_client(settings))) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(map(id, seen))) == 1
    assert shared_client(settings._replace(client_id="another")) is not seen[0]


def test_many_operations_are_in_flight_at_once(
    settings: ClientSettings, penstock_topic: str
) -> None:
    client = shared_client(settings)
    tp = TopicPartition(penstock_topic, 0)
    batch = build_batch([Record(0, 5, None, b"one")])
    sent = [client.start(lambda cluster: cluster.produce(tp, batch)) for _ in range(50)]
    assert sorted(future.result(180).base_offset for future in sent) == list(range(50))


def test_unreachable_cluster_is_reported_within_the_timeout() -> None:
    client = shared_client(ClientSettings("127.0.0.1:1", request_timeout_ms=1_500))
    with pytest.raises(OutOfTime, match=r"cannot reach a broker at 127\.0\.0\.1:1"):
        client.metadata()


def test_closed_connections_are_opened_again(settings: ClientSettings) -> None:
    before = shared_client(settings)
    before.metadata([])
    close_connections()
    after = shared_client(settings)
    assert after is not before
    assert after.metadata([]).brokers
    with pytest.raises(ClientError, match="closed"):
        before.metadata([])


FORKING = """
import os, sys
from penstock.spark.connect.connections import ClientSettings, shared_client, settings_of
settings = ClientSettings(sys.argv[1])
parent = shared_client(settings)
parent.metadata()
child = os.fork()
if child == 0:
    own = shared_client(settings)
    os._exit(0 if own is not parent and own.metadata().brokers else 1)
_, status = os.waitpid(child, 0)
assert os.waitstatus_to_exitcode(status) == 0, status
assert shared_client(settings) is parent
assert parent.metadata().brokers
"""


def test_forked_process_has_its_own_connections(penstock_broker: penstock.Broker) -> None:
    result = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORKING, penstock_broker.bootstrap_servers],
        capture_output=True,
        text=True,
        check=False,
        timeout=180,
    )
    assert (result.returncode, result.stderr) == (0, "")


def test_connections_need_neither_spark_nor_arrow() -> None:
    code = (
        "import sys, penstock, penstock.spark.connect.connections\n"
        "assert not {'pyspark', 'pyarrow', 'numba', 'numpy'} & sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=180, env=dict(os.environ))


def test_options_of_security_are_read_by_both_kinds_of_names_and_not_shown() -> None:
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    base = {
        "kafka.bootstrap.servers": "a:1",
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.ssl.truststore.location": "/ca.pem",
        "kafka.ssl.truststore.type": "PEM",
    }
    java = {"kafka.sasl.jaas.config": f'{module} required username="a" password="s3cr3t";'}
    rdkafka = {"kafka.sasl.username": "a", "sasl.password": "s3cr3t"}
    settings = [client_settings({**base, **login}) for login in (java, rdkafka)]
    assert settings[0] == settings[1]
    assert settings[0].security.protocol.uses_tls
    assert "s3cr3t" not in repr(settings)
    assert pickle.loads(pickle.dumps(settings[0])) == settings[0]


def test_security_of_a_cluster_goes_to_its_queries(tmp_path: Path) -> None:
    config = {
        "security.protocol": "ssl",
        "ssl.ca.location": "ca.pem",
        "enable.ssl.certificate.verification": True,
    }
    use_security("secured:1", config)
    options = security_options("secured:1")
    assert options["kafka.ssl.ca.location"] == str(Path("ca.pem").absolute())
    read = client_settings({"kafka.bootstrap.servers": "secured:1", **options})
    assert read.security == security_of("secured:1") == settings_of("secured:1").security
    assert security_options("other:1") == {}
