"""ListGroups, DescribeGroups and DeleteGroups: every version, decoded and encoded."""

from typing import Any

import pytest
from tests.unit.apis.harness import ApiHarness

from penstock.apis.groups.per_group import GROUPS_PER_STEP
from penstock.apis.registry import APIS
from penstock.coordinators.group.requests import DescribedGroup, DescribedMember, GroupSummary
from penstock.model.errors import ErrorCode
from penstock.protocol.api_keys import ApiKey
from penstock.security.authorizer import CLUSTER_NAME, AclOperation, ResourceType

LIST, DESCRIBE, DELETE = ApiKey.LIST_GROUPS, ApiKey.DESCRIBE_GROUPS, ApiKey.DELETE_GROUPS
NOT_FOUND = ErrorCode.GROUP_ID_NOT_FOUND
DENIED = ErrorCode.GROUP_AUTHORIZATION_FAILED
NOTHING_ASKED = -(2**31)


# -- ListGroups ----------------------------------------------------------------------------

LISTED = [
    GroupSummary("a", "consumer", "Stable", "classic"),
    GroupSummary("b", "", "Empty", "classic"),
    GroupSummary("c", "consumer", "Reconciling", "consumer"),
]


@pytest.mark.parametrize("version", APIS[LIST].versions)
def test_groups_are_listed_in_every_version(harness: ApiHarness, version: int) -> None:
    harness.groups.listed = LISTED
    reply = harness.ask(LIST, version, states_filter=["stable ", "Empty"], types_filter=["Classic"])
    states = frozenset(("stable", "Empty")) if version >= 4 else frozenset()
    kinds = frozenset(("Classic",)) if version >= 5 else frozenset()
    assert harness.groups.requests == [(states, kinds)]
    assert reply.error_code == 0
    groups = [(group.group_id, group.protocol_type) for group in reply.groups]
    assert groups == [("a", "consumer"), ("b", ""), ("c", "consumer")]
    if version >= 4:
        assert [group.group_state for group in reply.groups] == ["Stable", "Empty", "Reconciling"]
    if version >= 5:
        assert [group.group_type for group in reply.groups] == ["classic", "classic", "consumer"]


@pytest.mark.parametrize("version", APIS[LIST].versions)
def test_a_partial_listing_has_an_error_code(harness: ApiHarness, version: int) -> None:
    harness.groups.code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    harness.groups.listed = LISTED[:1]
    reply = harness.ask(LIST, version)
    assert reply.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert [group.group_id for group in reply.groups] == ["a"]


def test_without_describe_on_the_cluster_only_allowed_groups_are_listed(
    harness: ApiHarness,
) -> None:
    harness.groups.listed = LISTED
    harness.guard.deny(AclOperation.DESCRIBE, ResourceType.GROUP, "b")
    assert len(harness.ask(LIST, 5).groups) == 3
    harness.guard.deny(AclOperation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME)
    assert [group.group_id for group in harness.ask(LIST, 5).groups] == ["a", "c"]


# -- DescribeGroups ------------------------------------------------------------------------

DESCRIBED = DescribedGroup(
    group="g",
    error=ErrorCode.NONE,
    state="Stable",
    protocol_type="consumer",
    protocol="range",
    members=(
        DescribedMember(
            member="m-1",
            instance="static-1",
            client_id="c",
            client_host="/10.0.0.9",
            metadata=b"what it wants",
            assignment=b"what it has",
        ),
    ),
)


def describe(harness: ApiHarness, version: int, *groups: str, **values: Any) -> Any:
    return harness.ask(DESCRIBE, version, groups=groups, **values).groups


@pytest.mark.parametrize("version", APIS[DESCRIBE].versions)
def test_a_group_is_described_in_every_version(harness: ApiHarness, version: int) -> None:
    harness.groups.described = {"g": DESCRIBED}
    (group,) = describe(harness, version, "g")
    assert (group.error_code, group.group_id, group.group_state) == (0, "g", "Stable")
    assert (group.protocol_type, group.protocol_data) == ("consumer", "range")
    (member,) = group.members
    assert (member.member_id, member.client_id, member.client_host) == ("m-1", "c", "/10.0.0.9")
    assert (member.member_metadata, member.member_assignment) == (b"what it wants", b"what it has")
    if version >= 3:
        assert group.authorized_operations == NOTHING_ASKED
    if version >= 4:
        assert member.group_instance_id == "static-1"
    if version >= 6:
        assert group.error_message is None


@pytest.mark.parametrize("version", APIS[DESCRIBE].versions)
def test_a_missing_group_is_dead_and_an_error_from_version_6_on(
    harness: ApiHarness, version: int
) -> None:
    harness.groups.described = {"g": DescribedGroup(group="g", error=NOT_FOUND, message="no g")}
    (group,) = describe(harness, version, "g")
    assert (group.group_state, group.members) == ("Dead", ())
    assert group.error_code == (NOT_FOUND if version >= 6 else 0)
    if version >= 6:
        assert group.error_message == "no g"


@pytest.mark.parametrize("version", range(3, 7))
def test_authorized_operations_are_returned_on_request(harness: ApiHarness, version: int) -> None:
    harness.groups.described = {"g": DESCRIBED}
    harness.guard.deny(AclOperation.DELETE, ResourceType.GROUP, "g")
    (group,) = describe(harness, version, "g", include_authorized_operations=True)
    others = (
        *(AclOperation.READ, AclOperation.DESCRIBE),
        *(AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS),
    )
    assert group.authorized_operations == sum(1 << operation for operation in others)


@pytest.mark.parametrize("version", APIS[DESCRIBE].versions)
def test_several_groups_are_described_each_once_in_order(harness: ApiHarness, version: int) -> None:
    harness.guard.deny(AclOperation.DESCRIBE, ResourceType.GROUP, "theirs")
    loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    harness.groups.described = {"g": DESCRIBED, "h": DescribedGroup(group="h", error=loading)}
    groups = describe(harness, version, "h", "theirs", "g", "g", "theirs")
    assert [(group.group_id, group.error_code) for group in groups] == [
        ("h", loading),
        ("theirs", DENIED),
        ("g", 0),
    ]


# -- DeleteGroups --------------------------------------------------------------------------


@pytest.mark.parametrize("version", APIS[DELETE].versions)
def test_groups_are_deleted_each_once_in_order(harness: ApiHarness, version: int) -> None:
    harness.guard.deny(AclOperation.DELETE, ResourceType.GROUP, "theirs")
    harness.groups.code = ErrorCode.NON_EMPTY_GROUP
    reply = harness.ask(DELETE, version, groups_names=["b", "theirs", "a", "b"])
    assert [(result.group_id, result.error_code) for result in reply.results] == [
        ("b", ErrorCode.NON_EMPTY_GROUP),
        ("theirs", DENIED),
        ("a", ErrorCode.NON_EMPTY_GROUP),
    ]
    assert harness.groups.requests == ["b", "a"]


def test_groups_are_deleted_in_several_steps(harness: ApiHarness) -> None:
    names = [f"g{number}" for number in range(2 * GROUPS_PER_STEP + 1)]
    reply = harness.ask(DELETE, 2, groups_names=names)
    assert [(result.group_id, result.error_code) for result in reply.results] == [
        (name, 0) for name in names
    ]
