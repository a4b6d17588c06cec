"""`penstock cluster health`: the state of the partitions, and of the brokers as they see it."""

from collections.abc import Mapping
from typing import NamedTuple

from penstock.cli.broker_metrics import BrokerMetrics, describe_brokers
from penstock.cli.cluster_status import ClusterHealth, ClusterStatus, find_status
from penstock.client.cluster import ClusterClient
from penstock.client.errors import ClientError, ConnectFailed, RefusedByBroker, RequestTimedOut
from penstock.model.cluster import BrokerId
from penstock.model.errors import ErrorCode

_FAILED_DIRECTORIES = "kafka_log_logmanager_offlinelogdirectorycount"
_STATE = "kafka_server_kafkaserver_brokerstate"
_RUNNING = 3


class HealthReport(NamedTuple):
    status: ClusterStatus
    problems: Mapping[BrokerId, str]  # of registered brokers

    @property
    def word(self) -> str:
        health = self.status.health
        if self.problems and health is ClusterHealth.HEALTHY:
            return "degraded"  # every partition is well, a broker is not
        return health.value

    @property
    def is_healthy(self) -> bool:
        return self.word == ClusterHealth.HEALTHY.value

    def as_json(self) -> dict[str, object]:
        problems = {str(broker): problem for broker, problem in self.problems.items()}
        return {**self.status.as_json(), "status": self.word, "broker_problems": problems}


async def find_health(client: ClusterClient) -> HealthReport:
    status = await find_status(client)
    names = (_FAILED_DIRECTORIES, _STATE)
    metrics = await describe_brokers(client, sorted(status.brokers), names)
    return HealthReport(status, find_problems(metrics))


def _has_left(error: ClientError) -> bool:
    """Its registration ended after the status was read."""
    return isinstance(error, RefusedByBroker) and error.code is ErrorCode.BROKER_NOT_AVAILABLE


def find_problems(metrics: BrokerMetrics) -> dict[BrokerId, str]:
    """A broker that refuses to describe its metrics has none that we know of: it is of another
    make, or the principal needs DESCRIBE on the cluster."""
    problems = {
        broker: str(error)
        for broker, error in metrics.errors.items()
        if isinstance(error, ConnectFailed | RequestTimedOut) or _has_left(error)
    }
    for broker, series in metrics.series.items():
        failed = int(series.get(_FAILED_DIRECTORIES, 0))
        if failed:
            problems[broker] = f"{failed} failed log directories"
        elif series.get(_STATE, _RUNNING) != _RUNNING:
            problems[broker] = f"not running (state {int(series[_STATE])})"
    return problems
