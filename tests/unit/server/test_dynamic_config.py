"""A broker's settings while it runs."""

from penstock.config.raw_config import RawConfig
from penstock.server.dynamic_config import DynamicBrokerConfig


def make(reports: list[str]) -> DynamicBrokerConfig:
    static = RawConfig.from_mapping({"log.retention.ms": "1000"}, where="test")
    return DynamicBrokerConfig(static, 3, reports.append)


def test_what_is_stored_for_every_broker_and_for_this_one_counts_in_that_order() -> None:
    settings = make([])
    changed = settings.take_dynamic(
        {
            "": {"log.retention.ms": "2000", "log.segment.bytes": "9000000"},
            "3": {"log.retention.ms": "3000"},
            "4": {"log.segment.bytes": "1"},
        }
    )
    assert changed
    assert settings()["log.retention.ms"] == 3000
    assert settings()["log.segment.bytes"] == 9000000


def test_what_is_taken_away_again_is_the_file_s_value() -> None:
    settings = make([])
    settings.take_dynamic({"3": {"log.retention.ms": "3000"}})
    assert settings.take_dynamic({})
    assert settings()["log.retention.ms"] == 1000
    assert not settings.take_dynamic({})


def test_stored_settings_that_cannot_be_used_change_nothing_and_are_reported() -> None:
    reports: list[str] = []
    settings = make(reports)
    assert not settings.take_dynamic({"": {"log.retention.ms": "soon"}})
    assert settings()["log.retention.ms"] == 1000
    assert "log.retention.ms" in reports[0]
