"""Kafka's broker metrics, by the names that dashboards and alerts ask for.

Only what is asked for: docs/metrics.md has the list. Whatever a single event loop does not have,
such as a request queue, is zero.
"""

from collections import Counter
from collections.abc import Callable, Iterator

from penstock.coordinators.runtime.load_times import LoadStatistics
from penstock.metrics.families import (
    Family,
    MetricKind,
    Naming,
    Sample,
    counter,
    gauge,
    labels,
    meter,
)
from penstock.metrics.statistics import BrokerStatistics
from penstock.metrics.windows import RecentRequests
from penstock.model.histogram import DurationsSnapshot
from penstock.replication.partition import Role
from penstock.replication.topic_traffic import TrafficStatistics

QUANTILES = (0.5, 0.75, 0.95, 0.98, 0.99, 0.999)
_GAUGE = MetricKind.GAUGE

_TRAFFIC: tuple[tuple[str, str, str], ...] = (  # name, help, field of TrafficStatistics
    ("messagesin", "Records appended as leader.", "messages_in"),
    ("bytesin", "Bytes appended as leader.", "bytes_in"),
    ("bytesout", "Bytes sent to consumers.", "bytes_out"),
    ("bytesrejected", "Bytes of batches above max.message.bytes.", "bytes_rejected"),
    ("totalproducerequests", "Produce requests, one a partition.", "produces"),
    ("totalfetchrequests", "Fetch requests, one a partition.", "fetches"),
    ("failedproducerequests", "Produce requests refused, one a partition.", "failed_produces"),
    ("failedfetchrequests", "Fetch requests refused, one a partition.", "failed_fetches"),
    ("replicationbytesin", "Bytes appended as follower.", "replication_bytes_in"),
    ("replicationbytesout", "Bytes sent to followers.", "replication_bytes_out"),
)

_GROUP_STATES = {
    "Stable": "stable",
    "Empty": "empty",
    "Dead": "dead",
    "PreparingRebalance": "preparingrebalance",
    "CompletingRebalance": "completingrebalance",
}
# The states of groups of each protocol, as ListGroups names them.
_PROTOCOL_STATES = {
    "classic": ("PreparingRebalance", "CompletingRebalance", "Stable", "Empty", "Dead"),
    "consumer": ("Empty", "Assigning", "Reconciling", "Stable", "Dead"),
}


def broker_families(
    statistics: BrokerStatistics, recent: RecentRequests, traffic: dict[str, TrafficStatistics]
) -> Iterator[Family]:
    """All but the series of single partitions."""
    yield from _server(statistics)
    yield from _topics(statistics, traffic)
    yield from _replicas(statistics)
    yield from _controller(statistics)
    yield from _requests(statistics, recent)
    yield from _connections(statistics, recent)
    yield from _groups(statistics)
    yield from _transactions(statistics)
    yield from _sessions(statistics)


def topic_traffic(statistics: BrokerStatistics) -> dict[str, TrafficStatistics]:
    """By topic, with what its current leaderships have appended."""
    messages: Counter[str] = Counter()
    bytes_in: Counter[str] = Counter()
    for partition in statistics.replicas.partitions:
        if partition.bytes_in:
            messages[partition.tp.topic] += partition.messages_in
            bytes_in[partition.tp.topic] += partition.bytes_in
    return {
        topic: traffic._replace(
            messages_in=traffic.messages_in + messages[topic],
            bytes_in=traffic.bytes_in + bytes_in[topic],
        )
        for topic, traffic in statistics.replicas.traffic.items()
    }


def _server(statistics: BrokerStatistics) -> Iterator[Family]:
    process = statistics.process
    yield gauge("kafka_server_kafkaserver_brokerstate", "3: running.", int(statistics.state))
    yield gauge(
        "kafka_server_kafkaserver_linux_disk_read_bytes",
        "Bytes that the process read from disks.",
        process.disk_read_bytes,
    )
    yield gauge(
        "kafka_server_kafkaserver_linux_disk_write_bytes",
        "Bytes that the process wrote to disks.",
        process.disk_written_bytes,
    )
    idle = max(0.0, 1.0 - statistics.loop.busy_share)
    for name in (
        "kafka_server_kafkarequesthandlerpool_requesthandleravgidle",
        "kafka_network_socketserver_networkprocessoravgidle",
    ):
        help_text = "1 minus the busy share of the event loop."
        yield Family(name, _GAUGE, help_text, [("", round(idle, 6))], Naming.PERCENT)


