"""The table of defaults in docs/differences.md has the defaults of the code."""

import inspect
import re
from pathlib import Path

import pytest

import penstock
from penstock.client.rdkafka import DEFAULT_METADATA_MAX_AGE_MS
from penstock.config.registry import BROKER_SETTINGS

PAGE = Path(__file__).parents[3] / "docs" / "differences.md"
SECTION = PAGE.read_text().partition("## Defaults")[2].partition("\n## ")[0]
ROWS = {
    cells[0].split("`")[1]: [cell.strip() for cell in cells[2:]]
    for line in SECTION.splitlines()
    if line.startswith("| `")
    for cells in [line.strip("| ").split(" | ")]
}
# Of librdkafka, which commits by its own default.
AUTO_COMMIT_INTERVAL_MS = 5_000


def default_of(client: type, name: str) -> str:
    value = inspect.signature(client).parameters[name].default
    return str(value).lower() if isinstance(value, bool) else str(value)


CLIENTS = {
    "acks": default_of(penstock.Producer, "acks"),
    "enable.idempotence": "true",
    "retries": default_of(penstock.Producer, "retries"),
    "delivery.timeout.ms": default_of(penstock.Producer, "delivery_timeout_ms"),
    "retry.backoff.ms": default_of(penstock.Producer, "retry_interval_ms"),
    "enable.auto.commit": default_of(penstock.Consumer, "auto_commit"),
    "auto.commit.interval.ms": str(AUTO_COMMIT_INTERVAL_MS),
    "metadata.max.age.ms": str(DEFAULT_METADATA_MAX_AGE_MS),
}


def value_of(cell: str) -> str:
    return re.split(r"[,:]", cell)[0]


def test_every_row_is_a_setting_of_brokers_or_of_clients() -> None:
    assert set(ROWS) - set(BROKER_SETTINGS) == set(CLIENTS)


@pytest.mark.parametrize("name", [name for name in ROWS if name in BROKER_SETTINGS])
def test_the_defaults_of_brokers_are_told_as_they_are(name: str) -> None:
    setting = BROKER_SETTINGS[name]
    kafka, penstocks = ROWS[name]
    assert value_of(penstocks) == setting.format(setting.default)
    if name != "replica.lag.max.messages":  # Kafka's is gone
        assert value_of(kafka) == setting.format(setting.default)


@pytest.mark.parametrize("name", list(CLIENTS))
def test_the_defaults_of_clients_are_told_as_they_are(name: str) -> None:
    assert value_of(ROWS[name][1]) == CLIENTS[name]
