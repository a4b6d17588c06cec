"""Groups of aiokafka."""

from __future__ import annotations

import pytest
from tests.clients.groups.harness import python_member
from tests.clients.groups.scenarios import ClassicGroupScenarios, GroupClient
from tests.clients.under_test import BrokerUnderTest

pytestmark = pytest.mark.xdist_group("groups-aiokafka")


class TestClassic(ClassicGroupScenarios):
    @pytest.fixture
    def group_client(self, group_broker: BrokerUnderTest) -> GroupClient:
        command = python_member("aiokafka", group_broker.bootstrap_servers)
        return GroupClient(command, "classic", ("range", "roundrobin", "sticky"))
