"""Groups of the Java client: both protocols of the newest version, the classic one of 3.9."""

from __future__ import annotations

import pytest
from tests.clients.groups.java_members import java_member, resolve_java_members
from tests.clients.groups.scenarios import (
    ClassicGroupScenarios,
    CoreGroupScenarios,
    GroupClient,
    GroupScenarios,
)
from tests.clients.under_test import BrokerUnderTest
from tests.interop.kafka_jars import KafkaUnavailableError, Say
from tests.profile import is_long

pytestmark = pytest.mark.xdist_group("groups-java")

NEWEST, OLDER = "4.4.0", "3.9.2"
ASSIGNORS = ("range", "roundrobin", "sticky", "cooperative-sticky")


def make_client(version: str, protocol: str, broker: BrokerUnderTest, say: Say) -> GroupClient:
    try:
        clients = resolve_java_members(version, say)
    except KafkaUnavailableError as error:
        pytest.skip(f"skipped: {error}")
    assignors = ASSIGNORS if protocol == "classic" else ()
    return GroupClient(java_member(clients, broker.bootstrap_servers), protocol, assignors)


@pytest.mark.skipif(not is_long(), reason="the older client has the core of it in `make test`")
class TestClassic(ClassicGroupScenarios):
    @pytest.fixture
    def group_client(self, group_broker: BrokerUnderTest, say: Say) -> GroupClient:
        return make_client(NEWEST, "classic", group_broker, say)


class TestConsumer(GroupScenarios):
    @pytest.fixture
    def group_client(self, group_broker: BrokerUnderTest, say: Say) -> GroupClient:
        return make_client(NEWEST, "consumer", group_broker, say)


class TestClassicWithAnOlderClient(CoreGroupScenarios):
    @pytest.fixture
    def group_client(self, group_broker: BrokerUnderTest, say: Say) -> GroupClient:
        return make_client(OLDER, "classic", group_broker, say)
