"""Changes of log levels leave a line in the log, also the one that turns it down."""

import logging
from collections.abc import Iterator
from dataclasses import replace

import pytest
from tests.unit.apis.harness import ME, ApiHarness

from penstock.apis.admin import broker_loggers
from penstock.controller.interface import ConfigEntryChange
from penstock.logs.broker_loggers import ROOT, BrokerLoggers, write_to_stderr
from penstock.logs.logger_levels import list_levels
from penstock.model.admin import ConfigOperation
from penstock.model.errors import Refusal


@pytest.fixture(autouse=True)
def root_logger() -> Iterator[None]:
    root = logging.getLogger(ROOT)
    handlers, level, propagates = list(root.handlers), root.level, root.propagate
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    root.propagate = propagates


def test_lower_and_higher_levels_are_logged(
    harness: ApiHarness, capsys: pytest.CaptureFixture[str]
) -> None:
    write_to_stderr("text", "INFO")
    services = replace(harness.services, logger=BrokerLoggers().get("requests"))
    for level in ("ERROR", "INFO"):
        change = ConfigEntryChange("root", ConfigOperation.SET, level)
        broker_loggers.alter(str(ME), [change], services, validate_only=False)
        assert list_levels()["root"] == level
        (line,) = capsys.readouterr().err.splitlines()
        assert line.endswith(f'log_levels_changed loggers="root={level}"')


def test_the_refusal_of_another_brokers_loggers_names_that_broker_alone(
    harness: ApiHarness,
) -> None:
    """An empty name, which stands for all brokers elsewhere, is refused, too."""
    with pytest.raises(Refusal, match=f"send requests about broker {ME + 1} to that broker$"):
        broker_loggers.alter(str(ME + 1), [], harness.services, validate_only=False)
    with pytest.raises(Refusal, match="must not be empty"):
        broker_loggers.alter("", [], harness.services, validate_only=False)
