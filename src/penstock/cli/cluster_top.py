"""Everything `penstock cluster top` shows: two looks at the cluster, and the rates between them.

Offsets and replicas come from Kafka's public requests; request rates, lag and the loop's share from
the metrics that the brokers describe.
"""

import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from penstock.cli.broker_metrics import Series, describe_brokers
from penstock.cli.cluster_status import ClusterStatus, find_status
from penstock.client.cluster import ClusterClient
from penstock.client.data_calls import LATEST
from penstock.client.errors import ClientError
from penstock.model.cluster import NO_BROKER, BrokerId
from penstock.model.ids import TopicPartition

OFFSETS_TIMEOUT_MS = 5_000
SHOWN = 10  # busiest partitions
_REQUESTS = "kafka_network_requestmetrics_requests_total"
_NAMES = (  # of the families that are shown
    "kafka_server_brokertopicmetrics_messagesin_total",
    "kafka_server_brokertopicmetrics_bytesin_total",
    "kafka_server_brokertopicmetrics_bytesout_total",
    _REQUESTS,
    "kafka_network_requestmetrics_totaltimems",
    "kafka_consumergroup_lag_sum",
    "penstock_loop_busy_share",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterLook:
    at_s: float  # monotonic
    status: ClusterStatus
    end_offsets: Mapping[TopicPartition, int]
    series: Mapping[BrokerId, Series] = field(default_factory=dict)  # of brokers that answered
    errors: Mapping[BrokerId, str] = field(default_factory=dict)  # of the others


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerLoad:
    """Rates a second; None: the broker did not say."""

    broker: BrokerId
    leads: int
    messages_in: float | None = None
    bytes_in: float | None = None
    bytes_out: float | None = None
    requests: float | None = None
    produce_p99_ms: float | None = None
    fetch_p99_ms: float | None = None
    busy_share: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterLoad:
    status: ClusterStatus
    brokers: list[BrokerLoad]
    busiest: list[tuple[TopicPartition, float]]  # records a second
    largest_lag: tuple[str, str, int] | None  # group, topic, records; None: nobody says
    errors: Mapping[BrokerId, str]  # of brokers that did not describe their metrics

    @property
    def messages_in(self) -> float:
        """Records a second of all partitions."""
        return sum(rate for _, rate in self.busiest)

    def as_json(self) -> dict[str, object]:
        lag = self.largest_lag
        return {
            "status": self.status.health.value,
            "under_replicated": len(self.status.under_replicated),
            "leaderless": len(self.status.leaderless),
            "brokers": [
                {name: getattr(load, name) for name in BrokerLoad.__slots__}
                for load in self.brokers
            ],
            "busiest": {str(tp): rate for tp, rate in self.busiest[:SHOWN]},
            "errors": {str(broker): error for broker, error in self.errors.items()},
            "largest_lag": lag and dict(zip(("group", "topic", "records"), lag, strict=True)),
        }


async def look(client: ClusterClient) -> ClusterLook:
    status = await find_status(client)
    led = [tp for tp, state in status.partitions.items() if state.leader != NO_BROKER]
    try:
        ends = await client.list_offsets(dict.fromkeys(led, LATEST), timeout_ms=OFFSETS_TIMEOUT_MS)
    except ClientError:
        ends = {}  # a leader is gone; the next look may find its successor
    metrics = await describe_brokers(client, status.brokers, _NAMES)
    return ClusterLook(
        at_s=time.monotonic(),
        status=status,
        end_offsets={tp: listed.offset for tp, listed in ends.items()},
        series=metrics.series,
        errors={broker: str(error) for broker, error in metrics.errors.items()},
    )


def compare(earlier: ClusterLook, later: ClusterLook) -> ClusterLoad:
    """The load between the two looks."""
    elapsed_s = max(later.at_s - earlier.at_s, 1e-3)
    grown = {
        tp: (end - earlier.end_offsets[tp]) / elapsed_s
        for tp, end in later.end_offsets.items()
        if tp in earlier.end_offsets
    }
    busiest = sorted(grown.items(), key=lambda item: (-item[1], item[0]))
    return ClusterLoad(
        status=later.status,
        brokers=[_load_of(id_, earlier, later, elapsed_s) for id_ in sorted(later.status.brokers)],
        busiest=[(tp, rate) for tp, rate in busiest if rate > 0],
        largest_lag=_find_largest_lag(later.series.values()),
        errors=later.errors,
    )


def _load_of(
    broker: BrokerId, earlier: ClusterLook, later: ClusterLook, elapsed_s: float
) -> BrokerLoad:
    leads = sum(state.leader == broker for state in later.status.partitions.values())
    before, after = earlier.series.get(broker), later.series.get(broker)
    if before is None or after is None:
        return BrokerLoad(broker=broker, leads=leads)

    def rate(name: str) -> float:
        return max(0.0, after.get(name, 0.0) - before.get(name, 0.0)) / elapsed_s

    def p99_ms(request: str) -> float | None:
        name = f'kafka_network_requestmetrics_totaltimems{{request="{request}",quantile="0.99"}}'
        return after.get(name)

    prefix = "kafka_server_brokertopicmetrics"
    return BrokerLoad(
        broker=broker,
        leads=leads,
        messages_in=rate(f"{prefix}_messagesin_total"),
        bytes_in=rate(f"{prefix}_bytesin_total"),
        bytes_out=rate(f"{prefix}_bytesout_total"),
        requests=max(0.0, _sum_requests(after) - _sum_requests(before)) / elapsed_s,
        produce_p99_ms=p99_ms("Produce"),
        fetch_p99_ms=p99_ms("FetchConsumer"),
        busy_share=after.get("penstock_loop_busy_share"),
    )


def _sum_requests(series: Series) -> float:
    """Without the two that are parts of Fetch."""
    return sum(
        value
        for name, value in series.items()
        if name.startswith(_REQUESTS) and 'request="FetchC' not in name and "FetchF" not in name
    )


def _find_largest_lag(scraped: Iterable[Series]) -> tuple[str, str, int] | None:
    pattern = re.compile(r'kafka_consumergroup_lag_sum\{consumergroup="(.*)",topic="(.*)"\}')
    lags = [
        (int(value), match[1], match[2])
        for series in scraped
        for name, value in series.items()
        if (match := pattern.fullmatch(name))
    ]
    if not lags:
        return None
    records, group, topic = max(lags)
    return group, topic, records
