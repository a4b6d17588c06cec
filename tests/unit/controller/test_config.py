"""The controller's settings."""

from penstock.config.effective_config import resolve_broker
from penstock.config.raw_config import EMPTY_RAW_CONFIG
from penstock.controller.config import ControllerConfig


def test_defaults_are_those_of_the_declared_settings() -> None:
    assert ControllerConfig.from_broker(resolve_broker(EMPTY_RAW_CONFIG)) == ControllerConfig()
