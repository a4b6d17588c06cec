"""DescribeConfigs: effective values, their sources, and what is hidden."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.unit.apis.admin.harness import AdminApiHarness, rows, topic_state

from penstock.apis.admin.describe_configs import API
from penstock.config.registry import BROKER_SETTINGS, TOPIC_SETTINGS
from penstock.model.errors import ErrorCode
from penstock.security.authorizer import CLUSTER_NAME, AclOperation, ResourceType

LAST = API.versions[-1]
TOPIC, BROKER, LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
OWN, DYNAMIC_BROKER, DYNAMIC_CLUSTER, STATIC, DEFAULT = 1, 2, 3, 4, 5


def resource(kind: int, name: str, *keys: str) -> dict[str, Any]:
    wanted = list(keys) if keys else None
    return {"resource_type": kind, "resource_name": name, "configuration_keys": wanted}


def describe(
    harness: AdminApiHarness, kind: int, name: str, *keys: str, version: int = LAST, **flags: bool
) -> Any:
    flags = {"include_synonyms": True} | flags
    answer = harness.ask(API, version, resources=[resource(kind, name, *keys)], **flags)
    (result,) = answer.results
    assert (result.resource_type, result.resource_name) == (kind, name)
    return result


def entry(harness: AdminApiHarness, kind: int, name: str, key: str) -> Any:
    result = describe(harness, kind, name, key)
    assert result.error_code == ErrorCode.NONE, result.error_message
    (actual,) = result.configs
    return actual


def synonyms(actual: Any) -> list[tuple[str, str | None, int]]:
    return rows(actual.synonyms, "name", "value", "source")


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[AdminApiHarness]:
    given = {
        "log.segment.bytes": "2000000",
        "log.retention.hours": "48",
        "ssl.keystore.password": "sesame, open",
        "listener.name.plaintext.ssl.keystore.password": "sesame too",
    }
    made = AdminApiHarness(log_dirs=(tmp_path / "logs",), given=given)
    made.update(topic_state("plain"))
    made.update(topic_state("own", configs={"segment.bytes": "1000000", "retention.ms": "5000"}))
    yield made
    made.close()


class TestTopic:
    @pytest.mark.parametrize("version", API.versions)
    def test_all_settings_are_returned(self, harness: AdminApiHarness, version: int) -> None:
        result = describe(harness, TOPIC, "plain", version=version)
        assert (result.error_code, result.error_message) == (ErrorCode.NONE, None)
        assert set(rows(result.configs, "name")) == TOPIC_SETTINGS.keys()
        assert not any(rows(result.configs, "read_only"))
        assert not any(rows(result.configs, "is_sensitive"))

    @pytest.mark.parametrize("version", API.versions)
    def test_a_topics_own_value_comes_before_the_brokers(
        self, harness: AdminApiHarness, version: int
    ) -> None:
        (actual,) = describe(harness, TOPIC, "own", "segment.bytes", version=version).configs
        assert (actual.value, actual.config_source) == ("1000000", OWN)
        assert synonyms(actual) == [
            ("segment.bytes", "1000000", OWN),
            ("log.segment.bytes", "2000000", STATIC),
            ("log.segment.bytes", "1073741824", DEFAULT),
        ]

    def test_the_brokers_value_applies_without_an_override(self, harness: AdminApiHarness) -> None:
        actual = entry(harness, TOPIC, "plain", "segment.bytes")
        assert (actual.value, actual.config_source) == ("2000000", STATIC)

    def test_a_value_in_another_unit_keeps_its_source(self, harness: AdminApiHarness) -> None:
        actual = entry(harness, TOPIC, "plain", "retention.ms")
        assert (actual.value, actual.config_source) == (str(48 * 3_600_000), STATIC)
        assert synonyms(actual) == [
            ("log.retention.hours", "48", STATIC),
            ("log.retention.hours", "168", DEFAULT),
        ]

    def test_dynamic_settings_override_static_ones(self, harness: AdminApiHarness) -> None:
        harness.update(
            broker_configs={
                "": {"log.segment.bytes": "3000000"},
                "1": {"log.segment.bytes": "4000000"},
                "2": {"log.segment.bytes": "5000000"},
            }
        )
        actual = entry(harness, TOPIC, "plain", "segment.bytes")
        assert (actual.value, actual.config_source) == ("4000000", DYNAMIC_BROKER)
        assert synonyms(actual) == [
            ("log.segment.bytes", "4000000", DYNAMIC_BROKER),
            ("log.segment.bytes", "3000000", DYNAMIC_CLUSTER),
            ("log.segment.bytes", "2000000", STATIC),
            ("log.segment.bytes", "1073741824", DEFAULT),
        ]

    @pytest.mark.parametrize("name", ["plain", "own"])
    def test_the_source_is_that_of_the_first_synonym(
        self, harness: AdminApiHarness, name: str
    ) -> None:
        harness.update(broker_configs={"": {"log.retention.ms": "9000"}, "1": {}})
        for actual in describe(harness, TOPIC, name).configs:
            first = actual.synonyms[0].source if actual.synonyms else DEFAULT
            assert actual.config_source == first, actual.name

    def test_topics_of_one_request_have_their_own_values(self, harness: AdminApiHarness) -> None:
        harness.update(
            topic_state("twin", configs={"segment.bytes": "7000", "retention.ms": "8000"})
        )
        names = ("plain", "own", "twin", "plain")
        requested = [resource(TOPIC, name, "segment.bytes") for name in names]
        results = harness.ask(API, LAST, resources=requested).results
        assert [result.configs[0].value for result in results] == ["2000000", "1000000", "7000"]

    def test_resources_of_one_request_have_their_own_keys(self, harness: AdminApiHarness) -> None:
        requested = [resource(TOPIC, "own", key) for key in ("segment.bytes", "retention.ms")]
        results = harness.ask(API, LAST, resources=requested).results
        assert [rows(result.configs, "name") for result in results] == [
            ["segment.bytes"],
            ["retention.ms"],
        ]

    def test_synonyms_are_returned_on_request_only(self, harness: AdminApiHarness) -> None:
        result = describe(harness, TOPIC, "own", include_synonyms=False)
        assert all(row == () for row in rows(result.configs, "synonyms"))

    def test_documentation_is_returned_on_request_only(self, harness: AdminApiHarness) -> None:
        returned = describe(harness, TOPIC, "own", include_documentation=True)
        untold = describe(harness, TOPIC, "own", include_documentation=False)
        assert all(rows(returned.configs, "documentation"))
        assert not any(rows(untold.configs, "documentation"))

    def test_documentation_says_what_has_no_effect(self, harness: AdminApiHarness) -> None:
        returned = describe(
            harness, TOPIC, "own", "remote.storage.enable", include_documentation=True
        )
        assert "no effect" in returned.configs[0].documentation

    @pytest.mark.parametrize(
        ("key", "code"),
        [
            ("preallocate", 1),
            ("compression.type", 2),
            ("segment.bytes", 3),
            ("retention.ms", 5),
            ("min.cleanable.dirty.ratio", 6),
            ("cleanup.policy", 7),
        ],
    )
    def test_types_have_kafkas_codes(self, harness: AdminApiHarness, key: str, code: int) -> None:
        assert entry(harness, TOPIC, "plain", key).config_type == code

    def test_unknown_keys_are_ignored(self, harness: AdminApiHarness) -> None:
        result = describe(harness, TOPIC, "plain", "retention.ms", "no.such.setting")
        assert rows(result.configs, "name") == ["retention.ms"]

    def test_an_empty_list_of_keys_means_all(self, harness: AdminApiHarness) -> None:
        requested = resource(TOPIC, "plain") | {"configuration_keys": []}
        (result,) = harness.ask(API, LAST, resources=[requested]).results
        assert len(result.configs) == len(TOPIC_SETTINGS)

    @pytest.mark.parametrize(
        ("name", "code"),
        [
            ("nowhere", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            ("no/where", ErrorCode.INVALID_TOPIC_EXCEPTION),
            ("", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ],
    )
    def test_an_absent_topic_is_refused(
        self, harness: AdminApiHarness, name: str, code: ErrorCode
    ) -> None:
        result = describe(harness, TOPIC, name)
        assert (result.error_code, result.configs) == (code, ())
        assert result.error_message

    def test_stored_settings_that_became_invalid_are_named(self, harness: AdminApiHarness) -> None:
        harness.update(topic_state("broken", configs={"retention.ms": "soon"}))
        result = describe(harness, TOPIC, "broken")
        assert result.error_code == ErrorCode.INVALID_CONFIG
        assert "retention.ms" in result.error_message

    def test_permission_comes_before_existence(self, harness: AdminApiHarness) -> None:
        for name in ("plain", "nowhere"):
            harness.acl.forbid(AclOperation.DESCRIBE_CONFIGS, ResourceType.TOPIC, name)
            result = describe(harness, TOPIC, name)
            assert (result.error_code, result.configs) == (
                ErrorCode.TOPIC_AUTHORIZATION_FAILED,
                (),
            )


class TestBroker:
    @pytest.mark.parametrize("version", API.versions)
    def test_all_settings_are_returned(self, harness: AdminApiHarness, version: int) -> None:
        result = describe(harness, BROKER, "1", version=version)
        assert result.error_code == ErrorCode.NONE
        names = set(rows(result.configs, "name"))
        assert names == {*BROKER_SETTINGS, "listener.name.plaintext.ssl.keystore.password"}

    def test_a_generated_broker_id_is_returned(self, tmp_path: Path) -> None:
        harness = AdminApiHarness(log_dirs=(tmp_path / "unnumbered",), given={"broker.id": "-1"})
        assert entry(harness, BROKER, "1", "broker.id").value == "1"
        harness.close()

    def test_no_secret_is_returned(self, harness: AdminApiHarness) -> None:
        result = describe(harness, BROKER, "1", include_documentation=True)
        assert "sesame" not in " ".join(
            str(value)
            for actual in result.configs
            for value in (actual.value, *rows(actual.synonyms, "value"))
        )
        secrets = {actual.name for actual in result.configs if actual.is_sensitive}
        assert "listener.name.plaintext.ssl.keystore.password" in secrets
        assert {name for name, setting in BROKER_SETTINGS.items() if setting.sensitive} < secrets

    def test_a_secret_that_was_set_shows_as_set(self, harness: AdminApiHarness) -> None:
        actual = entry(harness, BROKER, "1", "ssl.keystore.password")
        assert (actual.value, actual.is_sensitive, actual.config_source) == (None, True, STATIC)
        assert synonyms(actual) == [("ssl.keystore.password", None, STATIC)]

    def test_a_listeners_setting_comes_before_the_general_one(
        self, harness: AdminApiHarness
    ) -> None:
        name = "listener.name.plaintext.ssl.keystore.password"
        assert rows(entry(harness, BROKER, "1", name).synonyms, "name", "source") == [
            (name, STATIC),
            ("ssl.keystore.password", STATIC),
        ]

    def test_dynamic_settings_are_not_read_only(self, harness: AdminApiHarness) -> None:
        assert not entry(harness, BROKER, "1", "log.retention.ms").read_only
        assert entry(harness, BROKER, "1", "broker.id").read_only
        assert entry(harness, BROKER, "1", "ssl.keystore.location").read_only

    def test_a_setting_that_was_never_given_has_no_value(self, harness: AdminApiHarness) -> None:
        actual = entry(harness, BROKER, "1", "ssl.keystore.location")
        assert (actual.value, actual.config_source, actual.synonyms) == (None, DEFAULT, ())

    @pytest.mark.parametrize("name", ["2", "-1", "one", "99999999999"])
    def test_another_brokers_settings_are_not_returned(
        self, harness: AdminApiHarness, name: str
    ) -> None:
        result = describe(harness, BROKER, name)
        assert (result.error_code, result.configs) == (ErrorCode.INVALID_REQUEST, ())

    def test_describing_a_broker_needs_permission_on_the_cluster(
        self, harness: AdminApiHarness
    ) -> None:
        harness.acl.forbid(AclOperation.DESCRIBE_CONFIGS, ResourceType.CLUSTER, CLUSTER_NAME)
        for kind in (BROKER, LOGGER, CLIENT_METRICS):
            for name in ("1", "2", ""):
                result = describe(harness, kind, name)
                assert result.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


class TestAllBrokers:
    def test_only_cluster_wide_settings_are_returned(self, harness: AdminApiHarness) -> None:
        harness.update(
            broker_configs={
                "": {"log.segment.bytes": "3000000", "log.retention.ms": "7000"},
                "1": {"log.segment.bytes": "4000000"},
            }
        )
        result = describe(harness, BROKER, "", "log.segment.bytes")
        assert rows(result.configs, "name", "value", "config_source") == [
            ("log.segment.bytes", "3000000", DYNAMIC_CLUSTER)
        ]
        assert synonyms(result.configs[0]) == [("log.segment.bytes", "3000000", DYNAMIC_CLUSTER)]
        assert len(describe(harness, BROKER, "").configs) == 2

    def test_nothing_is_returned_if_nothing_was_set(self, harness: AdminApiHarness) -> None:
        result = describe(harness, BROKER, "")
        assert (result.error_code, result.configs) == (ErrorCode.NONE, ())


CUSTOM = {"": {"acme.color": "red", "acme.key": "sesame"}, "1": {"acme.color": "blue"}}


class TestCustomSettings:
    @pytest.mark.parametrize("version", API.versions)
    def test_of_a_broker_are_dynamic_and_hidden(
        self, harness: AdminApiHarness, version: int
    ) -> None:
        harness.update(broker_configs=CUSTOM)
        result = describe(harness, BROKER, "1", version=version)
        custom = [actual for actual in result.configs if actual.name.startswith("acme.")]
        fields = ("name", "value", "config_source", "is_sensitive", "read_only")
        assert rows(custom, *fields) == [
            ("acme.color", None, DYNAMIC_BROKER, True, True),
            ("acme.key", None, DYNAMIC_CLUSTER, True, True),
        ]
        assert synonyms(custom[0]) == [
            ("acme.color", None, DYNAMIC_BROKER),
            ("acme.color", None, DYNAMIC_CLUSTER),
        ]

    def test_have_an_unknown_type_and_say_that_they_have_no_effect(
        self, harness: AdminApiHarness
    ) -> None:
        harness.update(broker_configs=CUSTOM)
        for broker in ("1", ""):
            result = describe(harness, BROKER, broker, "acme.key", include_documentation=True)
            (actual,) = result.configs
            assert actual.config_type == 0
            assert "no effect" in actual.documentation

    def test_of_all_brokers_are_described_with_the_cluster_defaults(
        self, harness: AdminApiHarness
    ) -> None:
        stored = {"": {"log.retention.ms": "7000", **CUSTOM[""]}, "1": CUSTOM["1"]}
        harness.update(broker_configs=stored)
        result = describe(harness, BROKER, "")
        assert rows(result.configs, "name", "value", "config_source", "is_sensitive") == [
            ("log.retention.ms", "7000", DYNAMIC_CLUSTER, False),
            ("acme.color", None, DYNAMIC_CLUSTER, True),
            ("acme.key", None, DYNAMIC_CLUSTER, True),
        ]

    def test_of_another_broker_are_not_described(self, harness: AdminApiHarness) -> None:
        harness.update(broker_configs={"2": {"acme.color": "red"}})
        assert describe(harness, BROKER, "1", "acme.color").configs == ()


class TestOtherResources:
    def test_the_levels_of_this_brokers_loggers_are_dynamic_and_can_be_changed(
        self, harness: AdminApiHarness
    ) -> None:
        result = describe(harness, LOGGER, "1", "penstock.network")
        assert result.error_code == ErrorCode.NONE
        (level,) = result.configs
        assert (level.name, level.config_source, level.read_only) == ("penstock.network", 6, False)
        names = {entry.name for entry in describe(harness, LOGGER, "1").configs}
        assert {"root", "penstock.controller", "penstock.network"} <= names

    @pytest.mark.parametrize("name", ["", "2"])
    def test_loggers_of_another_broker_are_refused(
        self, harness: AdminApiHarness, name: str
    ) -> None:
        assert describe(harness, LOGGER, name).error_code == ErrorCode.INVALID_REQUEST

    @pytest.mark.parametrize("kind", [CLIENT_METRICS, 0, 3, -1, 127])
    def test_other_resources_have_no_settings_here(
        self, harness: AdminApiHarness, kind: int
    ) -> None:
        result = describe(harness, kind, "x")
        assert (result.error_code, result.configs) == (ErrorCode.INVALID_REQUEST, ())

    def test_describing_a_group_needs_permission_on_it(self, harness: AdminApiHarness) -> None:
        harness.acl.forbid(AclOperation.DESCRIBE_CONFIGS, ResourceType.GROUP, "g")
        assert describe(harness, GROUP, "g").error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED

    def test_one_bad_resource_does_not_spoil_the_others(self, harness: AdminApiHarness) -> None:
        requested = [resource(TOPIC, "nowhere"), resource(99, "x"), resource(TOPIC, "plain")]
        answer = harness.ask(API, LAST, resources=requested)
        assert rows(answer.results, "error_code") == [
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.INVALID_REQUEST,
            ErrorCode.NONE,
        ]

    def test_a_resource_named_a_thousand_times_is_returned_once(
        self, harness: AdminApiHarness
    ) -> None:
        answer = harness.ask(API, LAST, resources=[resource(BROKER, "1")] * 1000)
        assert len(answer.results) == 1
