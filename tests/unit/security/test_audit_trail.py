"""The audit trail: the shape of its events, its filters, and its bounded buffer."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from penstock.security.audit.events import (
    MAX_EVENT_BYTES,
    MAX_RESOURCES,
    MAX_TEXT,
    OK,
    AuditedResource,
    AuditSource,
    AuditStatus,
)
from penstock.security.audit.trail import (
    NO_AUDIT,
    AuditConfig,
    AuditEventType,
    AuditTrail,
)
from penstock.security.principal import ANONYMOUS, Caller, Principal

NOW_MS = 1_700_000_000_000
ADA = Caller(Principal("User", "ada"), "10.0.0.9", "CLIENTS")
ORDERS = AuditedResource("topic", "orders")
EVERYTHING = frozenset(AuditEventType)


def make(
    *,
    events: frozenset[AuditEventType] = EVERYTHING,
    principals: frozenset[str] = frozenset(),
    topics: frozenset[str] = frozenset(),
    buffer_bytes: int = 1_000_000,
) -> AuditTrail:
    config = AuditConfig(events, principals, topics, buffer_bytes)
    return AuditTrail(config, AuditSource("1.0", "cluster", 3), wall_ms=lambda: NOW_MS)


def events_of(trail: AuditTrail) -> list[dict[str, Any]]:
    return [json.loads(event) for event in trail.peek(10**9)]


def test_a_login_is_an_ocsf_authentication() -> None:
    trail = make()
    trail.note_authentication(ADA, "SCRAM-SHA-512")
    [event] = events_of(trail)
    assert (event["class_uid"], event["category_uid"], event["activity_id"]) == (3002, 3, 1)
    assert event["type_uid"] == 300201
    assert event["user"] == {"name": "ada", "type": "User"}
    assert event["auth_protocol"] == "SCRAM-SHA-512"
    assert event["src_endpoint"] == {"ip": "10.0.0.9"}
    assert event["dst_endpoint"] == {"svc_name": "CLIENTS"}
    assert (event["status_id"], event["time"]) == (1, NOW_MS)
    assert event["metadata"]["product"]["name"] == "Penstock"
    assert event["device"] == {"uid": "3", "type": "Server", "groups": ["cluster"]}


def test_a_failed_login_names_no_user() -> None:
    trail = make(principals=frozenset(["User:ada"]))  # whoever it was has not shown to be ada
    trail.note_authentication(ADA, "TLS", "the client's certificate is refused")
    [event] = events_of(trail)
    assert "user" not in event
    assert (event["status_id"], event["status_detail"]) == (
        2,
        "the client's certificate is refused",
    )


def test_a_denial_is_an_api_activity_with_its_rule() -> None:
    trail = make()
    trail.note_denied(ADA, "Produce", "Write", ORDERS, "no rule")
    [event] = events_of(trail)
    assert (event["class_uid"], event["type_uid"]) == (6003, 600399)
    assert event["api"]["operation"] == "Produce"
    assert event["actor"]["user"]["name"] == "ada"
    assert event["resources"] == [{"type": "topic", "name": "orders"}]
    assert event["authorizations"] == [{"decision": "denied", "policy": {"name": "no rule"}}]
    assert event["status_id"] == 2


@pytest.mark.parametrize(
    ("status", "status_id", "detail"),
    [
        (OK, 1, None),
        (AuditStatus(1, 1, "INVALID_CONFIG"), 2, "INVALID_CONFIG"),
        (AuditStatus(1, 2, "INVALID_CONFIG"), 99, "1 of 2 failed: INVALID_CONFIG"),
        (AuditStatus(2, 2, "INVALID_CONFIG"), 2, "2 of 2 failed: INVALID_CONFIG"),
    ],
)
def test_a_change_says_whether_it_was_made(
    status: AuditStatus, status_id: int, detail: str | None
) -> None:
    trail = make()
    trail.note_change(ADA, "AlterConfigs", "Update", [ORDERS], status)
    [event] = events_of(trail)
    assert (event["status_id"], event.get("status_detail")) == (status_id, detail)
    assert (event["activity_id"], event["type_uid"]) == (3, 600303)


def test_events_are_numbered_apart() -> None:
    trail = make()
    for _ in range(3):
        trail.note_authentication(ADA, "TLS")
    numbers = [event["metadata"]["uid"] for event in events_of(trail)]
    assert len(set(numbers)) == 3


@pytest.mark.parametrize("kind", list(AuditEventType))
def test_only_the_chosen_kinds_are_audited(kind: AuditEventType) -> None:
    trail = make(events=frozenset([kind]))
    note_all(trail)
    assert len(events_of(trail)) == 1
    note_all(NO_AUDIT)
    assert NO_AUDIT.statistics().pending == 0


def note_all(trail: AuditTrail) -> None:
    trail.note_authentication(ADA, "TLS")
    trail.note_denied(ADA, "Produce", "Write", ORDERS, "no rule")
    trail.note_change(ADA, "CreateTopics", "Create", [ORDERS], OK)


def test_excluded_principals_and_topics_are_left_out() -> None:
    trail = make(principals=frozenset(["User:ada"]))
    note_all(trail)
    assert events_of(trail) == []
    trail = make(topics=frozenset(["orders"]))
    note_all(trail)
    assert [event["class_uid"] for event in events_of(trail)] == [3002]
    both = [ORDERS, AuditedResource("topic", "payments")]
    trail.note_change(ADA, "CreateTopics", "Create", both, OK)
    trail.note_change(ADA, "DeleteGroups", "Delete", [AuditedResource("group", "orders")], OK)
    assert len(events_of(trail)) == 3


def test_a_full_buffer_drops_new_events_and_counts_them() -> None:
    trail = make(buffer_bytes=2_000)
    for _ in range(10):
        trail.note_authentication(ADA, "TLS")
    kept = trail.statistics().pending
    assert 0 < kept < 10
    assert trail.statistics().dropped == 10 - kept
    assert trail.statistics().pending_bytes <= 2_000
    trail.remove(kept)
    assert trail.statistics() == (kept, 10 - kept, 0, 0)
    trail.note_authentication(ADA, "TLS")  # there is room again
    assert trail.statistics().pending == 1


def test_events_stay_until_they_are_removed() -> None:
    trail = make()
    for number in range(5):
        trail.note_change(
            ADA, "CreateTopics", "Create", [AuditedResource("topic", f"t{number}")], OK
        )
    first = trail.peek(1)  # one at least, however large
    assert len(first) == 1
    assert trail.peek(1) == first
    size = len(first[0])
    assert len(trail.peek(3 * size)) == 3
    trail.remove(2)
    assert json.loads(trail.peek(1)[0])["resources"][0]["name"] == "t2"


def test_whoever_waits_is_woken_by_an_event() -> None:
    async def scenario() -> None:
        trail = make()
        waiting = asyncio.create_task(trail.wait())
        await asyncio.sleep(0)
        assert not waiting.done()
        trail.note_authentication(ADA, "TLS")
        await asyncio.wait_for(waiting, 120)
        trail.remove(1)
        waiting = asyncio.create_task(trail.wait())
        await asyncio.sleep(0)
        assert not waiting.done()
        waiting.cancel()

    asyncio.run(scenario())


def test_long_names_and_long_lists_are_cut() -> None:
    trail = make()
    caller = Caller(Principal("User", "x" * 100_000), "10.0.0.9", "CLIENTS")
    many = [AuditedResource("topic", "t" * 10_000) for _ in range(1_000)]
    trail.note_change(caller, "DeleteTopics", "Delete", many, OK)
    [encoded] = trail.peek(10**9)
    assert len(encoded) < 2 * MAX_RESOURCES * MAX_TEXT
    event = json.loads(encoded)
    assert len(event["resources"]) == MAX_RESOURCES
    assert event["unmapped"] == {"resources_left_out": 900}


@pytest.mark.parametrize("name", ["a\nb", '"', "\udc80", "\u202e", "ü"])
def test_names_that_clients_choose_cannot_break_the_json(name: str) -> None:
    trail = make()
    trail.note_change(ADA, "CreateTopics", "Create", [AuditedResource("topic", name)], OK)
    [encoded] = trail.peek(10**9)
    assert b"\n" not in encoded
    assert json.loads(encoded)["resources"][0]["name"] == name


def test_a_caller_without_a_name_is_audited_too() -> None:
    trail = make()
    trail.note_change(Caller(ANONYMOUS, "h", "L"), "CreateTopics", "Create", [], OK)
    assert events_of(trail)[0]["actor"]["user"]["name"] == "ANONYMOUS"


def test_an_event_that_a_client_has_blown_up_fits_into_a_batch() -> None:
    """One that no batch could take would keep all later ones from being written."""
    trail = make()
    longest = "\1" * MAX_TEXT  # six bytes each in JSON
    resources = [
        AuditedResource("topic", longest, (longest,) * MAX_RESOURCES) for _ in range(MAX_RESOURCES)
    ]
    trail.note_change(ADA, "IncrementalAlterConfigs", "Update", resources, OK)
    [encoded] = trail.peek(10**9)
    assert len(encoded) < 4 * MAX_EVENT_BYTES
    [event] = events_of(trail)
    assert [resource["name"] for resource in event["resources"]] == [longest] * MAX_RESOURCES
    assert event["unmapped"] == {"details_left_out": True}


def test_failed_logins_leave_half_of_the_buffer_to_events_of_others() -> None:
    trail = make(buffer_bytes=20_000)
    while not trail.statistics().dropped:
        trail.note_authentication(ADA, "TLS", "the client's certificate is refused")
    assert trail.statistics().pending_bytes <= 10_000
    trail.note_authentication(ADA, "SCRAM-SHA-512")
    trail.note_change(ADA, "DeleteTopics", "Delete", [ORDERS], OK)
    assert trail.statistics().dropped == 1
