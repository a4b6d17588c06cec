"""DescribeCluster, and the addresses that clients get."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.apis.admin.harness import (
    CALLER,
    OTHER_ID,
    OWN_ID,
    AdminApiHarness,
    node,
    rows,
)

from penstock.apis.cluster.describe_cluster import API
from penstock.model.cluster import BrokerId, Endpoint
from penstock.model.errors import ErrorCode
from penstock.security.authorizer import CLUSTER_NAME, AclOperation, ResourceType

NOT_ASKED = -(2**31)


@pytest.mark.parametrize("version", API.versions)
def test_brokers_controller_and_cluster_id_are_returned(
    harness: AdminApiHarness, version: int
) -> None:
    harness.update(brokers=(node(OWN_ID), node(OTHER_ID, rack="r2")), controller=OTHER_ID)
    answer = harness.ask(API, version, include_cluster_authorized_operations=False)
    assert (answer.error_code, answer.error_message) == (ErrorCode.NONE, None)
    assert (answer.cluster_id, answer.controller_id) == ("penstock-test-cluster", OTHER_ID)
    assert rows(answer.brokers, "broker_id", "host", "port", "rack") == [
        (OWN_ID, "10.0.0.1", 9092, None),
        (OTHER_ID, "host-2", 9092, "r2"),
    ]
    assert answer.cluster_authorized_operations == NOT_ASKED


@pytest.mark.parametrize("version", API.versions)
def test_operations_are_returned_as_bits(harness: AdminApiHarness, version: int) -> None:
    harness.acl.forbid(AclOperation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME)
    answer = harness.ask(API, version, include_cluster_authorized_operations=True)
    bits = answer.cluster_authorized_operations
    allowed = {operation for operation in AclOperation if bits & (1 << operation)}
    assert allowed == {
        AclOperation.CREATE,
        AclOperation.DESCRIBE,
        AclOperation.CLUSTER_ACTION,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
        AclOperation.IDEMPOTENT_WRITE,
    }


def test_without_describe_brokers_are_returned_and_no_operations(
    harness: AdminApiHarness,
) -> None:
    harness.acl.forbid(AclOperation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME)
    answer = harness.ask(API, 1, include_cluster_authorized_operations=True)
    assert rows(answer.brokers, "broker_id") == [OWN_ID]
    assert answer.cluster_authorized_operations == 0


@pytest.mark.parametrize(
    ("endpoint_type", "code"),
    [(2, ErrorCode.MISMATCHED_ENDPOINT_TYPE), (0, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)],
)
def test_only_brokers_can_be_described(
    harness: AdminApiHarness, endpoint_type: int, code: ErrorCode
) -> None:
    answer = harness.ask(
        API, 1, include_cluster_authorized_operations=False, endpoint_type=endpoint_type
    )
    assert (answer.error_code, answer.brokers) == (code, ())
    assert answer.error_message


def test_a_broker_without_the_clients_listener_is_not_returned(harness: AdminApiHarness) -> None:
    other = node(OTHER_ID, Endpoint("INTERNAL", "PLAINTEXT", "inside", 9093))
    harness.update(brokers=(node(OWN_ID), other), controller=OTHER_ID)
    answer = harness.ask(API, 1, include_cluster_authorized_operations=False)
    assert rows(answer.brokers, "broker_id") == [OWN_ID]
    assert answer.controller_id == BrokerId(-1)


def test_an_ipv4_client_of_a_dual_stack_socket_gets_an_ipv4_address(
    harness: AdminApiHarness,
) -> None:
    harness.connected_to = "::ffff:192.0.2.7"
    answer = harness.ask(API, 1, include_cluster_authorized_operations=False)
    assert rows(answer.brokers, "host") == ["192.0.2.7"]


class TestAdvertised:
    @pytest.fixture
    def harness(self, tmp_path: Path) -> Iterator[AdminApiHarness]:
        made = AdminApiHarness(
            log_dirs=(tmp_path / "logs",),
            advertised={"PLAINTEXT": Endpoint("PLAINTEXT", "PLAINTEXT", "kafka.example", 19092)},
        )
        yield made
        made.close()

    def test_advertised_addresses_are_returned(self, harness: AdminApiHarness) -> None:
        answer = harness.ask(API, 1, include_cluster_authorized_operations=False)
        assert rows(answer.brokers, "host", "port") == [("kafka.example", 19092)]

    def test_an_unadvertised_listener_returns_the_clients_address(
        self, harness: AdminApiHarness
    ) -> None:
        harness.caller = CALLER._replace(listener="INTERNAL")
        answer = harness.ask(API, 1, include_cluster_authorized_operations=False)
        assert rows(answer.brokers, "host", "port") == [("10.0.0.1", 9092)]
