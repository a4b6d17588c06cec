"""Groups of confluent-kafka (librdkafka), with client-side and server-side assignors."""

from __future__ import annotations

import pytest
from tests.clients.groups.harness import python_member
from tests.clients.groups.scenarios import ClassicGroupScenarios, GroupClient, GroupScenarios
from tests.clients.under_test import BrokerUnderTest

pytestmark = pytest.mark.xdist_group("groups-confluent-kafka")

CLIENT = "confluent-kafka"


class TestClassic(ClassicGroupScenarios):
    @pytest.fixture
    def group_client(self, group_broker: BrokerUnderTest) -> GroupClient:
        command = python_member(CLIENT, group_broker.bootstrap_servers)
        return GroupClient(command, "classic", ("range", "roundrobin", "cooperative-sticky"))


class TestConsumer(GroupScenarios):
    @pytest.fixture
    def group_client(self, group_broker: BrokerUnderTest) -> GroupClient:
        command = python_member(CLIENT, group_broker.bootstrap_servers)
        return GroupClient(command, "consumer")
