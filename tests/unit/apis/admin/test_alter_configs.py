"""AlterConfigs and IncrementalAlterConfigs: what reaches the controller."""

from typing import Any

import pytest
from tests.unit.apis.admin.harness import AdminApiHarness, rows

from penstock.apis.admin import alter_configs, incremental_alter_configs
from penstock.apis.admin.alterable_configs import is_alterable
from penstock.config.registry import BROKER_SETTINGS, TOPIC_SETTINGS
from penstock.config.setting import SettingKind
from penstock.controller.interface import (
    ApiError,
    ConfigEntryChange,
    ConfigResourceChange,
    ConfigScope,
)
from penstock.model.admin import ConfigOperation
from penstock.model.errors import ErrorCode
from penstock.security.authorizer import CLUSTER_NAME, AclOperation, ResourceType

FULL = alter_configs.API
INCREMENTAL = incremental_alter_configs.API
BOTH = pytest.mark.parametrize("api", [FULL, INCREMENTAL], ids=["full", "incremental"])
TOPIC, BROKER, LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3


def resource(kind: int, name: str, *settings: tuple[str, str | None]) -> dict[str, Any]:
    configs = [{"name": setting, "value": value} for setting, value in settings]
    return {"resource_type": kind, "resource_name": name, "configs": configs}


def alter(
    harness: AdminApiHarness, api: Any, *resources: dict[str, Any], **flags: Any
) -> list[ErrorCode]:
    """Return the error of each resource in order; operations are SET unless given."""
    if api is INCREMENTAL:
        for resource in resources:
            resource["configs"] = [
                {"config_operation": SET} | config for config in resource["configs"]
            ]
    flags = {"validate_only": False} | flags
    answer = harness.ask(api, api.versions[-1], resources=list(resources), **flags)
    assert rows(answer.responses, "resource_type", "resource_name") == [
        (resource["resource_type"], resource["resource_name"]) for resource in resources
    ]
    for response in answer.responses:
        assert bool(response.error_message) == (response.error_code != ErrorCode.NONE)
    return rows(answer.responses, "error_code")


@pytest.mark.parametrize("version", FULL.versions)
def test_alter_configs_replaces_all_settings_of_a_resource(
    harness: AdminApiHarness, version: int
) -> None:
    requested = resource(TOPIC, "orders", ("retention.ms", "5"), ("cleanup.policy", "compact"))
    answer = harness.ask(FULL, version, resources=[requested], validate_only=True)
    assert rows(answer.responses, "error_code", "error_message") == [(ErrorCode.NONE, None)]
    assert harness.controller.changed == [
        ConfigResourceChange(
            scope=ConfigScope.TOPIC,
            name="orders",
            changes=(
                ConfigEntryChange("retention.ms", ConfigOperation.SET, "5"),
                ConfigEntryChange("cleanup.policy", ConfigOperation.SET, "compact"),
            ),
            replace=True,
        )
    ]
    assert harness.controller.validate_only is True


@pytest.mark.parametrize("version", INCREMENTAL.versions)
def test_incremental_changes_keep_their_operations(harness: AdminApiHarness, version: int) -> None:
    requested = resource(BROKER, "")
    requested["configs"] = [
        {"name": "log.retention.ms", "config_operation": SET, "value": "5"},
        {"name": "log.segment.bytes", "config_operation": DELETE, "value": None},
        {"name": "log.cleanup.policy", "config_operation": APPEND, "value": "compact"},
        {"name": "compression.type", "config_operation": SUBTRACT, "value": "x"},
    ]
    answer = harness.ask(INCREMENTAL, version, resources=[requested], validate_only=False)
    assert rows(answer.responses, "error_code") == [ErrorCode.NONE]
    (change,) = harness.controller.changed
    assert (change.scope, change.name, change.replace) == (ConfigScope.BROKER, "", False)
    assert change.changes == (
        ConfigEntryChange("log.retention.ms", ConfigOperation.SET, "5"),
        ConfigEntryChange("log.segment.bytes", ConfigOperation.DELETE, None),
        ConfigEntryChange("log.cleanup.policy", ConfigOperation.APPEND, "compact"),
        ConfigEntryChange("compression.type", ConfigOperation.SUBTRACT, "x"),
    )
    assert harness.controller.validate_only is False


