"""The audit trail of a secured broker: logins, denials and changes, and no secret among them."""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from tests.scenarios.up_process import UpProcess, penstock_up
from typer.testing import CliRunner

import penstock
from penstock import AlterConfigOp, ConfigResource, ConfigResourceType, NewTopic, QuotaEntity
from penstock.cli.main import app
from penstock.testing.certificates import CertificateAuthority, CertificateFiles

pytestmark = pytest.mark.xdist_group("tls")
HANG_S = 120
TOPIC = "__penstock_audit"
ADMIN, ADA = "User:CN=admin", "User:CN=ada"
PAYLOAD, KEY, SETTING = "s3cret-payload", "s3cret-key", "s3cret-setting"
Event = Mapping[str, Any]


class People:
    """Certificates of an administrator, a client, and somebody that nobody has vouched for."""

    def __init__(self, folder: Path) -> None:
        authority = CertificateAuthority()
        self.broker = authority.issue("broker").write(folder)
        self.admin = authority.issue("admin").write(folder)
        self.ada = authority.issue("ada").write(folder)
        strangers = folder / "strangers"
        strangers.mkdir()
        self.stranger = CertificateAuthority().issue("stranger").write(strangers)


@pytest.fixture(name="people", scope="module")
def _people(tmp_path_factory: pytest.TempPathFactory) -> People:
    return People(tmp_path_factory.mktemp("people"))


def settings(people: People, *more: str) -> list[str]:
    given = (
        "listeners=SSL://127.0.0.1:0",
        "security.inter.broker.protocol=SSL",
        "ssl.client.auth=required",
        "ssl.keystore.type=PEM",
        f"ssl.keystore.location={people.broker.pem_keystore}",
        "ssl.truststore.type=PEM",
        f"ssl.truststore.location={people.broker.authority}",
        "authorizer.class.name=kafka.security.authorizer.AclAuthorizer",
        "super.users=User:CN=admin;User:CN=broker",
        "penstock.audit.enable=true",
        *more,
    )
    return [part for setting in given for part in ("--set", setting)]


@pytest.fixture(name="broker")
def _broker(people: People, tmp_path: Path) -> Iterator[UpProcess]:
    with penstock_up("--data", str(tmp_path / "data"), *settings(people)) as process:
        yield process


def config_of(broker: UpProcess, files: CertificateFiles) -> dict[str, Any]:
    return {
        "bootstrap.servers": broker.bootstrap_servers,
        "security.protocol": "ssl",
        "ssl.ca.location": str(files.authority),
        "ssl.certificate.location": str(files.certificate),
        "ssl.key.location": str(files.key),
    }


@contextlib.contextmanager
def admin_of(broker: UpProcess, people: People) -> Iterator[penstock.Admin]:
    config = config_of(broker, people.admin)
    with penstock.Admin(config.pop("bootstrap.servers"), config=config) as admin:
        yield admin


class AuditedTopic:
    """The audit topic, read over and over until it has what is awaited."""

    def __init__(self, broker: UpProcess, people: People, folder: Path) -> None:
        config = config_of(broker, people.admin)
        self._path = folder / "client.properties"
        self._path.write_text("".join(f"{name}={value}\n" for name, value in config.items()))
        self.text = ""

    def tail(self, *arguments: str, code: int = 0) -> str:
        command = ["audit", "tail", "--from-beginning", "--timeout-s", "3", *arguments]
        ran = CliRunner().invoke(app, [*command, "--client-config", str(self._path)])
        assert ran.exit_code == code, ran.output
        return ran.stdout

    def find(self, accepts: Callable[[Event], bool]) -> Event:
        """The first event that is accepted."""
        give_up_s = monotonic() + HANG_S
        while True:
            for line in self.text.splitlines():
                event: Event = json.loads(line)
                if accepts(event):
                    return event
            assert monotonic() < give_up_s, f"not audited; there is {self.text}"
            self.text = self.tail("--json")


@pytest.fixture(name="audited")
def _audited(broker: UpProcess, people: People, tmp_path: Path) -> AuditedTopic:
    with admin_of(broker, people) as admin:  # the first event creates the topic
        admin.create_topics(NewTopic("orders"))
        wait_for_topic(admin)
    return AuditedTopic(broker, people, tmp_path)


def wait_for_topic(admin: penstock.Admin) -> None:
    give_up_s = monotonic() + HANG_S
    while TOPIC not in (topic.name for topic in admin.list_topics(internal=True)):
        assert monotonic() < give_up_s


