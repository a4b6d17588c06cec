"""`penstock cluster status`: health, leaders and replicas from the cluster's metadata."""

import io
import sys

import pytest

from penstock.cli.broker_metrics import BrokerMetrics
from penstock.cli.cluster_commands import show_health, show_status
from penstock.cli.cluster_health import HealthReport, find_problems
from penstock.cli.cluster_status import ClusterHealth, ClusterStatus
from penstock.client.address import Address
from penstock.client.errors import ConnectFailed, Disconnected, RefusedByBroker
from penstock.client.metadata import BrokerMetadata, PartitionMetadata
from penstock.client.reassignments import PartitionReassignment
from penstock.model.cluster import NO_BROKER, BrokerId
from penstock.model.errors import ErrorCode
from penstock.model.ids import LeaderEpoch, TopicPartition

ORDERS = TopicPartition("orders", 0)


def ids(*numbers: int) -> tuple[BrokerId, ...]:
    return tuple(BrokerId(number) for number in numbers)


def status_of(
    *,
    in_sync: tuple[int, ...],
    replicas: tuple[int, ...] = (1, 2, 3),
    alive: tuple[int, ...] = (1, 2, 3),
    leader: int = 1,
    adding: tuple[int, ...] = (),
) -> ClusterStatus:
    partition = PartitionMetadata(
        0, BrokerId(leader), LeaderEpoch(0), ids(*replicas), ids(*in_sync), (), ErrorCode.NONE
    )
    moving = {ORDERS: PartitionReassignment(ids(*replicas), ids(*adding), ())} if adding else {}
    return ClusterStatus(
        cluster_id="c",
        controller_id=BrokerId(1),
        brokers={
            broker: BrokerMetadata(broker, Address("127.0.0.1", 9091 + broker))
            for broker in ids(*alive)
        },
        partitions={ORDERS: partition},
        moving=moving,
    )


def test_a_cluster_is_healthy_when_every_replica_is_in_sync() -> None:
    assert status_of(in_sync=(1, 2, 3)).health is ClusterHealth.HEALTHY


def test_a_replica_out_of_sync_makes_it_under_replicated() -> None:
    assert status_of(in_sync=(1, 2)).health is ClusterHealth.UNDER_REPLICATED


def test_a_partition_without_a_leader_makes_it_offline() -> None:
    assert status_of(in_sync=(1,), leader=NO_BROKER).health is ClusterHealth.OFFLINE


@pytest.mark.parametrize(
    ("status", "code", "text"),
    [
        (status_of(in_sync=(1, 2, 3)), 0, "healthy\n"),
        (
            status_of(in_sync=(1, 2)),
            1,
            "under-replicated\n1 with replicas that are not in sync: orders-0\n",
        ),
        (
            status_of(in_sync=(1,), leader=NO_BROKER),
            1,
            "offline\n1 without a leader: orders-0\n",
        ),
    ],
)
def test_only_a_healthy_cluster_has_exit_code_0(
    capsys: pytest.CaptureFixture[str], status: ClusterStatus, code: int, text: str
) -> None:
    report = HealthReport(status, {})
    assert show_health(report, as_json=False) == code
    assert capsys.readouterr().out == text
    assert show_health(report, as_json=True) == code


def test_a_cluster_with_a_broker_in_trouble_is_degraded(
    capsys: pytest.CaptureFixture[str],
) -> None:
    one, two, three, four = ids(1, 2, 3, 4)
    state, failed = (
        "kafka_server_kafkaserver_brokerstate",
        "kafka_log_logmanager_offlinelogdirectorycount",
    )
    metrics = BrokerMetrics(
        series={one: {state: 3, failed: 0}, two: {state: 3, failed: 1}},
        errors={
            three: ConnectFailed(Address("127.0.0.1", 9094), "nothing listens there"),
            four: Disconnected("of another make"),
        },
        truncated=(),
    )
    report = HealthReport(status_of(in_sync=(1, 2, 3)), find_problems(metrics))
    assert show_health(report, as_json=False) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == ["degraded", "broker 2: 1 failed log directories"]
    assert lines[2].startswith("broker 3: ")
    assert len(lines) == 3
    assert report.as_json()["status"] == "degraded"


def test_a_broker_that_left_after_the_status_was_read_is_a_problem() -> None:
    left = RefusedByBroker("DescribeMetrics", ErrorCode.BROKER_NOT_AVAILABLE)
    denied = RefusedByBroker("DescribeMetrics", ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    two, three = ids(2, 3)
    metrics = BrokerMetrics(series={}, errors={two: left, three: denied}, truncated=())
    report = HealthReport(status_of(in_sync=(1, 2, 3)), find_problems(metrics))
    assert list(report.problems) == [two]
    assert not report.is_healthy


def test_replicas_being_added_do_not_count_as_missing() -> None:
    status = status_of(in_sync=(1, 2), adding=(3,))
    assert (status.under_replicated, status.health) == ([], ClusterHealth.HEALTHY)


def test_a_broker_with_replicas_that_is_not_registered_is_named(
    capsys: pytest.CaptureFixture[str],
) -> None:
    status = status_of(in_sync=(1, 2), alive=(1, 2))
    show_status(status)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "cluster c: under-replicated"
    assert lines[5].split() == ["3", "-", "-", "0", "1", "MISSING"]
    assert "missing brokers: 3; start them, or reassign their replicas" in lines
    document = status.as_json()
    assert (document["status"], document["missing_brokers"]) == ("under-replicated", [3])


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("in_sync", "leader", "colour"), [((1, 2, 3), 1, 32), ((1,), 1, 33), ((1,), NO_BROKER, 31)]
)
def test_a_terminal_gets_a_coloured_status(
    monkeypatch: pytest.MonkeyPatch, in_sync: tuple[int, ...], leader: int, colour: int
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr(sys, "stdout", terminal := _Terminal())
    status = status_of(in_sync=in_sync, leader=leader)
    show_status(status)
    word = f"\x1b[{colour}m\x1b[1m{status.health}\x1b[0m"
    assert terminal.getvalue().startswith(f"cluster c: {word}\n")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setattr(sys, "stdout", plain := _Terminal())
    show_status(status)
    assert plain.getvalue().startswith(f"cluster c: {status.health}\n")
