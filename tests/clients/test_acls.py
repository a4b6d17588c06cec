"""ACLs written by other clients and by ours, on a broker whose rules are the only difference."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclBinding as TheirBinding
from confluent_kafka.admin._acl import AclBindingFilter, AclPermissionType
from confluent_kafka.admin._acl import AclOperation as TheirOperation
from confluent_kafka.admin._resource import ResourcePatternType as TheirPattern
from confluent_kafka.admin._resource import ResourceType as TheirType
from tests.interop.kafka_jars import Say, resolve_kafka_jars, run_tool
from tests.profile import is_long
from typer.testing import CliRunner

import penstock
from penstock import (
    AccessControlEntry,
    AclBinding,
    AclFilter,
    AclOperation,
    AclPermission,
    PatternType,
    ResourcePattern,
    ResourceType,
)
from penstock.cli.main import app

with warnings.catch_warnings():  # it loads its schemas with a function that Python 3.11 deprecates
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import admin as kafka_admin  # type: ignore[import-untyped]

pytestmark = [
    pytest.mark.xdist_group("client-kafka-python"),
    pytest.mark.filterwarnings("ignore:read_text is deprecated:DeprecationWarning"),
]
TIMEOUT_S = 180
ANYBODY = "User:ANONYMOUS"
# The rules are the only difference: what has none is open.
SETTINGS = {
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "allow.everyone.if.no.acl.found": True,
    "super.users": "User:root",
}
_ANYTHING: Any = None  # its annotations forbid what its documentation says
EVERY_RULE = AclBindingFilter(
    TheirType.ANY,
    _ANYTHING,
    TheirPattern.ANY,
    _ANYTHING,
    _ANYTHING,
    TheirOperation.ANY,
    AclPermissionType.ANY,
)


@pytest.fixture(scope="module", name="broker")
def _broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[penstock.Broker]:
    data = tmp_path_factory.mktemp("acls")
    with penstock.Broker(data=data, config=SETTINGS) as broker:
        yield broker


@pytest.fixture(autouse=True)
def _without_rules(broker: penstock.Broker) -> Iterator[None]:
    yield
    with penstock.Admin(broker.bootstrap_servers) as admin:
        admin.delete_acls(AclFilter())


def rule(
    operation: AclOperation,
    permission: AclPermission,
    name: str,
    *,
    resource: ResourceType = ResourceType.TOPIC,
    kind: PatternType = PatternType.LITERAL,
    host: str = "*",
    principal: str = ANYBODY,
) -> AclBinding:
    entry = AccessControlEntry(principal, host, operation, permission)
    return AclBinding(ResourcePattern(resource, name, kind), entry)


def produce(broker: penstock.Broker, topic: str) -> KafkaError | None:
    """The error of a produced message, with a client that knows nothing yet."""
    errors: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    producer.produce(topic, b"v", on_delivery=lambda error, message: errors.append(error))
    assert producer.flush(TIMEOUT_S) == 0
    return errors[0]


def consume(broker: penstock.Broker, topic: str, group: str) -> int | KafkaError:
    """The first record's offset, or the error."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": group,
            "auto.offset.reset": "earliest",
        }
    )
    try:
        consumer.subscribe([topic])
        message = consumer.poll(TIMEOUT_S)
        assert message is not None
        error = message.error()
        if error is not None:
            return error
        offset = message.offset()
        assert offset is not None
        return offset
    finally:
        consumer.close()


def test_rules_of_confluent_kafka_are_enforced_described_and_deleted(
    broker: penstock.Broker,
) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    assert produce(broker, "orders") is None
    binding = TheirBinding(
        TheirType.TOPIC,
        "orders",
        TheirPattern.LITERAL,
        ANYBODY,
        "*",
        TheirOperation.WRITE,
        AclPermissionType.DENY,
    )
    admin.create_acls([binding])[binding].result(TIMEOUT_S)
    denied = produce(broker, "orders")
    assert denied is not None
    assert denied.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    assert admin.describe_acls(EVERY_RULE).result(TIMEOUT_S) == [binding]
    [deleted] = admin.delete_acls([EVERY_RULE]).values()
    assert deleted.result(TIMEOUT_S) == [binding]
    assert produce(broker, "orders") is None