def logon(event: Event, status: str) -> bool:
    return bool(event["class_uid"] == 3002 and event["status"] == status)


def api(event: Event, operation: str) -> bool:
    return bool(event["class_uid"] == 6003 and event["api"]["operation"] == operation)


def produce(broker: UpProcess, files: CertificateFiles, topic: str) -> KafkaError | None:
    errors: list[KafkaError | None] = []
    producer = Producer(config_of(broker, files))
    producer.produce(
        topic, PAYLOAD, key=KEY, on_delivery=lambda error, message: errors.append(error)
    )
    assert producer.flush(HANG_S) == 0
    return errors[0]


def test_logins_denials_and_changes_are_audited_and_no_secret_is(
    broker: UpProcess, people: People, audited: AuditedTopic
) -> None:
    denied = produce(broker, people.ada, "orders")
    assert denied is not None
    assert denied.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    with admin_of(broker, people) as admin:
        topic = ConfigResource(ConfigResourceType.TOPIC, "orders")
        with contextlib.suppress(penstock.ClientError, ValueError):
            admin.incremental_alter_configs({topic: [AlterConfigOp("no.such.setting", SETTING)]})
        admin.incremental_alter_configs({topic: [AlterConfigOp("retention.ms", "7654321")]})
        admin.alter_client_quotas({QuotaEntity("ada"): {"producer_byte_rate": 1_000_000}})
    with pytest.raises((ssl.SSLError, KafkaException, penstock.ClientError, OSError)):
        connect_as_stranger(broker, people)

    login = audited.find(lambda event: logon(event, "Success"))
    assert login["user"] == {"name": "CN=admin", "type": "User"}
    assert login["auth_protocol"] == "TLS"
    assert login["src_endpoint"] == {"ip": "127.0.0.1"}
    assert login["dst_endpoint"] == {"svc_name": "SSL"}
    failed = audited.find(lambda event: logon(event, "Failure"))
    assert "user" not in failed
    assert "certificate" in failed["status_detail"]
    refused = audited.find(lambda event: "authorizations" in event)
    assert refused["actor"]["user"]["name"] == "CN=ada"
    assert refused["resources"] == [{"type": "topic", "name": "orders"}]
    assert refused["authorizations"][0]["decision"] == "denied"
    created = audited.find(lambda event: api(event, "CreateTopics"))
    assert (created["actor"]["user"]["name"], created["status"]) == ("CN=admin", "Success")
    altered = audited.find(
        lambda event: api(event, "IncrementalAlterConfigs") and event["status"] == "Success"
    )
    assert altered["resources"] == [{"type": "topic", "name": "orders", "labels": ["retention.ms"]}]
    quota = audited.find(lambda event: api(event, "AlterClientQuotas"))
    assert quota["resources"] == [{"type": "user", "name": "ada", "labels": ["producer_byte_rate"]}]
    private_key = people.ada.key.read_text().splitlines()[1]
    for secret in (PAYLOAD, KEY, SETTING, "7654321", private_key):
        assert secret not in audited.text

    lines = audited.tail()
    assert f"success {ADMIN} from 127.0.0.1 CreateTopics topic orders" in lines
    denial = f"{refused['api']['operation']} topic orders: needs {refused['activity_name']}"
    assert f"denied {ADA} from 127.0.0.1 {denial} on the topic" in lines


def connect_as_stranger(broker: UpProcess, people: People) -> None:
    host, _, port = broker.bootstrap_servers.partition(":")
    context = ssl.create_default_context(cafile=str(people.broker.authority))
    context.check_hostname = False
    context.load_cert_chain(str(people.stranger.certificate), str(people.stranger.key))
    with (
        socket.create_connection((host, int(port)), HANG_S) as sock,
        context.wrap_socket(sock) as secured,
    ):
        assert secured.recv(1)  # the alert comes after TLS 1.3's handshake
        raise AssertionError("a stranger was let in")


def test_nobody_writes_to_the_topic_by_hand(
    broker: UpProcess, people: People, audited: AuditedTopic
) -> None:
    refused = produce(broker, people.admin, TOPIC)
    assert refused is not None
    assert refused.code() == KafkaError.TOPIC_EXCEPTION
    assert PAYLOAD not in audited.tail("--json")


def is_about(resource: Mapping[str, str], event: Event) -> bool:
    return resource in event.get("resources", ())


