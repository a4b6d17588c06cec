"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup: every version, decoded and encoded."""

from datetime import timedelta
from typing import Any

import pytest
from tests.unit.apis.harness import ApiHarness

from penstock.apis.registry import APIS
from penstock.coordinators.group.requests import (
    Heartbeat,
    JoinGroup,
    JoinGroupMember,
    JoinGroupReply,
    LeaveResult,
    LeavingMember,
    MemberProtocol,
    SyncGroup,
    SyncGroupReply,
)
from penstock.model.errors import ErrorCode
from penstock.protocol.api_keys import ApiKey

JOIN, SYNC = ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP
HEARTBEAT, LEAVE = ApiKey.HEARTBEAT, ApiKey.LEAVE_GROUP
FENCED = ErrorCode.FENCED_INSTANCE_ID
HOST = "/10.0.0.9"  # the harness's client, as Kafka shows it


def test_all_advertised_versions_are_served() -> None:
    """aiokafka uses JoinGroup 0, 1, 2 and 5 and SyncGroup 0, 1 and 3 only."""
    assert APIS[JOIN].versions == range(10)
    assert APIS[SYNC].versions == range(6)
    assert APIS[HEARTBEAT].versions == range(5)
    assert APIS[LEAVE].versions == range(6)


# -- JoinGroup -----------------------------------------------------------------------------


def ask_to_join(harness: ApiHarness, version: int) -> Any:
    return harness.ask(
        JOIN,
        version,
        group_id="g",
        session_timeout=timedelta(seconds=10),
        rebalance_timeout=timedelta(seconds=60),
        member_id="m-1",
        group_instance_id="static-1",
        protocol_type="consumer",
        protocols=[
            {"name": "range", "metadata": b"\0\1"},
            {"name": "sticky", "metadata": b"x" * 300},
        ],
        reason="because",
    )


@pytest.mark.parametrize("version", APIS[JOIN].versions)
def test_a_join_is_decoded_in_every_version(harness: ApiHarness, version: int) -> None:
    ask_to_join(harness, version)
    assert harness.groups.requests == [
        JoinGroup(
            group="g",
            member="m-1",
            instance="static-1" if version >= 5 else None,
            client_id="test",
            client_host=HOST,
            session_timeout_ms=10_000,
            rebalance_timeout_ms=60_000 if version >= 1 else 10_000,
            protocol_type="consumer",
            protocols=(MemberProtocol("range", b"\0\1"), MemberProtocol("sticky", b"x" * 300)),
            requires_known_member=version >= 4,
            supports_skipping_assignment=version >= 9,
            reason="because" if version >= 8 else None,
        )
    ]


@pytest.mark.parametrize("version", APIS[JOIN].versions)
def test_the_leader_gets_the_member_list(harness: ApiHarness, version: int) -> None:
    harness.groups.joined = JoinGroupReply(
        error=ErrorCode.NONE,
        member="m-1",
        generation=7,
        protocol_type="consumer",
        protocol="range",
        leader="m-1",
        skip_assignment=True,
        members=(JoinGroupMember("m-1", "static-1", b"\0\1"), JoinGroupMember("m-2", None, b"")),
    )
    reply = ask_to_join(harness, version)
    assert (reply.error_code, reply.generation_id, reply.protocol_name) == (0, 7, "range")
    assert (reply.leader, reply.member_id) == ("m-1", "m-1")
    assert [(member.member_id, member.metadata) for member in reply.members] == [
        ("m-1", b"\0\1"),
        ("m-2", b""),
    ]
    if version >= 5:
        assert [member.group_instance_id for member in reply.members] == ["static-1", None]
    if version >= 7:
        assert reply.protocol_type == "consumer"
    if version >= 9:
        assert reply.skip_assignment is True


@pytest.mark.parametrize("version", APIS[JOIN].versions)
def test_a_new_member_gets_its_id_with_member_id_required(
    harness: ApiHarness, version: int
) -> None:
    """An unset protocol is null only in versions where it is nullable."""
    harness.groups.joined = JoinGroupReply(error=ErrorCode.MEMBER_ID_REQUIRED, member="test-17")
    reply = ask_to_join(harness, version)
    assert (reply.error_code, reply.member_id) == (ErrorCode.MEMBER_ID_REQUIRED, "test-17")
    assert (reply.generation_id, reply.leader, reply.members) == (-1, "", ())
    assert reply.protocol_name == (None if version >= 7 else "")


def test_a_join_waits_for_the_group(harness: ApiHarness) -> None:
    harness.runs_at_once = False
    sent = harness.send(JOIN, 5, group_id="g")
    assert not sent.is_answered
    harness.run_tasks()
    assert sent.reply.error_code == 0


def test_a_thousand_protocols_reach_the_group_in_order(harness: ApiHarness) -> None:
    protocols = [{"name": f"p{number}", "metadata": b""} for number in range(1000)]
    harness.send(JOIN, 9, group_id="g", protocols=protocols)
    (request,) = harness.groups.requests
    assert isinstance(request, JoinGroup)
    assert [protocol.name for protocol in request.protocols] == [
        protocol["name"] for protocol in protocols
    ]


@pytest.mark.parametrize("version", APIS[JOIN].versions)
def test_more_protocols_than_allowed_are_refused_before_they_are_decoded(
    harness: ApiHarness, version: int
) -> None:
    protocols = [{"name": "p", "metadata": b""}] * 1001
    reply = harness.ask(JOIN, version, group_id="g", protocols=protocols)
    assert reply.error_code == ErrorCode.INVALID_REQUEST
    assert harness.groups.requests == []


