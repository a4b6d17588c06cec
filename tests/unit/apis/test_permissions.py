"""The table of permissions is what requests need: no more, no less, and with these errors.

Every API is sent requests by a caller with every combination of the permissions of its rows, as
ACLs. With all of them nothing is refused; each one makes the difference that its row says.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

import pytest
from tests.unit.apis.admin.harness import FakeController as FakeAdministration
from tests.unit.apis.harness import ApiHarness, topic_id_of
from tests.unit.apis.test_access import EXEMPT, error_codes, rows

from penstock.apis.dispatcher import Dispatcher
from penstock.apis.inter_broker_access import InterBroker
from penstock.apis.permissions import PERMISSIONS, Permission
from penstock.apis.permissions_page import with_table
from penstock.apis.registry import APIS
from penstock.coordinators.group.consumer.requests import (
    DescribedConsumerGroup,
    DescribedConsumerMember,
)
from penstock.coordinators.group.requests import (
    DescribedGroup,
    GroupSummary,
)
from penstock.coordinators.transaction.requests import (
    DescribedTransaction,
    ListedTransactions,
    TransactionSummary,
)
from penstock.inter_broker.apis.registry import load_private_api
from penstock.model.acls import (
    WILDCARD,
    AccessControlEntry,
    AclOperation,
    AclPermission,
    ResourcePattern,
    ResourceType,
)
from penstock.model.errors import ErrorCode, get_error
from penstock.model.ids import TopicPartition
from penstock.protocol.api_keys import ApiKey
from penstock.protocol.private_keys import PrivateKey
from penstock.security.acl_authorizer import AclAuthorizer, AuthorizerConfig

PAGE = Path(__file__).parents[3] / "docs" / "acls.md"
REFUSALS = frozenset(code for code in ErrorCode if code.name.endswith("_AUTHORIZATION_FAILED"))
NONE = ErrorCode.NONE


class Sample(NamedTuple):
    version: int
    fields: dict[str, Any]


class Response(NamedTuple):
    body: bytes  # empty: the request waits, so it was not refused
    refusals: frozenset[ErrorCode]


def _configs(kind: int, name: str) -> dict[str, Any]:
    return {"resources": [{"resource_type": kind, "resource_name": name}]}


# Requests for rows that the ones of test_access do not reach.
MORE: dict[ApiKey, list[dict[str, Any]]] = {
    ApiKey.METADATA: [
        {"topics": [{"name": "absent"}], "allow_auto_topic_creation": True},
    ],
    ApiKey.DELETE_TOPICS: [{"topics": [{"name": None, "topic_id": topic_id_of("there")}]}],
    ApiKey.INIT_PRODUCER_ID: [{"transactional_id": "t", "enable2_pc": True}],
    ApiKey.DESCRIBE_CONFIGS: [_configs(32, "g")],
    ApiKey.ALTER_CONFIGS: [_configs(32, "g")],
    ApiKey.INCREMENTAL_ALTER_CONFIGS: [_configs(32, "g"), _configs(4, "")],
}
OPERATIONS_OF_CLUSTER = Sample(10, {"topics": [], "include_cluster_authorized_operations": True})


def samples(key: ApiKey) -> Iterator[Sample]:
    """Each request in the newest version that has it."""
    for topic in ("never", "there"):
        for row in rows(topic)[key]:
            version = max(version for version in APIS[key].versions if version in row.versions)
            yield Sample(version, row.request)
    for fields in MORE.get(key, ()):
        yield Sample(APIS[key].versions[-1], fields)
    if key is ApiKey.METADATA:
        yield OPERATIONS_OF_CLUSTER  # its last versions leave that to DescribeCluster


# -- a broker whose caller has some permissions ----------------------------------------------


@pytest.fixture(name="harness", scope="module")
def _harness(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiHarness]:
    folder = tmp_path_factory.mktemp("permissions")
    harness = ApiHarness(folder, settings={"log.dirs": str(folder)})
    harness.make_topic("there")
    groups, transactions = harness.groups, harness.transactions
    groups.listed = [GroupSummary("g", "consumer", "Stable", "classic")]
    groups.described = {"g": DescribedGroup(group="g", error=NONE)}
    member = DescribedConsumerMember(
        member="m",
        instance=None,
        rack=None,
        member_epoch=1,
        client_id="c",
        client_host="/h",
        topics=("there",),
        topic_regex=None,
        assignment=(),
        target=(),
    )
    described = DescribedConsumerGroup(group="g", error=NONE, members=(member,))
    groups.consumer_described = {"g": described}
    transactions.listed = ListedTransactions(NONE, (), (TransactionSummary("t", 1, "Ongoing"),))
    partitions = (TopicPartition("there", 0),)
    transactions.described = {
        "t": DescribedTransaction(transactional_id="t", code=NONE, partitions=partitions)
    }
    yield harness
    harness.close()


async def _alter_no_partition(*_: object, **options: object) -> list[Any]:
    return []


def _let_in(harness: ApiHarness, permissions: Sequence[Permission]) -> None:
    """Give the caller these permissions, on every resource of their types, and no others."""
    authorizer = AclAuthorizer(AuthorizerConfig())
    operations: dict[ResourceType, list[AclOperation]] = {}
    for permission in permissions:
        operations.setdefault(permission.resource, []).append(permission.operation)
    for resource, allowed in operations.items():
        entries = [
            AccessControlEntry("User:ANONYMOUS", "10.0.0.0/8", operation, AclPermission.ALLOW)
            for operation in allowed
        ]
        authorizer.replace(ResourcePattern(resource, WILDCARD), entries)
    nobody = cast("Any", None)
    brokers = InterBroker(
        listener=harness.connection.caller.listener,
        membership=cast("Any", SimpleNamespace(alter_partition=_alter_no_partition)),
        configs=nobody,
        handle_controller_request=nobody,
        load_api=load_private_api,
    )
    services = replace(
        harness.services,
        authorizer=authorizer,
        administration=FakeAdministration(),
        inter_broker=brokers,
    )
    harness.dispatcher = Dispatcher(APIS, services)


def _ask(harness: ApiHarness, key: ApiKey, sample: Sample) -> Response:
    sent = harness.send(key, sample.version, **sample.fields)
    assert harness.connection.unexpected_errors == []
    if not sent.is_answered:
        return Response(b"", frozenset())
    refusals = frozenset(map(get_error, error_codes(sent.reply))) & REFUSALS
    return Response(sent.bytes[8:], refusals)  # without the correlation id


# -- the table -----------------------------------------------------------------------------


def test_every_api_has_a_row() -> None:
    assert set(PERMISSIONS) == {*APIS, *PrivateKey}


def test_the_page_has_the_table() -> None:
    page = PAGE.read_text()
    assert page == with_table(page), "run: python -m penstock.apis.permissions_page"


@pytest.mark.parametrize("key", sorted(set(APIS) - EXEMPT))
def test_a_caller_with_all_permissions_is_not_refused(harness: ApiHarness, key: ApiKey) -> None:
    _let_in(harness, PERMISSIONS[key])
    for sample in samples(key):
        assert _ask(harness, key, sample).refusals == frozenset(), sample


CASES = [
    pytest.param(
        key, permission, id=f"{key.title}-{permission.operation.name}-{permission.resource.name}"
    )
    for key in APIS
    for permission in PERMISSIONS[key]
]


@pytest.mark.parametrize(("key", "permission"), CASES)
def test_each_permission_makes_the_difference_that_its_row_says(
    harness: ApiHarness, key: ApiKey, permission: Permission
) -> None:
    assert any(
        _differs(harness, key, permission, sample, others)
        for others in _subsets([other for other in PERMISSIONS[key] if other != permission])
        for sample in samples(key)
    )


def _subsets(permissions: Sequence[Permission]) -> Iterator[tuple[Permission, ...]]:
    for count in reversed(range(len(permissions) + 1)):
        yield from combinations(permissions, count)


def _differs(
    harness: ApiHarness,
    key: ApiKey,
    permission: Permission,
    sample: Sample,
    others: tuple[Permission, ...],
) -> bool:
    _let_in(harness, others)
    without = _ask(harness, key, sample)
    _let_in(harness, (*others, permission))
    allowed = _ask(harness, key, sample)
    has_error = permission.error is None or permission.error in without.refusals
    return has_error and without.body != allowed.body