def _topics(
    statistics: BrokerStatistics, traffic: dict[str, TrafficStatistics]
) -> Iterator[Family]:
    total = statistics.replicas.other_traffic
    for topic_total in traffic.values():
        total = total.plus(topic_total)
    named = [(labels(topic=topic), counts) for topic, counts in traffic.items()]
    for name, help_text, field in _TRAFFIC:
        samples: list[Sample] = [("", getattr(total, field))]
        samples += [(label, getattr(counts, field)) for label, counts in named]
        yield meter(f"kafka_server_brokertopicmetrics_{name}", help_text, samples)
    for name in ("producemessageconversions", "fetchmessageconversions"):
        help_text = "Always 0: batches are stored and sent as they came."
        yield meter(f"kafka_server_brokertopicmetrics_{name}", help_text, [("", 0)])


def _replicas(statistics: BrokerStatistics) -> Iterator[Family]:
    replicas = statistics.replicas
    led = [partition for partition in replicas.partitions if partition.role is Role.LEADER]
    # Computed as they are written: each takes a millisecond with 10,000 partitions.
    gauges: tuple[tuple[str, str, Callable[[], int]], ...] = (
        ("leadercount", "Partitions that this broker leads.", lambda: len(led)),
        ("partitioncount", "Partitions of this broker.", lambda: len(replicas.partitions)),
        (
            "underreplicatedpartitions",
            "Led partitions with replicas out of sync.",
            lambda: sum(len(partition.in_sync) < len(partition.replicas) for partition in led),
        ),
        (
            "underminisrpartitioncount",
            "Led partitions with fewer in-sync replicas than min.insync.replicas.",
            lambda: sum(len(partition.in_sync) < partition.min_in_sync for partition in led),
        ),
        (
            "atminisrpartitioncount",
            "Led partitions with just min.insync.replicas in sync.",
            lambda: sum(len(partition.in_sync) == partition.min_in_sync for partition in led),
        ),
        (
            "offlinereplicacount",
            "Replicas in failed log directories.",
            lambda: len(replicas.offline) + sum(p.failure is not None for p in replicas.partitions),
        ),
        (
            "reassigningpartitions",
            "Led partitions that are being reassigned.",
            lambda: sum(partition.is_reassigning for partition in led),
        ),
    )
    for name, help_text, count in gauges:
        yield Family(
            f"kafka_server_replicamanager_{name}", _GAUGE, help_text, _computed_late(count)
        )
    yield meter(
        "kafka_server_replicamanager_isrshrinks",
        "Shrinks of the ISR of led partitions.",
        [("", replicas.isr_shrinks)],
    )
    yield meter(
        "kafka_server_replicamanager_isrexpands",
        "Expands of the ISR of led partitions.",
        [("", replicas.isr_expands)],
    )
    yield Family(
        "kafka_server_replicafetchermanager_maxlag",
        _GAUGE,
        "Records that a follower here is behind its leader, at most.",
        [(labels(clientId="Replica"), replicas.max_lag)],
    )
    directories = statistics.directories
    yield gauge(
        "kafka_log_logmanager_offlinelogdirectorycount",
        "Failed log directories.",
        len(directories.failed),
    )
    yield gauge(
        "kafka_log_logmanager_remaininglogstorecover",
        "Logs that are still to be recovered.",
        statistics.remaining_logs,
    )
    yield _flushes(statistics)
    yield _purgatories(statistics)


def _computed_late(count: Callable[[], int]) -> Iterator[Sample]:
    """Not at all, if nobody wants the family."""
    yield "", count()


def _flushes(statistics: BrokerStatistics) -> Family:
    flushes = statistics.directories.flushes.logs
    samples: list[Sample] = [
        (f'{{quantile="{quantile}"}}', round(flushes.quantile_s(quantile) * 1000, 4))
        for quantile in QUANTILES
    ]
    samples.append(("_count", flushes.total))
    return Family(
        "kafka_log_logflushstats_logflushrateandtimems",
        MetricKind.SUMMARY,
        "Flushes of logs. Quantiles since the start.",
        samples,
    )


