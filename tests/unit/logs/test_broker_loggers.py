"""Events on the standard library's logging: levels, redirection, BROKER_LOGGER's names."""

import io
import json
import logging
from collections.abc import Iterator

import pytest

from penstock.logs.broker_loggers import (
    ROOT,
    BrokerLoggers,
    EventFormatter,
    write_to_stderr,
    write_to_stderr_by_default,
)
from penstock.logs.logger_levels import (
    ROOT_NAME,
    UnknownLevel,
    UnknownLogger,
    list_levels,
    reset_level,
    set_level,
)


@pytest.fixture(autouse=True)
def standard_loggers() -> Iterator[logging.Logger]:
    """The loggers belong to the process: leave them as they were."""
    root = logging.getLogger(ROOT)
    loggers = [root, *(logging.getLogger(name) for name in list_levels() if name != ROOT_NAME)]
    before = [(logger, logger.level) for logger in loggers]
    handlers, propagates = list(root.handlers), root.propagate
    yield root
    root.handlers[:], root.propagate = handlers, propagates
    for logger, level in before:
        logger.setLevel(level)


def test_a_broker_of_its_own_process_writes_json_lines_with_its_id(
    capsys: pytest.CaptureFixture[str],
) -> None:
    write_to_stderr("json", "INFO")
    loggers = BrokerLoggers()
    loggers.broker_id = 7
    loggers.get("controller").info("broker_left", "100% gone", id=2)
    loggers.get("controller").debug("not_this")
    (line,) = capsys.readouterr().err.splitlines()
    event = json.loads(line)
    assert (event["broker"], event["component"], event["event"]) == (7, "controller", "broker_left")
    assert (event["level"], event["message"], event["id"]) == ("INFO", "100% gone", 2)


def test_an_unknown_format_or_level_still_gives_lines(capsys: pytest.CaptureFixture[str]) -> None:
    write_to_stderr("xml", "LOUD")
    BrokerLoggers().get("server").error("start_refused", "xml is no format")
    assert "ERROR server start_refused: xml is no format" in capsys.readouterr().err


def test_an_embedding_program_redirects_the_events(
    capsys: pytest.CaptureFixture[str], standard_loggers: logging.Logger
) -> None:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(EventFormatter("json"))
    standard_loggers.handlers[:], standard_loggers.propagate = [handler], False
    write_to_stderr_by_default("text", "INFO")
    BrokerLoggers(4).get("storage").warning("log_cut", bytes=12)
    assert json.loads(stream.getvalue())["bytes"] == 12
    assert capsys.readouterr().err == ""


def test_a_closed_stderr_does_not_end_the_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    write_to_stderr("text", "INFO")
    stream = io.StringIO()
    monkeypatch.setattr("sys.stderr", stream)
    stream.close()
    with pytest.raises(ValueError, match="closed file"):
        stream.write("the line would raise")
    BrokerLoggers().get("server").info("started")


def test_levels_change_per_component_and_fall_back_to_the_roots(
    capsys: pytest.CaptureFixture[str],
) -> None:
    write_to_stderr("text", "WARN")
    controller, storage = BrokerLoggers().get("controller"), BrokerLoggers().get("storage")
    assert set(list_levels().values()) == {"WARN"}
    set_level("penstock.controller", "DEBUG")
    controller.debug("seen")
    storage.info("not_seen")
    set_level(ROOT_NAME, "INFO")
    storage.info("seen_now")
    reset_level("penstock.controller")
    controller.debug("hidden_again")
    assert list_levels()["penstock.controller"] == "INFO"
    events = [line.split()[-1] for line in capsys.readouterr().err.splitlines()]
    assert events == ["seen", "seen_now"]


def test_unknown_loggers_and_levels_are_refused() -> None:
    with pytest.raises(UnknownLogger, match=r"kafka\.server does not exist"):
        set_level("kafka.server", "INFO")
    with pytest.raises(UnknownLevel, match="not a supported log level"):
        set_level("penstock.server", "LOUD")
