"""ACLs for principals that certificates name, and a client that poses as a replica."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclBinding, AclOperation, AclPermissionType
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType
from tests.scenarios.raw_client import RawClient
from tests.scenarios.up_process import UpProcess, penstock_up

import penstock
from penstock.model.errors import ErrorCode
from penstock.protocol.api_keys import ApiKey
from penstock.testing.certificates import CertificateAuthority, CertificateFiles

pytestmark = pytest.mark.xdist_group("tls")
WAIT_S = 120
AUTHORIZER = "authorizer.class.name=kafka.security.authorizer.AclAuthorizer"


class People:
    """Certificates of an administrator and of two clients."""

    def __init__(self, folder: Path) -> None:
        authority = CertificateAuthority()
        self.broker = authority.issue("broker").write(folder)
        self.admin = authority.issue("admin").write(folder)
        self.ada = authority.issue("ada").write(folder)
        self.bob = authority.issue("bob").write(folder)


@pytest.fixture(name="people", scope="module")
def _people(tmp_path_factory: pytest.TempPathFactory) -> People:
    return People(tmp_path_factory.mktemp("people"))


@pytest.fixture(name="broker")
def _broker(people: People, tmp_path: Path) -> Iterator[UpProcess]:
    settings = (
        "listeners=SSL://127.0.0.1:0",
        "security.inter.broker.protocol=SSL",
        "ssl.client.auth=required",
        "ssl.keystore.type=PEM",
        f"ssl.keystore.location={people.broker.pem_keystore}",
        "ssl.truststore.type=PEM",
        f"ssl.truststore.location={people.broker.authority}",
        AUTHORIZER,
        "super.users=User:CN=admin;User:CN=broker",
    )
    arguments = [part for setting in settings for part in ("--set", setting)]
    with penstock_up("--data", str(tmp_path / "data"), *arguments) as process:
        yield process


def _config(broker: UpProcess, files: CertificateFiles) -> dict[str, str | int | float | bool]:
    return {
        "bootstrap.servers": broker.bootstrap_servers,
        "security.protocol": "ssl",
        "ssl.ca.location": str(files.authority),
        "ssl.certificate.location": str(files.certificate),
        "ssl.key.location": str(files.key),
    }


def _produce(broker: UpProcess, files: CertificateFiles) -> KafkaError | None:
    errors: list[KafkaError | None] = []
    producer = Producer(_config(broker, files))
    producer.produce("orders", b"v", on_delivery=lambda error, message: errors.append(error))
    assert producer.flush(WAIT_S) == 0
    return errors[0]


def test_a_certificates_name_is_allowed_what_its_rules_say(
    broker: UpProcess, people: People
) -> None:
    admin = AdminClient(_config(broker, people.admin))
    rules = [
        AclBinding(
            ResourceType.TOPIC,
            "orders",
            ResourcePatternType.LITERAL,
            "User:CN=ada",
            "127.0.0.1",
            operation,
            AclPermissionType.ALLOW,
        )
        for operation in (AclOperation.WRITE, AclOperation.CREATE)
    ]
    for created in admin.create_acls(rules).values():
        created.result(WAIT_S)
    assert _produce(broker, people.ada) is None
    denied = _produce(broker, people.bob)
    assert denied is not None
    assert denied.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    assert admin.list_topics(timeout=WAIT_S).topics.keys() == {"orders"}
    assert AdminClient(_config(broker, people.bob)).list_topics(timeout=WAIT_S).topics == {}


def test_a_client_that_poses_as_a_replica_is_refused(tmp_path: Path) -> None:
    """CVE-2018-1288: the number of a replica in a request is no permission."""
    config = {
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "allow.everyone.if.no.acl.found": True,
        "super.users": "User:root",
    }
    rule = penstock.AclBinding(
        penstock.ResourcePattern(penstock.ResourceType.TOPIC, "orders"),
        penstock.AccessControlEntry(
            "User:ANONYMOUS", "*", penstock.AclOperation.READ, penstock.AclPermission.DENY
        ),
    )
    with penstock.Broker(data=tmp_path, config=config) as broker:
        broker.create_topic("orders")
        with penstock.Admin(broker.bootstrap_servers) as admin:
            admin.create_acls(rule)
        for replica in (-1, 1, 2):
            with RawClient(broker.bootstrap_servers) as client:
                response = client.ask(
                    ApiKey.FETCH,
                    11,
                    replica_id=replica,
                    max_wait=timedelta(),
                    min_bytes=1,
                    max_bytes=1000,
                    isolation_level=0,
                    session_id=0,
                    session_epoch=-1,
                    topics=[
                        {
                            "topic": "orders",
                            "partitions": [
                                {
                                    "partition": 0,
                                    "current_leader_epoch": 0,
                                    "fetch_offset": 0,
                                    "log_start_offset": 0,
                                    "partition_max_bytes": 1000,
                                }
                            ],
                        }
                    ],
                    forgotten_topics_data=[],
                    rack_id="",
                )
            [topic] = response.responses
            code = topic.partitions[0].error_code
            assert code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
