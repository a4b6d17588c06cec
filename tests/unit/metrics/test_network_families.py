"""Every counter of the network is served: one that nobody can read might as well not count."""

from typing import Any

import pytest
from tests.unit.metrics.made_statistics import make_statistics

from penstock.metrics.exposition import render
from penstock.metrics.families import Dialect
from penstock.metrics.own_families import own_families
from penstock.metrics.statistics import BrokerStatistics
from penstock.network.statistics import Counters

COUNTED_BY_API = {"requests"}  # kafka_network_requestmetrics_requests_total


def text_of(statistics: BrokerStatistics) -> str:
    return b"".join(render(own_families(statistics), Dialect.A)).decode()


@pytest.mark.parametrize("name", sorted(set(Counters.__slots__) - COUNTED_BY_API))
def test_a_counter_of_the_network_is_served(name: str) -> None:
    statistics = make_statistics(())
    counted: dict[str, Any] = {name: 4321}
    network = statistics.network._replace(**counted)
    lines = text_of(statistics._replace(network=network)).splitlines()
    assert [line for line in lines if line.endswith(" 4321")] != []


def test_connections_that_wait_for_memory_are_served() -> None:
    statistics = make_statistics(())
    network = statistics.network._replace(waiting_for_memory=7)
    served = text_of(statistics._replace(network=network))
    assert "\npenstock_network_waiting_for_memory 7\n" in served