def test_rules_of_kafka_python_are_enforced(broker: penstock.Broker) -> None:
    assert produce(broker, "payments") is None
    admin = kafka_admin.KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
    try:
        acl = kafka_admin.ACL(
            principal=ANYBODY,
            host="127.0.0.0/8",
            operation=kafka_admin.ACLOperation.READ,
            permission_type=kafka_admin.ACLPermissionType.DENY,
            resource_pattern=kafka_admin.ResourcePattern(
                kafka_admin.ResourceType.GROUP, "acc", kafka_admin.ACLResourcePatternType.PREFIXED
            ),
        )
        created = admin.create_acls([acl])
        assert not created["failed"], created
    finally:
        admin.close()
    denied = consume(broker, "payments", "accounting")
    assert isinstance(denied, KafkaError)
    assert denied.code() == KafkaError.GROUP_AUTHORIZATION_FAILED
    assert consume(broker, "payments", "billing") == 0
    # The group has rules now, and none of them allows to describe it.
    line = f"access_denied: {ANYBODY} from 127.0.0.1 is denied Describe on Group:LITERAL:accounting"
    assert f"{line} for FindCoordinator" in broker.logs()


def test_admin_adds_describes_and_removes(broker: penstock.Broker) -> None:
    reads = rule(AclOperation.READ, AclPermission.ALLOW, "orders", principal="User:ada")
    writes = rule(AclOperation.WRITE, AclPermission.ALLOW, "or", kind=PatternType.PREFIXED)
    with penstock.Admin(broker.bootstrap_servers) as admin:
        admin.create_acls([reads, writes])
        admin.create_acls(reads)  # exists already
        assert set(admin.describe_acls()) == {reads, writes}
        assert admin.describe_acls(AclFilter(name="orders")) == [reads]
        match = AclFilter(ResourceType.TOPIC, "orders", PatternType.MATCH)
        assert set(admin.describe_acls(match)) == {reads, writes}
        assert admin.delete_acls(AclFilter(principal="User:ada")) == {
            AclFilter(principal="User:ada"): [reads]
        }
        assert admin.describe_acls() == [writes]
        with pytest.raises(ValueError, match="is no operation of Group"):
            admin.create_acls(
                rule(AclOperation.WRITE, AclPermission.DENY, "g", resource=ResourceType.GROUP)
            )


def test_rules_survive_a_restart(tmp_path: Path) -> None:
    denial = rule(AclOperation.WRITE, AclPermission.DENY, "orders")
    broker = penstock.Broker(data=tmp_path, config=SETTINGS).start()
    try:
        assert produce(broker, "orders") is None
        with penstock.Admin(broker.bootstrap_servers) as admin:
            admin.create_acls(denial)
        broker.kill()
        broker.start()
        denied = produce(broker, "orders")
        assert denied is not None
        assert denied.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    finally:
        broker.stop()


def test_without_a_rule_or_a_super_user_nothing_is_allowed(tmp_path: Path) -> None:
    closed = {**SETTINGS, "allow.everyone.if.no.acl.found": False}
    with (
        penstock.Broker(data=tmp_path, config=closed) as broker,
        penstock.Admin(broker.bootstrap_servers) as admin,
    ):
        with pytest.raises(penstock.RefusedByBroker) as refused:
            admin.create_acls(rule(AclOperation.ALL, AclPermission.ALLOW, "orders"))
        assert refused.value.code is penstock.ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        assert admin.list_topics() == []


# -- the command ---------------------------------------------------------------------------


