"""Brokers for the sink without Spark: one with two-phase commit, one without, like Kafka."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.unit.spark.sink.exactly_once.sink_process import Work
from tests.unit.spark.sink.exactly_once.sink_state import work_on

import penstock


@pytest.fixture(scope="session", name="broker")
def _broker() -> Iterator[penstock.Broker]:
    config = {
        "transaction.state.log.num.partitions": 2,
        "offsets.topic.num.partitions": 2,
    }
    with penstock.Broker(config=config) as broker:
        yield broker


@pytest.fixture(name="work")
def _work(broker: penstock.Broker) -> Work:
    return work_on(broker)


@pytest.fixture(scope="session", name="plain_broker")
def _plain_broker() -> Iterator[penstock.Broker]:
    """A broker without two-phase commit, like Kafka."""
    config = {
        "transaction.two.phase.commit.enable": "false",
        "transaction.state.log.num.partitions": 2,
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": 100,
    }
    with penstock.Broker(config=config) as broker:
        yield broker
