"""Kafka's own ClientCompatibilityTest, which Kafka runs against its older brokers, against ours.

It ships in kafka-tools (org.apache.kafka.tools.ClientCompatibilityTest) and gets the list of
features to expect: it fails if one is missing, and if one works that was not expected.
"""

from __future__ import annotations

import subprocess
import uuid
from collections.abc import Callable

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from tests.clients.java_clients import resolve_java_clients
from tests.clients.under_test import BrokerUnderTest
from tests.interop.kafka_jars import (
    KAFKA_VERSION,
    KafkaUnavailableError,
    Say,
    resolve_kafka_jars,
)

pytestmark = pytest.mark.xdist_group("client-java")

MAIN_CLASS = "org.apache.kafka.tools.ClientCompatibilityTest"
ITS_OWN_TOPIC = "newtopic"  # the tool creates this very topic, so it cannot run twice
TIMEOUT_S = 180

ITS_TIME_LIMIT = "Timed out after 10000 ms."  # for its consumer: too short on a busy machine
ATTEMPTS = 5

FEATURES = {
    "create-topics-supported": True,
    "offsets-for-times-supported": True,
    "cluster-id-supported": True,
    "describe-configs-supported": True,
    "idempotent-producer-supported": True,
    "expect-record-too-large-exception": False,  # only brokers older than 0.10.1 do this
}


@pytest.mark.parametrize("version", [KAFKA_VERSION, "3.9.2"])
def test_kafkas_own_client_compatibility_test_passes(
    broker: BrokerUnderTest, say: Say, version: str
) -> None:
    try:
        command = _find_command(version, say)
    except KafkaUnavailableError as error:
        pytest.skip(f"skipped: {error}")
    for _ in range(ATTEMPTS):
        done = run_once(broker, command)
        said = done.stdout.decode(errors="replace")
        if ITS_TIME_LIMIT not in said:
            break
    assert done.returncode == 0, said
    assert said.splitlines()[-1] == "SUCCESS."


def run_once(
    broker: BrokerUnderTest, command: Callable[..., list[str]]
) -> subprocess.CompletedProcess[bytes]:
    topic = f"compatibility-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    if ITS_OWN_TOPIC in admin.list_topics(timeout=180).topics:
        admin.delete_topics([ITS_OWN_TOPIC])[ITS_OWN_TOPIC].result(timeout=180)
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(timeout=180)

    # The answer that no authorizer is set counts as support.
    features = FEATURES | {"describe-acls-supported": True}
    arguments = ["--bootstrap-server", broker.bootstrap_servers, "--topic", topic]
    arguments += ["--num-cluster-nodes", "1"]
    for name, expected in features.items():
        arguments += [f"--{name}", str(expected).lower()]
    return subprocess.run(
        command(MAIN_CLASS, *arguments),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=TIMEOUT_S,
        check=False,
    )


def _find_command(version: str, say: Say) -> Callable[..., list[str]]:
    if version == KAFKA_VERSION:
        return resolve_kafka_jars(say).command
    return resolve_java_clients(version, say).command
