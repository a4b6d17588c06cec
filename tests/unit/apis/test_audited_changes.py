"""Every request that changes something is audited, by the names of what it changes alone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.unit.apis.admin.harness import FakeController as FakeAdministration
from tests.unit.apis.harness import ApiHarness, build
from tests.unit.apis.test_access import rows

from penstock.apis.audited_changes import AUDITED, NOT_AUDITED
from penstock.apis.dispatcher import Dispatcher
from penstock.apis.permissions import PERMISSIONS
from penstock.apis.registry import APIS
from penstock.controller.interface import ApiError
from penstock.model.acls import AclOperation
from penstock.model.errors import ErrorCode
from penstock.model.quotas import DEFAULT_ENTITY, QuotaEntity, QuotaKey
from penstock.protocol.api_keys import ApiKey
from penstock.protocol.malformed import UnknownSchema
from penstock.protocol.schemas import describe_fields, get_request_schema
from penstock.security.audit.events import AuditSource
from penstock.security.audit.trail import AuditConfig, AuditEventType, AuditTrail
from penstock.security.quotas.client_quotas import ClientQuotas

CHANGES = {
    AclOperation.CREATE,
    AclOperation.DELETE,
    AclOperation.ALTER,
    AclOperation.ALTER_CONFIGS,
}
SECRET = "c0rrect-horse"


class AuditHarness(ApiHarness):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        config = AuditConfig(frozenset(AuditEventType), buffer_bytes=10_000_000)
        self.trail = AuditTrail(config, AuditSource("1.0", "cluster", 1))
        self.quotas = ClientQuotas()
        self.administration = FakeAdministration()
        self.services = replace(
            self.services,
            administration=self.administration,
            audit=self.trail,
            quotas=self.quotas,
        )
        self.dispatcher = Dispatcher(APIS, self.services)

    def events(self) -> list[dict[str, Any]]:
        events = [json.loads(event) for event in self.trail.peek(10**9)]
        self.trail.remove(len(events))
        return events


@pytest.fixture(name="harness")
def _harness(tmp_path: Path) -> Iterator[AuditHarness]:
    harness = AuditHarness(tmp_path)
    yield harness
    harness.close()


def test_every_api_that_needs_a_permission_to_change_is_audited() -> None:
    changing = {
        key
        for key in APIS
        if any(permission.operation in CHANGES for permission in PERMISSIONS[key])
    }
    assert changing <= AUDITED.keys() | NOT_AUDITED.keys()
    assert NOT_AUDITED.keys() <= changing
    assert AUDITED.keys().isdisjoint(NOT_AUDITED)


@pytest.mark.parametrize("key", sorted(AUDITED.keys() & APIS.keys()))
def test_each_version_of_a_change_is_one_event(harness: AuditHarness, key: ApiKey) -> None:
    """With what its handler answers, whatever that is."""
    harness.make_topic("there")
    for version in APIS[key].versions:
        for row in rows("there")[key]:
            if version not in row.versions:
                continue
            harness.send(key, version, **row.request)
            harness.run_tasks()
            [event] = harness.events()
            assert event["api"]["operation"] == key.title
            assert event["resources"]
            assert event["actor"]["user"]["name"] == "ANONYMOUS"


def test_what_fails_is_said(harness: AuditHarness) -> None:
    refusal = ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "there is none")
    harness.administration.refusals = {"absent": refusal}
    targets = [{"name": name, "topic_id": None} for name in ("absent", "there")]
    harness.ask(ApiKey.DELETE_TOPICS, 6, topics=targets[:1])
    harness.ask(ApiKey.DELETE_TOPICS, 6, topics=targets)
    failed, partial = harness.events()
    assert failed["resources"] == [{"type": "topic", "name": "absent"}]
    assert (failed["status"], failed["status_detail"]) == (
        "Failure",
        "UNKNOWN_TOPIC_OR_PARTITION",
    )
    assert (partial["status"], partial["status_detail"]) == (
        "Partial",
        "1 of 2 failed: UNKNOWN_TOPIC_OR_PARTITION",
    )


def test_a_dry_run_changes_nothing(harness: AuditHarness) -> None:
    topics = [{"name": "a", "num_partitions": 1, "replication_factor": 1}]
    harness.ask(ApiKey.CREATE_TOPICS, 7, topics=topics, validate_only=True)
    assert harness.events() == []
    harness.ask(ApiKey.CREATE_TOPICS, 7, topics=topics)
    [event] = harness.events()
    assert event["resources"] == [{"type": "topic", "name": "a"}]
    assert event["status"] == "Success"


def test_a_change_is_audited_while_quotas_are_set_as_well(harness: AuditHarness) -> None:
    everybody = QuotaEntity(DEFAULT_ENTITY)
    harness.quotas.replace({everybody: {QuotaKey.REQUEST_PERCENTAGE: 0.000_001}})
    topics = [{"name": "a", "num_partitions": 1, "replication_factor": 1}]
    reply = harness.ask(ApiKey.CREATE_TOPICS, 7, topics=topics)
    assert reply.throttle_time.total_seconds() > 0
    assert len(harness.events()) == 1


@pytest.mark.parametrize("key", sorted(AUDITED))
def test_no_value_and_no_credential_is_named(key: ApiKey) -> None:
    """Every text that is no name is a secret here."""
    named = {"name", "topic", "resource_name", "group_id", "entity_name", "entity_type", "key"}
    named |= {"principal", "host", "resource_name_filter", "principal_filter", "topic_names"}
    named |= {"groups_names"}
    for version in range(8):
        try:
            schema = get_request_schema(key, version)
        except UnknownSchema:
            continue
        message = build(schema, _filled(schema, named))
        shown = json.dumps([list(resource) for resource in AUDITED[key].find_resources(message)])
        assert SECRET not in shown


def _filled(entity: Any, named: set[str]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for field in describe_fields(entity):
        if field.entity is not None:
            inner = _filled(field.entity, named)
            values[field.name] = [inner] if field.is_array else inner
        elif field.kafka_type == "string":
            text = "a-name" if field.name in named else SECRET
            values[field.name] = [text] if field.is_array else text
        elif field.kafka_type == "bytes":
            values[field.name] = SECRET.encode()
    return values
