"""`penstock cluster metrics`: series of all brokers side by side, and of the cluster."""

from collections.abc import Sequence

from penstock.cli.broker_metrics import BrokerMetrics, describe_brokers
from penstock.client.cluster import ClusterClient

# Shown if no name is given.
SUMMARY = (
    "kafka_server_brokertopicmetrics_messagesin_total",
    "kafka_server_brokertopicmetrics_bytesin_total",
    "kafka_server_brokertopicmetrics_bytesout_total",
    "kafka_server_replicamanager_",
    "kafka_server_replicafetchermanager_maxlag",
    "kafka_server_kafkaserver_brokerstate",
    "kafka_controller_kafkacontroller_",
    "kafka_log_logmanager_",
    "kafka_coordinator_group_groupmetadatamanager_numgroups",
    "penstock_loop_",
    "process_",
)


async def find_metrics(client: ClusterClient, names: Sequence[str]) -> BrokerMetrics:
    """Of the registered brokers. Series of single topics are left out of the summary."""
    brokers = (await client.admin.describe_cluster()).brokers
    metrics = await describe_brokers(client, sorted(brokers), tuple(names or SUMMARY))
    if names:
        return metrics
    summary = {
        broker: {name: value for name, value in series.items() if "{topic=" not in name}
        for broker, series in metrics.series.items()
    }
    return metrics._replace(series=summary)


def find_unknown(metrics: BrokerMetrics, names: Sequence[str]) -> list[str]:
    """Those that no series begins with. A broker that did not answer may have them."""
    if metrics.errors:
        return []
    series = {name for broker in metrics.series.values() for name in broker}
    return [name for name in names if not any(other.startswith(name) for other in series)]


def as_json(metrics: BrokerMetrics) -> dict[str, object]:
    return {
        "cluster": metrics.total(),
        "brokers": {str(broker): dict(series) for broker, series in metrics.series.items()},
        "errors": {str(broker): str(error) for broker, error in metrics.errors.items()},
        "truncated": list(metrics.truncated),
    }


def rows(metrics: BrokerMetrics) -> list[list[object]]:
    """A row for each series: its name, its value of each broker, its value of the cluster."""
    brokers = [metrics.series[broker] for broker in sorted(metrics.series)]
    return [
        [name, *(_number(series.get(name)) for series in brokers), _number(total)]
        for name, total in metrics.total().items()
    ]


def _number(value: float | None) -> str | None:
    if value is None:
        return None
    return str(int(value)) if value == int(value) else f"{value:.6g}"
