"""Groups of kafka-python."""

from __future__ import annotations

import pytest
from tests.clients.groups.stage import python_member
from tests.clients.groups.story import ClassicStory, GroupClient
from tests.clients.under_test import BrokerUnderTest

pytestmark = pytest.mark.xdist_group("groups-kafka-python")


class TestClassic(ClassicStory):
    @pytest.fixture
    def group_client(self, group_broker: BrokerUnderTest) -> GroupClient:
        command = python_member("kafka-python", group_broker.bootstrap_servers)
        return GroupClient(
            command, "classic", ("range", "roundrobin", "sticky", "cooperative-sticky")
        )
