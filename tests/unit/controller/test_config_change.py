"""Config changes: what is stored, what is refused and why."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

import pytest
from tests.unit.controller.cluster import code_of
from tests.unit.controller.states import alive, cluster_state, partition, topic

from penstock.config.custom_settings import MAX_CUSTOM_SETTINGS
from penstock.config.effective_config import resolve_broker
from penstock.config.raw_config import EMPTY_RAW_CONFIG, RawConfig
from penstock.controller.config_change import MAX_CONFIGURED_GROUPS, ConfigBasis, alter_configs
from penstock.controller.interface import (
    ApiError,
    ConfigEntryChange,
    ConfigResourceChange,
    ConfigScope,
)
from penstock.controller.state import ClusterState, ControllerDecision
from penstock.controller.znodes import group_of_config
from penstock.metadata_store.interface import Create, Delete, SetData
from penstock.model.admin import ConfigOperation
from penstock.model.cluster import BrokerId, UpdateMetadataRequest
from penstock.model.errors import ErrorCode

SET, DELETE, APPEND, SUBTRACT = ConfigOperation
STATE = cluster_state(
    alive(0, 1),
    topic("t", partition(0, (0,), (0,)), configs={"retention.ms": "5", "segment.bytes": "2000000"}),
    topic("__consumer_offsets", partition(0, (0,), (0,)), configs={"cleanup.policy": "compact"}),
)


def change(
    name: str, *changes: tuple[str, ConfigOperation, str | None], replace_all: bool = False
) -> ConfigResourceChange:
    """A change of a topic, or of a broker if the name is a number or empty."""
    scope = ConfigScope.BROKER if name.isdecimal() or not name else ConfigScope.TOPIC
    entries = tuple(ConfigEntryChange(*entry) for entry in changes)
    return ConfigResourceChange(scope=scope, name=name, changes=entries, replace=replace_all)


def alter(
    *changes: ConfigResourceChange,
    state: ClusterState = STATE,
    static: Mapping[str, str] | None = None,
) -> tuple[ControllerDecision, list[ApiError | None]]:
    static_config = RawConfig.from_mapping(static, where="file") if static else EMPTY_RAW_CONFIG
    return alter_configs(
        state,
        changes,
        ConfigBasis(static=static_config, broker_config=resolve_broker(static_config)),
    )


def topic_configs(*changes: ConfigResourceChange, state: ClusterState = STATE) -> Mapping[str, str]:
    decision, results = alter(*changes, state=state)
    assert results == [None] * len(changes)
    return decision.state.topics["t"].configs


class TestTopicConfigs:
    def test_are_set_and_others_stay(self) -> None:
        assert topic_configs(change("t", ("retention.ms", SET, "7"))) == {
            "retention.ms": "7",
            "segment.bytes": "2000000",
        }

    def test_are_deleted_even_if_not_set(self) -> None:
        changes = change("t", ("retention.ms", DELETE, None), ("flush.ms", DELETE, "x"))
        assert topic_configs(changes) == {"segment.bytes": "2000000"}

    def test_are_all_replaced_by_alter_configs(self) -> None:
        changes = change("t", ("flush.ms", SET, "7"), replace_all=True)
        assert topic_configs(changes) == {"flush.ms": "7"}

    def test_append_extends_the_effective_list(self) -> None:
        changes = change("t", ("cleanup.policy", APPEND, "compact,delete"))
        assert topic_configs(changes)["cleanup.policy"] == "delete,compact"

    def test_subtract_removes_from_the_list(self) -> None:
        both = replace(STATE.topics["t"], configs={"cleanup.policy": "compact, delete"})
        state = STATE.with_topics([both])
        changes = change("t", ("cleanup.policy", SUBTRACT, "delete"))
        assert topic_configs(changes, state=state)["cleanup.policy"] == "compact"

    def test_are_written_and_sent_to_every_broker(self) -> None:
        decision, _ = alter(change("t", ("retention.ms", SET, "7")))
        [[write]] = decision.writes
        assert isinstance(write, SetData)
        assert write.path == "/config/topics/t"
        assert json.loads(write.data)["config"]["retention.ms"] == "7"
        updates = [addressed.request for addressed in decision.requests]
        assert [addressed.broker for addressed in decision.requests] == [0, 1]
        for update in updates:
            assert isinstance(update, UpdateMetadataRequest)
            assert [topic.configs["retention.ms"] for topic in update.topics] == ["7"]


class TestBrokerConfigs:
    def test_are_stored_for_one_broker_or_for_all(self) -> None:
        decision, results = alter(
            change("", ("log.retention.ms", SET, "7")), change("1", ("log.retention.ms", SET, "8"))
        )
        assert results == [None, None]
        assert decision.state.broker_configs == {
            "": {"log.retention.ms": "7"},
            "1": {"log.retention.ms": "8"},
        }
        paths = [[create.path for create in step] for step in decision.writes]
        assert paths == [["/config/brokers/<default>"], ["/config/brokers/1"]]
        assert all(isinstance(create, Create) for step in decision.writes for create in step)
        last = decision.requests[-1].request
        assert isinstance(last, UpdateMetadataRequest)
        assert last.broker_configs == decision.state.broker_configs

    def test_are_overwritten_if_the_znode_exists(self) -> None:
        first, _ = alter(change("1", ("log.retention.ms", SET, "8")))
        decision, _ = alter(change("1", ("log.retention.ms", DELETE, None)), state=first.state)
        [[write]] = decision.writes
        assert isinstance(write, SetData)
        assert decision.state.broker_configs == {"1": {}}

    @pytest.mark.parametrize("broker", ["", "1"])
    def test_with_unknown_names_are_stored_and_deleted_like_others(self, broker: str) -> None:
        names = ("acme.color", "retention.ms", "log.retention.mz")
        first, results = alter(change(broker, *((name, SET, "not a number") for name in names)))
        assert results == [None]
        assert first.state.broker_configs == {broker: dict.fromkeys(names, "not a number")}
        [[write]] = first.writes
        assert isinstance(write, Create)
        assert json.loads(write.data)["config"] == first.state.broker_configs[broker]
        deletion = change(broker, *((name, DELETE, None) for name in names[:2]))
        decision, results = alter(deletion, state=first.state)
        assert results == [None]
        assert decision.state.broker_configs == {broker: {"log.retention.mz": "not a number"}}

    def test_with_unknown_names_are_bounded_in_number(self) -> None:
        names = [f"acme.{number}" for number in range(MAX_CUSTOM_SETTINGS)]
        full, results = alter(change("1", *((name, SET, "x") for name in names)))
        assert results == [None]
        one_more = change("1", ("acme.more", SET, "x"))
        _, [refused] = alter(one_more, state=full.state)
        assert isinstance(refused, ApiError)
        assert refused.code is ErrorCode.POLICY_VIOLATION
        assert f"{MAX_CUSTOM_SETTINGS} is the limit; delete some" in refused.message
        for accepted in (
            change("1", ("acme.0", DELETE, None), ("acme.more", SET, "x")),
            change("1", ("acme.0", SET, "y"), ("log.retention.ms", SET, "5")),
            change("", ("acme.more", SET, "x")),
            change("1", ("acme.more", SET, "x"), replace_all=True),
        ):
            assert alter(accepted, state=full.state)[1] == [None]


def group_change(
    name: str, *changes: tuple[str, ConfigOperation, str | None], replace_all: bool = False
) -> ConfigResourceChange:
    entries = tuple(ConfigEntryChange(*entry) for entry in changes)
    return ConfigResourceChange(
        scope=ConfigScope.GROUP, name=name, changes=entries, replace=replace_all
    )


class TestGroupConfigs:
    def test_are_stored_under_a_quoted_name_and_sent_to_every_broker(self) -> None:
        change = group_change("a/b.c", ("consumer.session.timeout.ms", SET, "50000"))
        decision, results = alter(change)
        assert results == [None]
        [[write]] = decision.writes
        assert isinstance(write, Create)
        assert write.path == "/config/groups/a%2Fb%2Ec"
        assert group_of_config("a%2Fb%2Ec") == "a/b.c"
        expected = {"a/b.c": {"consumer.session.timeout.ms": "50000"}}
        assert decision.state.group_configs == expected
        updates = [addressed.request for addressed in decision.requests]
        assert len(updates) == 2
        for update in updates:
            assert isinstance(update, UpdateMetadataRequest)
            assert update.group_configs == expected

    def test_are_deleted_with_their_znode(self) -> None:
        first, _ = alter(group_change("g", ("consumer.session.timeout.ms", SET, "50000")))
        change = group_change("g", ("consumer.session.timeout.ms", DELETE, None))
        decision, results = alter(change, state=first.state)
        assert results == [None]
        assert decision.state.group_configs == {}
        assert decision.writes == ((Delete(path="/config/groups/g"),),)
        again, _ = alter(change, state=decision.state)
        assert again.writes == ()

    @pytest.mark.parametrize(
        ("name", "setting", "value", "code"),
        [
            ("", "consumer.session.timeout.ms", "50000", ErrorCode.INVALID_REQUEST),
            ("g", "consumer.session.timeout.ms", "1", ErrorCode.INVALID_CONFIG),
            ("g", "consumer.session.timeout.ms", "60001", ErrorCode.INVALID_CONFIG),
            ("g", "consumer.session.timeout.ms", "soon", ErrorCode.INVALID_CONFIG),
            ("g", "consumer.heartbeat.interval.ms", "4999", ErrorCode.INVALID_CONFIG),
            ("g", "share.record.lock.duration.ms", "30000", ErrorCode.INVALID_CONFIG),
        ],
    )
    def test_outside_the_brokers_bounds_are_refused(
        self, name: str, setting: str, value: str, code: ErrorCode
    ) -> None:
        decision, results = alter(group_change(name, (setting, SET, value)))
        assert (list(map(code_of, results)), decision.writes) == ([code], ())

    def test_of_more_groups_than_the_limit_are_refused(self) -> None:
        configs = {"consumer.session.timeout.ms": "50000"}
        full = {str(number): configs for number in range(MAX_CONFIGURED_GROUPS)}
        state = replace(STATE, group_configs=full)
        one_more = group_change("g", ("consumer.session.timeout.ms", SET, "50000"))
        _, results = alter(one_more, state=state)
        assert list(map(code_of, results)) == [ErrorCode.POLICY_VIOLATION]


@pytest.mark.parametrize(
    ("requested", "code", "words"),
    [
        (
            change("t", ("retention.mss", SET, "7")),
            ErrorCode.INVALID_CONFIG,
            "did you mean retention.ms",
        ),
        (change("t", ("retention.ms", SET, "x")), ErrorCode.INVALID_CONFIG, "'x' is not valid"),
        (change("t", ("retention.ms", SET, None)), ErrorCode.INVALID_REQUEST, "no value"),
        (change("t", ("cleanup.policy", APPEND, None)), ErrorCode.INVALID_REQUEST, "no value"),
        (change("t", ("retention.ms", APPEND, "1")), ErrorCode.INVALID_CONFIG, "not a list"),
        (change("t", ("retention.ms", SUBTRACT, "1")), ErrorCode.INVALID_CONFIG, "not a list"),
        (change("t", ("nothing", APPEND, "1")), ErrorCode.INVALID_CONFIG, "not known"),
        (change("t", ("cleanup.policy", APPEND, "burn")), ErrorCode.INVALID_CONFIG, "burn"),
        (
            change("t", ("retention.ms", SET, "1"), ("retention.ms", DELETE, None)),
            ErrorCode.INVALID_REQUEST,
            "more than once",
        ),
        (change("u", ("retention.ms", SET, "1")), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "'u'"),
        (
            ConfigResourceChange(scope=ConfigScope.TOPIC, name="", changes=()),
            ErrorCode.INVALID_REQUEST,
            "no common config",
        ),
        (change("9", ("log.retention.ms", SET, "1")), ErrorCode.INVALID_REQUEST, "[0, 1]"),
        (
            ConfigResourceChange(scope=ConfigScope.BROKER, name="one", changes=()),
            ErrorCode.INVALID_REQUEST,
            "'one' is not the id",
        ),
        (change("0", ("broker.id", SET, "3")), ErrorCode.INVALID_CONFIG, "read-only"),
        (change("", ("ssl.provider", SET, "x")), ErrorCode.INVALID_CONFIG, "per broker"),
        (change("0", ("two words", SET, "3")), ErrorCode.INVALID_CONFIG, "no spaces"),
        (change("", ("x" * 300, SET, "3")), ErrorCode.INVALID_CONFIG, "300 characters"),
        (change("0", ("acme.list", APPEND, "3")), ErrorCode.INVALID_CONFIG, "not known"),
        (change("0", ("process.roles", SET, "broker")), ErrorCode.INVALID_CONFIG, "KRaft"),
        (change("0", ("ssl.key.password", SET, "top")), ErrorCode.INVALID_CONFIG, "secret"),
        (
            change("__consumer_offsets", ("cleanup.policy", SET, "delete")),
            ErrorCode.INVALID_CONFIG,
            "must be compact",
        ),
        (
            change("t", ("leader.replication.throttled.replicas", SET, "0:1" + ",0:1" * 100_000)),
            ErrorCode.INVALID_CONFIG,
            "fit in the metadata store",
        ),
    ],
)
def test_an_invalid_change_is_refused_as_a_whole(
    requested: ConfigResourceChange, code: ErrorCode, words: str
) -> None:
    decision, [answer] = alter(requested)
    assert isinstance(answer, ApiError)
    assert answer.code is code
    assert words in answer.message
    assert "top" not in answer.message.split()
    assert decision == ControllerDecision(state=STATE)


def test_error_messages_are_truncated() -> None:
    _, [answer] = alter(change("t", ("retention.ms", SET, "x" * 100_000)))
    assert isinstance(answer, ApiError)
    assert len(answer.message) < 1010
    assert "retention.ms" in answer.message


def test_an_invalid_config_refuses_only_its_resource() -> None:
    bad = change("t", ("retention.ms", SET, "7"), ("segment.bytes", SET, "many"))
    good = change("0", ("log.retention.ms", SET, "7"))
    decision, results = alter(bad, good)
    assert [code_of(answer) for answer in results] == [ErrorCode.INVALID_CONFIG, ErrorCode.NONE]
    assert decision.state.topics == STATE.topics
    assert decision.state.broker_configs == {"0": {"log.retention.ms": "7"}}


def test_a_resource_named_twice_is_refused_both_times() -> None:
    requested = change("t", ("retention.ms", SET, "7"))
    _, results = alter(requested, requested)
    assert [code_of(answer) for answer in results] == [ErrorCode.INVALID_REQUEST] * 2


def test_configs_of_a_topic_being_deleted_cannot_be_changed() -> None:
    state = replace(STATE, deleting={"t": frozenset((BrokerId(0),))})
    _, results = alter(change("t", ("retention.ms", SET, "7")), state=state)
    assert [code_of(answer) for answer in results] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


def test_a_change_that_contradicts_the_static_config_is_refused() -> None:
    requested = change(
        "t", ("min.compaction.lag.ms", SET, "9"), ("max.compaction.lag.ms", SET, "8")
    )
    _, [answer] = alter(requested)
    assert code_of(answer) is ErrorCode.INVALID_CONFIG