# -- SyncGroup -----------------------------------------------------------------------------


@pytest.mark.parametrize("version", APIS[SYNC].versions)
def test_more_assignments_than_allowed_are_refused(harness: ApiHarness, version: int) -> None:
    assignments = [{"member_id": "m", "assignment": b""}] * 20_001
    reply = harness.ask(SYNC, version, group_id="g", assignments=assignments)
    assert reply.error_code == ErrorCode.INVALID_REQUEST
    assert harness.groups.requests == []


def ask_to_sync(harness: ApiHarness, version: int, **values: Any) -> Any:
    return harness.ask(
        SYNC,
        version,
        **{
            "group_id": "g",
            "generation_id": 7,
            "member_id": "m-1",
            "group_instance_id": "static-1",
            "protocol_type": "consumer",
            "protocol_name": "range",
            "assignments": [
                {"member_id": "m-1", "assignment": b"one"},
                {"member_id": "m-2", "assignment": b""},
            ],
            **values,
        },
    )


@pytest.mark.parametrize("version", APIS[SYNC].versions)
def test_a_sync_is_decoded_and_its_assignment_encoded(harness: ApiHarness, version: int) -> None:
    harness.groups.synced = SyncGroupReply(
        error=ErrorCode.NONE, protocol_type="consumer", protocol="range", assignment=b"mine"
    )
    reply = ask_to_sync(harness, version)
    assert harness.groups.requests == [
        SyncGroup(
            group="g",
            member="m-1",
            instance="static-1" if version >= 3 else None,
            generation=7,
            protocol_type="consumer" if version >= 5 else None,
            protocol="range" if version >= 5 else None,
            assignments={"m-1": b"one", "m-2": b""},
        )
    ]
    assert (reply.error_code, reply.assignment) == (0, b"mine")
    if version >= 5:
        assert (reply.protocol_type, reply.protocol_name) == ("consumer", "range")


@pytest.mark.parametrize("version", APIS[SYNC].versions)
def test_a_rejected_sync_has_no_assignment(harness: ApiHarness, version: int) -> None:
    harness.groups.synced = SyncGroupReply(error=ErrorCode.REBALANCE_IN_PROGRESS)
    reply = ask_to_sync(harness, version)
    assert (reply.error_code, reply.assignment) == (ErrorCode.REBALANCE_IN_PROGRESS, b"")


@pytest.mark.parametrize("missing", ["protocol_type", "protocol_name"])
def test_a_sync_requires_its_protocol_from_version_5_on(harness: ApiHarness, missing: str) -> None:
    reply = ask_to_sync(harness, 5, **{missing: None})
    assert reply.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert harness.groups.requests == []


# -- Heartbeat -----------------------------------------------------------------------------


@pytest.mark.parametrize("code", [ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS])
@pytest.mark.parametrize("version", APIS[HEARTBEAT].versions)
def test_a_heartbeat_is_decoded_and_its_code_encoded(
    harness: ApiHarness, version: int, code: ErrorCode
) -> None:
    harness.groups.code = code
    reply = harness.ask(
        HEARTBEAT,
        version,
        group_id="g",
        generation_id=7,
        member_id="m-1",
        group_instance_id="static-1",
    )
    instance = "static-1" if version >= 3 else None
    assert harness.groups.requests == [
        Heartbeat(group="g", member="m-1", instance=instance, generation=7)
    ]
    assert reply.error_code == code


# -- LeaveGroup ----------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(3))
def test_before_version_3_the_members_error_is_top_level(harness: ApiHarness, version: int) -> None:
    harness.groups.left = (LeaveResult("m-1", None, ErrorCode.UNKNOWN_MEMBER_ID),)
    reply = harness.ask(LEAVE, version, group_id="g", member_id="m-1")
    assert harness.groups.requests == [("g", (LeavingMember("m-1", None),))]
    assert reply.error_code == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("version", APIS[LEAVE].versions)
def test_an_error_of_the_group_is_top_level(harness: ApiHarness, version: int) -> None:
    harness.groups.code = ErrorCode.NOT_COORDINATOR
    reply = harness.ask(LEAVE, version, group_id="g", member_id="m", members=[{"member_id": "m"}])
    assert reply.error_code == ErrorCode.NOT_COORDINATOR


@pytest.mark.parametrize("version", range(3, 6))
def test_several_members_leave_each_with_its_own_error(harness: ApiHarness, version: int) -> None:
    harness.groups.left = (
        LeaveResult("m-1", None, ErrorCode.NONE),
        LeaveResult("", "static-2", FENCED),
    )
    members = [
        {"member_id": "m-1", "group_instance_id": None, "reason": "done"},
        {"member_id": "", "group_instance_id": "static-2"},
    ]
    reply = harness.ask(LEAVE, version, group_id="g", members=members)
    reason = "done" if version >= 5 else None
    leavers = (LeavingMember("m-1", None, reason), LeavingMember("", "static-2", None))
    assert harness.groups.requests == [("g", leavers)]
    assert reply.error_code == 0
    assert [
        (member.member_id, member.group_instance_id, member.error_code) for member in reply.members
    ] == [
        ("m-1", None, 0),
        ("", "static-2", FENCED),
    ]
