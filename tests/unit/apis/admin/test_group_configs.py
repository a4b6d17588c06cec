"""Settings of groups: described with their sources, and listed with the other resources."""

from typing import Any

import pytest
from tests.unit.apis.admin.harness import AdminApiHarness, rows

from penstock.apis.admin import describe_configs, list_config_resources
from penstock.model.cluster import BrokerId, ControllerEpoch, UpdateMetadataRequest
from penstock.model.errors import ErrorCode

DESCRIBE, LIST = describe_configs.API, list_config_resources.API
TOPIC, BROKER, LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
SESSION, HEARTBEAT = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"


def set_for_group(harness: AdminApiHarness, group: str, settings: dict[str, str]) -> None:
    harness.cluster.apply(
        UpdateMetadataRequest(
            controller_id=BrokerId(1),
            controller_epoch=ControllerEpoch(1),
            is_full=False,
            group_configs={group: settings},
        )
    )


def describe(harness: AdminApiHarness, group: str) -> Any:
    resource = {"resource_type": GROUP, "resource_name": group, "configuration_keys": None}
    [result] = harness.ask(
        DESCRIBE, 4, resources=[resource], include_synonyms=True, include_documentation=True
    ).results
    return result


def test_a_groups_settings_have_their_values_and_sources(harness: AdminApiHarness) -> None:
    set_for_group(harness, "g", {SESSION: "50000"})
    own, default = 8, 5
    assert rows(describe(harness, "g").configs, "name", "value", "config_source") == [
        (SESSION, "50000", own),
        (HEARTBEAT, "5000", default),
    ]
    values = rows(describe(harness, "other").configs, "value", "config_source")
    assert values == [("45000", default), ("5000", default)]


def test_a_group_needs_a_name(harness: AdminApiHarness) -> None:
    assert describe(harness, "").error_code == ErrorCode.INVALID_REQUEST


def test_stored_settings_outside_the_brokers_bounds_are_named(
    harness: AdminApiHarness,
) -> None:
    set_for_group(harness, "g", {SESSION: "1"})
    result = describe(harness, "g")
    assert result.error_code == ErrorCode.INVALID_CONFIG
    assert "group.consumer.min.session.timeout.ms" in result.error_message


def test_version_0_lists_client_metrics_which_are_empty(harness: AdminApiHarness) -> None:
    reply = harness.ask(LIST, 0)
    assert (reply.error_code, reply.config_resources) == (ErrorCode.NONE, ())


@pytest.mark.parametrize(
    ("types", "code", "kinds"),
    [
        ((GROUP,), ErrorCode.NONE, {GROUP}),
        ((CLIENT_METRICS,), ErrorCode.NONE, set()),
        ((BROKER, LOGGER), ErrorCode.NONE, {BROKER, LOGGER}),
        ((99,), ErrorCode.UNSUPPORTED_VERSION, set()),
    ],
)
def test_resources_are_listed_by_type(
    harness: AdminApiHarness, types: tuple[int, ...], code: ErrorCode, kinds: set[int]
) -> None:
    set_for_group(harness, "g", {SESSION: "50000"})
    reply = harness.ask(LIST, 1, resource_types=types)
    assert reply.error_code == code
    listed = rows(reply.config_resources, "resource_type", "resource_name")
    assert {kind for kind, _ in listed} <= kinds
    assert ((GROUP, "g") in listed) == (GROUP in kinds)