def _purgatories(statistics: BrokerStatistics) -> Family:
    replicas, coordinator = statistics.replicas, statistics.group_coordinator
    sizes = {
        "Produce": replicas.produces.delayed,
        "Fetch": replicas.fetches.delayed,
        "Rebalance": 0 if coordinator is None else coordinator.waiting,
    }
    return Family(
        "kafka_server_delayedoperationpurgatory_purgatorysize",
        _GAUGE,
        "Delayed requests; Rebalance: that wait for their group.",
        [(labels(delayedOperation=name), size) for name, size in sizes.items()],
    )


def _controller(statistics: BrokerStatistics) -> Iterator[Family]:
    controller = statistics.controller
    gauges = (
        ("activecontrollercount", "1: this broker is the controller.", int(controller.is_active)),
        (
            "offlinepartitionscount",
            "Partitions without a leader.",
            controller.leaderless_partitions,
        ),
        (
            "preferredreplicaimbalancecount",
            "Partitions whose leader is not their preferred replica.",
            controller.preferred_replica_imbalance,
        ),
        ("globalpartitioncount", "Partitions of the cluster.", controller.partitions),
        ("globaltopiccount", "Topics of the cluster.", controller.topics),
        ("topicstodeletecount", "Topics being deleted.", controller.deleting_topics),
        ("activebrokercount", "Registered brokers.", controller.brokers),
    )
    for name, help_text, value in gauges:
        yield gauge(f"kafka_controller_kafkacontroller_{name}", help_text, value)
    yield meter(
        "kafka_controller_controllerstats_uncleanleaderelections",
        "Leaders elected out of the ISR by this controller.",
        [("", controller.unclean_elections)],
    )
    yield counter(
        "kafka_controller_controllerstats_leaderelectionrateandtimems_count",
        "Leaders elected by this controller.",
        controller.elections,
    )


def _requests(statistics: BrokerStatistics, recent: RecentRequests) -> Iterator[Family]:
    counted: list[Sample] = []
    errors: list[Sample] = []
    for api in statistics.requests:
        for version, count in api.versions.items():
            counted.append((labels(request=api.name, version=version), count))
        # Responses, because an error counts once a partition: a counter must not move back.
        answered = api.total.total - api.failed
        errors.append((labels(request=api.name, error="NONE"), answered))
        for error, count in api.errors.items():
            errors.append((labels(request=api.name, error=error), count))
    yield meter("kafka_network_requestmetrics_requests", "Requests.", counted)
    yield meter("kafka_network_requestmetrics_errors", "Responses by error.", errors)
    times: tuple[tuple[str, str, Callable[[str], DurationsSnapshot]], ...] = (
        ("totaltimems", "From receipt to response.", lambda name: recent.of_request(name).total),
        ("localtimems", "In the handler.", lambda name: recent.of_request(name).local),
        (
            "remotetimems",
            "Waiting for data, replicas or other brokers.",
            lambda name: recent.of_request(name).remote,
        ),
        (
            "responsesendtimems",
            "From the response to its last byte in the socket.",
            lambda name: recent.of_request(name).send,
        ),
    )
    counts = {api.name: api.requests for api in statistics.requests}
    for name, help_text, find in times:
        yield Family(
            f"kafka_network_requestmetrics_{name}",
            MetricKind.SUMMARY,
            help_text + " Quantiles of the last 5 minutes.",
            list(_summary(counts, find)),
        )
    for name in ("requestqueuetimems", "responsequeuetimems"):
        yield Family(
            f"kafka_network_requestmetrics_{name}",
            MetricKind.SUMMARY,
            "Always 0: one event loop has no queue between its threads.",
            list(_summary(counts, None)),
        )


def _summary(
    counts: dict[str, int], find: Callable[[str], DurationsSnapshot] | None
) -> Iterator[Sample]:
    for name, count in counts.items():
        durations = None if find is None else find(name)
        for quantile in QUANTILES:
            value = 0 if durations is None else round(durations.quantile_s(quantile) * 1000, 4)
            yield f'{{request="{name}",quantile="{quantile}"}}', value
        yield f'_count{{request="{name}"}}', count