def test_no_event_keeps_later_ones_from_the_topic(
    broker: UpProcess, people: People, audited: AuditedTopic
) -> None:
    """max.message.bytes leaves room for some of the events, and the client's is longer."""
    with admin_of(broker, people) as admin:
        resource = ConfigResource(ConfigResourceType.TOPIC, TOPIC)
        admin.incremental_alter_configs({resource: [AlterConfigOp("max.message.bytes", "1500")]})
        admin.create_topics([f"long-{number}-{'x' * 200}" for number in range(20)])
        for number in range(20):
            admin.create_topics(f"topic-{number}")
        for number in range(20):
            audited.find(
                lambda event, name=f"topic-{number}": (  # type: ignore[misc]
                    api(event, "CreateTopics")
                    and [one["name"] for one in event["resources"]] == [name]
                )
            )


def test_events_survive_a_restart_and_the_stop_writes_the_last_ones(
    people: People, tmp_path: Path
) -> None:
    arguments = ("--data", str(tmp_path / "data"), *settings(people))
    with penstock_up(*arguments) as broker, admin_of(broker, people) as admin:
        admin.create_topics(NewTopic("first"))
        admin.create_topics(NewTopic("last"))
    with penstock_up(*arguments) as broker:
        audited = AuditedTopic(broker, people, tmp_path)
        for name in ("first", "last"):
            event = audited.find(partial(is_about, {"type": "topic", "name": name}))
            assert event["api"]["operation"] == "CreateTopics"


def test_excluded_principals_and_kinds_are_not_written(people: People, tmp_path: Path) -> None:
    chosen = (
        "penstock.audit.events=denied,admin",
        f"penstock.audit.excluded.principals={ADA}",
        "penstock.audit.excluded.topics=noise",
    )
    arguments = ("--data", str(tmp_path / "data"), *settings(people, *chosen))
    with penstock_up(*arguments) as broker:
        assert produce(broker, people.ada, "orders") is not None
        with admin_of(broker, people) as admin:
            admin.create_topics([NewTopic("noise")])
            admin.create_topics([NewTopic("orders")])
            wait_for_topic(admin)
        audited = AuditedTopic(broker, people, tmp_path)
        audited.find(lambda event: api(event, "CreateTopics"))
        events = [json.loads(line) for line in audited.text.splitlines()]
    assert {event["class_uid"] for event in events} == {6003}
    assert {event["actor"]["user"]["name"] for event in events} == {"CN=admin"}
    assert "noise" not in audited.text


def test_without_the_setting_there_is_no_topic(tmp_path: Path) -> None:
    with (
        penstock.Broker(data=tmp_path) as broker,
        penstock.Admin(broker.bootstrap_servers) as admin,
    ):
        admin.create_topics(NewTopic("orders"))
        assert [topic.name for topic in admin.list_topics(internal=True)] == ["orders"]
        ran = CliRunner().invoke(app, ["audit", "tail", "--bootstrap", broker.bootstrap_servers])
        assert ran.exit_code == 1
        assert TOPIC in ran.stderr


def test_logins_with_a_password_are_audited_without_it() -> None:
    with penstock.Broker(security="sasl_ssl", config={"penstock.audit.enable": True}) as broker:
        config = broker.client_config
        wrong = {**config, "sasl.password": PAYLOAD}
        with (
            penstock.Admin(broker.bootstrap_servers, config=wrong) as admin,
            pytest.raises(penstock.AuthenticationFailed),
        ):
            admin.list_topics()
        with penstock.Admin(broker.bootstrap_servers, config=config) as admin:
            admin.create_topics(NewTopic("orders"))
            wait_for_topic(admin)
        failed = find_login(broker, "Failure")
        assert "user" not in failed
        success = find_login(broker, "Success")
    assert success["user"]["name"] == config["sasl.username"]
    for login in (failed, success):
        assert login["auth_protocol"] == config["sasl.mechanism"]
        assert PAYLOAD not in json.dumps(login)
        assert config["sasl.password"] not in json.dumps(login)


def find_login(broker: penstock.Broker, status: str) -> Event:
    with penstock.Consumer(
        TOPIC,
        bootstrap_servers=broker.bootstrap_servers,
        config=broker.client_config,
        from_beginning=True,
        timeout_s=HANG_S,
    ) as consumer:
        for message in consumer:
            event = json.loads(message.value or b"")
            if logon(event, status):
                return dict(event)
    raise AssertionError(f"no login with {status} is audited")
