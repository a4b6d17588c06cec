"""Stored configs of topics that change nothing."""

from penstock.config.custom_settings import describe_inert_topics, inert_names


def test_topics_settings_without_effect_are_one_line() -> None:
    line = describe_inert_topics(
        {
            "a": {"preallocate": "true", "retention.ms": "5"},
            "b": {"preallocate": "true", "file.delete.delay.ms": "1"},
            "c": {},
        }
    )
    assert line is not None
    assert "2 settings of topics change nothing here: file.delete.delay.ms of 1 topics" in line
    assert "preallocate of 2 topics, such as a" in line


def test_settings_with_an_effect_are_not_named() -> None:
    assert describe_inert_topics({"a": {"retention.ms": "5", "unknown": "1"}}) is None
    assert inert_names(["log.retention.ms", "background.threads", "no.such"]) == {
        "background.threads"
    }