def _connections(statistics: BrokerStatistics, recent: RecentRequests) -> Iterator[Family]:
    counts: list[Sample] = []
    created: list[Sample] = []
    closed: list[Sample] = []
    for listener, connections in statistics.network.listeners.items():
        label = labels(listener=listener, networkProcessor="0")
        creation_rate, close_rate = recent.connection_rates(listener)
        counts.append((label, connections.connections))
        created.append((label, round(creation_rate, 4)))
        closed.append((label, round(close_rate, 4)))
    prefix = "kafka_server_socket_server_metrics_connection"
    yield Family(f"{prefix}_count", _GAUGE, "Open connections.", counts)
    yield Family(f"{prefix}_creation_rate", _GAUGE, "Accepted a second.", created)
    yield Family(f"{prefix}_close_rate", _GAUGE, "Closed a second.", closed)


def _groups(statistics: BrokerStatistics) -> Iterator[Family]:
    prefix = "kafka_coordinator_group_groupmetadatamanager"
    coordinator = statistics.group_coordinator
    groups = 0 if coordinator is None else coordinator.groups
    yield gauge(f"{prefix}_numgroups", "Groups that this broker coordinates.", groups)
    states = Counter(group.state for group in statistics.groups)
    for state, name in _GROUP_STATES.items():
        yield gauge(f"{prefix}_numgroups{name}", f"Of them in state {state}.", states[state])
    offsets = 0 if coordinator is None else coordinator.offsets
    yield gauge(f"{prefix}_numoffsets", "Committed offsets of these groups.", offsets)
    prefix = "kafka_server_group_coordinator_metrics"
    protocols = Counter(group.protocol for group in statistics.groups)
    yield Family(
        f"{prefix}_group_count",
        _GAUGE,
        "Groups that this broker coordinates, by protocol.",
        [(labels(protocol=protocol), protocols[protocol]) for protocol in _PROTOCOL_STATES],
    )
    by_state = Counter((group.protocol, group.state) for group in statistics.groups)
    for protocol, names in _PROTOCOL_STATES.items():
        yield Family(
            f"{prefix}_{protocol}_group_count",
            _GAUGE,
            "Of them by state.",
            [(labels(state=state), by_state[protocol, state]) for state in names],
        )
    yield from _loads(prefix, None if coordinator is None else coordinator.loads)


def _loads(prefix: str, loads: LoadStatistics | None) -> Iterator[Family]:
    """Kafka has them of the last 30 seconds."""
    loads = loads or LoadStatistics()
    for name, seconds in (("max", loads.longest_s), ("avg", loads.average_s)):
        yield gauge(
            f"{prefix}_partition_load_time_{name}",
            "Milliseconds to load a partition of the coordinator, since the start.",
            round(seconds * 1000, 3),
        )


def _transactions(statistics: BrokerStatistics) -> Iterator[Family]:
    coordinator = statistics.transaction_coordinator
    prefix = "kafka_coordinator_transaction_transactionmarkerchannelmanager"
    pending = 0 if coordinator is None else coordinator.pending_markers
    yield gauge(
        f"{prefix}_unknowndestinationqueuesize", "Always 0: markers wait by transaction.", 0
    )
    yield gauge(
        f"{prefix}_logappendretryqueuesize", "Decided transactions with markers to write.", pending
    )
    prefix = "kafka_server_transaction_coordinator_metrics"
    yield from _loads(prefix, None if coordinator is None else coordinator.loads)
    yield counter(
        f"{prefix}_transaction_timeout_count",
        "Transactions that this coordinator aborted because they took too long.",
        0 if coordinator is None else coordinator.timed_out,
    )


def _sessions(statistics: BrokerStatistics) -> Iterator[Family]:
    sessions = statistics.sessions
    for name, value in (
        ("zookeeperdisconnects", sessions.disconnects),
        ("zookeeperexpires", sessions.expires),
        ("zookeepersyncconnects", sessions.sync_connects),
        ("zookeeperauthfailures", 0),
    ):
        help_text = "Of the sessions with ZooKeeper; the embedded store counts its one connection."
        yield meter(f"kafka_server_sessionexpirelistener_{name}", help_text, [("", value)])
    latency = sessions.latency
    samples: list[Sample] = [
        (f'{{quantile="{quantile}"}}', round(latency.quantile_s(quantile) * 1000, 4))
        for quantile in QUANTILES
    ]
    samples.append(("_count", latency.total))
    yield Family(
        "kafka_server_zookeeperclientmetrics_zookeeperrequestlatencyms",
        MetricKind.SUMMARY,
        "Requests to ZooKeeper since the start.",
        samples,
    )