@BOTH
def test_a_broker_accepts_changes_of_its_own_settings(harness: AdminApiHarness, api: Any) -> None:
    assert alter(harness, api, resource(BROKER, "1", ("log.retention.ms", "5"))) == [ErrorCode.NONE]
    assert rows(harness.controller.changed, "scope", "name") == [(ConfigScope.BROKER, "1")]


@BOTH
@pytest.mark.parametrize("name", ["1", ""])
def test_an_unknown_setting_of_brokers_reaches_the_controller(
    harness: AdminApiHarness, api: Any, name: str
) -> None:
    requested = resource(BROKER, name, ("acme.color", "red"))
    assert alter(harness, api, requested) == [ErrorCode.NONE]
    (change,) = harness.controller.changed
    assert change.changes == (ConfigEntryChange("acme.color", ConfigOperation.SET, "red"),)


@BOTH
@pytest.mark.parametrize("name", ["2", "01", "one"])
def test_changes_of_another_broker_are_refused(
    harness: AdminApiHarness, api: Any, name: str
) -> None:
    requested = resource(BROKER, name, ("log.retention.ms", "5"))
    assert alter(harness, api, requested) == [ErrorCode.INVALID_REQUEST]
    assert not harness.controller.changed


@BOTH
def test_results_keep_the_order_of_resources(harness: AdminApiHarness, api: Any) -> None:
    harness.controller.refusals["b"] = ApiError(
        ErrorCode.INVALID_CONFIG, "retention.ms is no number"
    )
    codes = alter(
        harness,
        api,
        resource(TOPIC, "a", ("retention.ms", "5")),
        resource(99, "x"),
        resource(TOPIC, "b", ("retention.ms", "soon")),
        resource(BROKER, "2"),
        resource(TOPIC, "c", ("retention.ms", "6")),
    )
    assert codes == [
        ErrorCode.NONE,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_CONFIG,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NONE,
    ]
    assert rows(harness.controller.changed, "name") == ["a", "b", "c"]


@BOTH
def test_a_resource_named_twice_is_refused_both_times(harness: AdminApiHarness, api: Any) -> None:
    codes = alter(
        harness,
        api,
        resource(TOPIC, "a", ("retention.ms", "5")),
        resource(TOPIC, "b", ("retention.ms", "5")),
        resource(TOPIC, "a", ("retention.bytes", "5")),
    )
    assert codes == [ErrorCode.INVALID_REQUEST, ErrorCode.NONE, ErrorCode.INVALID_REQUEST]
    assert rows(harness.controller.changed, "name") == ["b"]


@BOTH
def test_a_setting_given_twice_is_refused(harness: AdminApiHarness, api: Any) -> None:
    requested = resource(TOPIC, "a", ("retention.ms", "5"), ("retention.ms", "6"))
    assert alter(harness, api, requested) == [ErrorCode.INVALID_REQUEST]
    assert not harness.controller.changed


@BOTH
def test_a_setting_needs_a_value(harness: AdminApiHarness, api: Any) -> None:
    requested = resource(TOPIC, "a", ("retention.ms", None))
    assert alter(harness, api, requested) == [ErrorCode.INVALID_REQUEST]


@pytest.mark.parametrize("operation", [-1, 4, 127])
def test_an_operation_that_does_not_exist_is_refused(
    harness: AdminApiHarness, operation: int
) -> None:
    requested = resource(TOPIC, "a", ("retention.ms", "5"))
    requested["configs"][0]["config_operation"] = operation
    assert alter(harness, INCREMENTAL, requested) == [ErrorCode.INVALID_REQUEST]


@BOTH
@pytest.mark.parametrize("kind", [CLIENT_METRICS, 0, 99])
def test_only_topics_and_brokers_have_settings_to_change(
    harness: AdminApiHarness, api: Any, kind: int
) -> None:
    assert alter(harness, api, resource(kind, "1", ("x", "y"))) == [ErrorCode.INVALID_REQUEST]


def test_levels_of_loggers_are_only_altered_incrementally(harness: AdminApiHarness) -> None:
    for api, code in (
        (INCREMENTAL, ErrorCode.INVALID_CONFIG),
        (FULL, ErrorCode.INVALID_REQUEST),
    ):
        requested = resource(LOGGER, "1", ("penstock.network", "LOUD"))
        assert alter(harness, api, requested) == [code]
    assert alter(harness, INCREMENTAL, resource(LOGGER, "2", ("root", "INFO"))) == [
        ErrorCode.INVALID_REQUEST
    ]