def run(broker: penstock.Broker, *arguments: str, code: int = 0) -> str:
    """The standard output, or of wrong usage the standard error."""
    ran = CliRunner().invoke(app, ["acl", *arguments, "--bootstrap", broker.bootstrap_servers])
    assert ran.exit_code == code, ran.output
    return ran.stderr if code == 2 else ran.stdout


def test_the_command_adds_lists_tests_and_removes(broker: penstock.Broker) -> None:
    run(broker, "add", "--allow", "User:ada", "--operation", "read", "--topic", "or", "--prefixed")
    run(broker, "add", "--deny", "User:*", "--operation", "all", "--topic", "orders-x")
    listed = json.loads(run(broker, "list", "--topic", "orders-x", "--match", "--json"))
    assert {(row["permission"], row["pattern"]) for row in listed} == {
        ("allow", "prefixed"),
        ("deny", "literal"),
    }
    ada = ("test", "--principal", "User:ada", "--operation", "describe", "--topic")
    assert "allowed: a rule allows it: ALLOW Read to User:ada" in run(broker, *ada, "orders")
    assert "denied: a rule denies it: DENY All to User:*" in run(broker, *ada, "orders-x", code=1)
    root = ("test", "--principal", "User:root", "--operation", "write", "--topic", "orders-x")
    assert "allowed: the principal is one of super.users" in run(broker, *root)
    removed = json.loads(run(broker, "remove", "--principal", "User:ada", "--json"))
    assert [row["name"] for row in removed] == ["or"]
    assert "denied: the resource has" not in run(broker, *ada, "orders")  # it is open again


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("add", "--allow", "User:a", "--operation", "fly", "--topic", "t"), "write one of All"),
        (("add", "--allow", "ada", "--operation", "read", "--topic", "t"), "write User:name"),
        (("add", "--allow", "User:a", "--operation", "read"), "no resource is named"),
        (("remove",), "or --all"),
    ],
)
def test_wrong_usage_of_the_command(
    broker: penstock.Broker, arguments: tuple[str, ...], why: str
) -> None:
    assert why in run(broker, *arguments, code=2)


# -- Kafka's own tool ----------------------------------------------------------------------


@pytest.mark.skipif(not is_long(), reason="a JVM for each command: PROFILE=verify")
def test_kafkas_own_tool_adds_lists_and_removes(tmp_path: Path, say: Say) -> None:
    jars = resolve_kafka_jars(say)
    administered = {**SETTINGS, "super.users": ANYBODY}
    with penstock.Broker(data=tmp_path, config=administered) as broker:
        server = ("--bootstrap-server", broker.bootstrap_servers)

        def tool(*arguments: str) -> str:
            command = jars.command("org.apache.kafka.tools.AclCommand", *server, *arguments)
            return run_tool(command, "kafka-acls", timeout_s=180)

        ada = ("--allow-principal", "User:ada")
        tool("--add", *ada, "--producer", "--topic", "orders", "--idempotent")
        prefixed = ("--resource-pattern-type", "prefixed")
        tool("--add", *ada, "--consumer", "--topic", "or", "--group", "g", *prefixed)
        tool("--add", "--deny-principal", "User:bob", "--operation", "All", "--topic", "*")
        listed = tool("--list", "--topic", "orders", "--resource-pattern-type", "match")
        for name, kind in (("orders", "LITERAL"), ("or", "PREFIXED"), ("*", "LITERAL")):
            assert f"resourceType=TOPIC, name={name}, patternType={kind}" in listed
        tool("--remove", "--force", "--topic", "orders")
        with penstock.Admin(broker.bootstrap_servers) as admin:
            patterns = {binding.pattern for binding in admin.describe_acls()}
        assert patterns == {
            ResourcePattern(ResourceType.CLUSTER, "kafka-cluster"),
            ResourcePattern(ResourceType.TOPIC, "or", PatternType.PREFIXED),
            ResourcePattern(ResourceType.GROUP, "g", PatternType.PREFIXED),
            ResourcePattern(ResourceType.TOPIC, "*"),
        }
