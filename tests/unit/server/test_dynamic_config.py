"""A broker's effective config while it runs."""

from penstock.config.raw_config import RawConfig
from penstock.logs.event_logger import message_logger
from penstock.server.dynamic_config import DynamicBrokerConfig


def make(reports: list[str]) -> DynamicBrokerConfig:
    static = RawConfig.from_mapping({"log.retention.ms": "1000"}, where="test")
    return DynamicBrokerConfig(static, 3, message_logger(reports.append))


def test_the_config_of_this_broker_overrides_that_of_all_brokers() -> None:
    config = make([])
    changed = config.take_dynamic(
        {
            "": {"log.retention.ms": "2000", "log.segment.bytes": "9000000"},
            "3": {"log.retention.ms": "3000"},
            "4": {"log.segment.bytes": "1"},
        }
    )
    assert changed
    assert config()["log.retention.ms"] == 3000
    assert config()["log.segment.bytes"] == 9000000


def test_a_removed_dynamic_config_falls_back_to_the_static_one() -> None:
    config = make([])
    config.take_dynamic({"3": {"log.retention.ms": "3000"}})
    assert config.take_dynamic({})
    assert config()["log.retention.ms"] == 1000
    assert not config.take_dynamic({})


def test_an_invalid_stored_config_is_reported_and_changes_nothing() -> None:
    reports: list[str] = []
    config = make(reports)
    assert not config.take_dynamic({"": {"log.retention.ms": "soon"}})
    assert config()["log.retention.ms"] == 1000
    assert "log.retention.ms" in reports[0]


def test_a_custom_setting_is_reported_once_and_changes_nothing() -> None:
    reports: list[str] = []
    config = make(reports)
    stored = {"": {"acme.color": "red"}, "3": {"acme.color": "blue", "acme.secret": "sesame"}}
    assert not config.take_dynamic(stored)
    assert not config.take_dynamic(stored)
    assert config.take_dynamic({**stored, "": {"acme.color": "red", "log.retention.ms": "7"}})
    color, secret = reports
    assert "acme.color is stored but has no effect" in color
    assert "acme.secret is stored but has no effect" in secret
    assert "sesame" not in secret


def test_a_custom_setting_of_another_broker_is_not_reported() -> None:
    reports: list[str] = []
    make(reports).take_dynamic({"4": {"acme.color": "red"}})
    assert reports == []


def test_a_custom_setting_that_is_deleted_and_set_again_is_reported_again() -> None:
    reports: list[str] = []
    config = make(reports)
    for stored in ({"": {"acme.color": "red"}}, {}, {"": {"acme.color": "red"}}):
        config.take_dynamic(stored)
    assert len(reports) == 2