@BOTH
def test_a_topic_resource_needs_a_name(harness: AdminApiHarness, api: Any) -> None:
    assert alter(harness, api, resource(TOPIC, "", ("retention.ms", "5"))) == [
        ErrorCode.INVALID_REQUEST
    ]


@BOTH
def test_changes_need_permission(harness: AdminApiHarness, api: Any) -> None:
    harness.acl.forbid(AclOperation.ALTER_CONFIGS, ResourceType.CLUSTER, CLUSTER_NAME)
    harness.acl.forbid(AclOperation.ALTER_CONFIGS, ResourceType.TOPIC, "a")
    codes = alter(
        harness,
        api,
        resource(BROKER, "1", ("log.retention.ms", "5")),
        resource(BROKER, "", ("log.retention.ms", "5")),
        resource(LOGGER, "1", ("kafka", "DEBUG")),
        resource(TOPIC, "a", ("retention.ms", "5")),
        resource(TOPIC, "b", ("retention.ms", "5")),
    )
    assert codes == [
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.NONE,
    ]
    assert rows(harness.controller.changed, "name") == ["b"]


# Kafka's clients may set these while a broker runs.
@BOTH
@pytest.mark.parametrize(
    "setting",
    [
        "advertised.listeners",
        "cordoned.log.dirs",
        "listener.name.external.ssl.keystore.key",
        "listeners",
        "metric.reporters",
        "ssl.keystore.location",
        "ssl.keystore.password",
        "ssl.provider",
        "ssl.truststore.certificates",
    ],
)
def test_clients_may_not_set_files_classes_addresses_and_secrets(
    harness: AdminApiHarness, api: Any, setting: str
) -> None:
    requested = resource(BROKER, "1", ("log.retention.ms", "5"), (setting, "x"))
    (code,) = alter(harness, api, requested)
    is_read_only = BROKER_SETTINGS[setting.rpartition("external.")[2]].update == "read-only"
    assert code == (ErrorCode.INVALID_REQUEST if is_read_only else ErrorCode.POLICY_VIOLATION)
    assert not harness.controller.changed


@BOTH
def test_read_only_settings_cannot_be_changed(harness: AdminApiHarness, api: Any) -> None:
    assert alter(harness, api, resource(BROKER, "1", ("broker.id", "3"))) == [
        ErrorCode.INVALID_REQUEST
    ]
    assert not harness.controller.changed


def test_settings_that_clients_may_not_set_may_be_deleted(harness: AdminApiHarness) -> None:
    requested = resource(BROKER, "1", ("listeners", None))
    requested["configs"][0]["config_operation"] = DELETE
    assert alter(harness, INCREMENTAL, requested) == [ErrorCode.NONE]


def test_no_setting_that_clients_may_set_names_a_class_a_file_or_an_address() -> None:
    settings = [*BROKER_SETTINGS.values(), *TOPIC_SETTINGS.values()]
    allowed = [setting for setting in settings if is_alterable(setting)]
    assert {setting.kind for setting in allowed}.isdisjoint(
        {SettingKind.CLASS, SettingKind.PASSWORD}
    )
    texts = {
        setting.name
        for setting in allowed
        if setting.kind in (SettingKind.STRING, SettingKind.LIST)
    }
    # Review a new setting before adding it here: a client could set it to any text.
    assert texts <= {
        "cleanup.policy",
        "compression.type",
        "follower.replication.throttled.replicas",
        "leader.replication.throttled.replicas",
        "log.cleanup.policy",
        "log.message.timestamp.type",
        "max.connections.per.ip.overrides",
        "message.format.version",
        "message.timestamp.type",
        "penstock.half.groups",  # legal topic names
        "penstock.table.format",  # one of four values
        "penstock.table.partition.by",  # columns of the table
        "penstock.table.schema",  # the columns themselves, not a file that has them
        "penstock.table.value",  # one of four values
    }


def test_settings_of_a_group_reach_the_controller(harness: AdminApiHarness) -> None:
    setting = ("consumer.session.timeout.ms", "50000")
    codes = alter(harness, INCREMENTAL, resource(GROUP, "g", setting), resource(GROUP, "", setting))
    assert codes == [ErrorCode.NONE, ErrorCode.INVALID_REQUEST]
    assert harness.controller.changed == [
        ConfigResourceChange(
            scope=ConfigScope.GROUP,
            name="g",
            changes=(ConfigEntryChange(setting[0], ConfigOperation.SET, setting[1]),),
            replace=False,
        )
    ]
