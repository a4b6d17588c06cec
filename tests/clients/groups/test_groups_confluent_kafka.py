"""Groups of confluent-kafka (librdkafka), which assigns by itself or, newer, by the broker."""

from __future__ import annotations

import pytest
from tests.clients.groups.stage import python_member
from tests.clients.groups.story import ClassicStory, GroupClient, GroupStory
from tests.clients.under_test import BrokerUnderTest

pytestmark = pytest.mark.xdist_group("groups-confluent-kafka")

CLIENT = "confluent-kafka"


class TestClassic(ClassicStory):
    @pytest.fixture
    def group_client(self, group_broker: BrokerUnderTest) -> GroupClient:
        command = python_member(CLIENT, group_broker.bootstrap_servers)
        return GroupClient(command, "classic", ("range", "roundrobin", "cooperative-sticky"))


class TestConsumer(GroupStory):
    @pytest.fixture
    def group_client(self, group_broker: BrokerUnderTest) -> GroupClient:
        command = python_member(CLIENT, group_broker.bootstrap_servers)
        return GroupClient(command, "consumer")
