"""Groups of kafka-python."""

from __future__ import annotations

import pytest
from tests.clients.groups.harness import python_member
from tests.clients.groups.scenarios import ClassicGroupScenarios, GroupClient
from tests.clients.under_test import BrokerUnderTest

pytestmark = pytest.mark.xdist_group("groups-kafka-python")


class TestClassic(ClassicGroupScenarios):
    @pytest.fixture
    def group_client(self, group_broker: BrokerUnderTest) -> GroupClient:
        command = python_member("kafka-python", group_broker.bootstrap_servers)
        return GroupClient(
            command, "classic", ("range", "roundrobin", "sticky", "cooperative-sticky")
        )
