"""Penstock's own metrics, `penstock_*`, and those of the process."""

from collections.abc import Iterator
from itertools import accumulate

from penstock.metrics.families import Family, MetricKind, Sample, counter, gauge, labels
from penstock.metrics.statistics import BrokerStatistics
from penstock.model.histogram import BOUNDS_S, DurationsSnapshot, SizesSnapshot
from penstock.protocol.build import find_build

# Every third bound is enough for a heat map, and a third of the series.
_SHOWN = tuple(range(0, len(BOUNDS_S), 3))


def own_families(statistics: BrokerStatistics) -> Iterator[Family]:
    yield Family(
        "penstock_build_info",
        MetricKind.GAUGE,
        "Version, build (compiled or plain), cluster and broker id.",
        [
            (
                labels(
                    version=statistics.version,
                    build=find_build(),
                    cluster_id=statistics.cluster_id,
                    broker_id=statistics.broker_id,
                ),
                1,
            )
        ],
    )
    yield from _balancer(statistics)
    yield from _loop(statistics)
    yield from _flushes(statistics)
    yield from _network(statistics)
    yield from _certificates(statistics)
    yield from _quotas(statistics)
    yield from _audit(statistics)
    yield from _waiting(statistics)
    yield from _delayed_messages(statistics)
    yield from _half_messages(statistics)
    yield from _request_times(statistics)
    yield from _process(statistics)


def _balancer(statistics: BrokerStatistics) -> Iterator[Family]:
    """Of the active controller; others have zeros and no brokers."""
    balancer = statistics.controller.balancer
    yield Family(
        "penstock_controller_balance_reassignments",
        MetricKind.GAUGE,
        "Reassignments of automatic balancing and replacement, by their state.",
        [
            (labels(state="pending"), balancer.pending),
            (labels(state="under_way"), balancer.under_way),
        ],
    )
    yield gauge(
        "penstock_controller_balance_held",
        "1: nothing is begun, because too many brokers are gone or too few are left.",
        int(balancer.is_held),
    )
    yield Family(
        "penstock_controller_broker_gone_seconds",
        MetricKind.GAUGE,
        "For how long brokers that have replicas are not registered, with balancing on.",
        [(labels(broker=broker), seconds) for broker, seconds in balancer.gone_s.items()],
    )


def _loop(statistics: BrokerStatistics) -> Iterator[Family]:
    loop = statistics.loop
    yield gauge(
        "penstock_loop_busy_share",
        "Share of the last seconds that the event loop's thread computed.",
        round(loop.busy_share, 6),
    )
    yield counter("penstock_loop_stalls_total", "Stalls of the event loop above 5 ms.", loop.stalls)
    yield gauge(
        "penstock_loop_longest_stall_seconds",
        "The longest stall since the start.",
        round(loop.longest_stall_ms / 1000, 6),
    )
    yield Family(
        "penstock_loop_stall_duration_seconds",
        MetricKind.HISTOGRAM,
        "The stalls, since the start.",
        list(_histogram("", loop.stall_times)),
    )
    yield counter(
        "penstock_process_pauses_total",
        "Pauses of the whole process above 1 s: it was stopped, or its machine frozen.",
        loop.pauses,
    )
    yield counter(
        "penstock_process_paused_seconds_total",
        "How long these pauses were, together.",
        round(loop.paused_s, 3),
    )


def _flushes(statistics: BrokerStatistics) -> Iterator[Family]:
    flushes = statistics.directories.flushes
    for name, help_text, durations in (
        ("log_flush", "Flushes of single logs, since the start.", flushes.logs),
        ("log_flush_round", "Rounds that flush logs together, since the start.", flushes.rounds),
    ):
        yield Family(
            f"penstock_{name}_duration_seconds",
            MetricKind.HISTOGRAM,
            help_text,
            list(_histogram("", durations)),
        )
    for name, help_text, sizes in (
        ("logs", "Logs that one round flushes together, since the start.", flushes.round_logs),
        ("bytes", "Appended bytes that one round makes durable.", flushes.round_bytes),
    ):
        yield Family(
            f"penstock_log_flush_round_{name}",
            MetricKind.HISTOGRAM,
            help_text,
            list(_size_histogram(sizes)),
        )


def _network(statistics: BrokerStatistics) -> Iterator[Family]:
    network = statistics.network
    counters = (
        ("received_bytes", "Bytes received from clients and brokers.", network.received_bytes),
        ("sent_bytes", "Bytes sent to clients and brokers.", network.sent_bytes),
        ("connections_accepted", "Connections accepted.", network.accepted),
        ("connections_refused", "Connections over max.connections.per.ip.", network.refused),
        ("connections_closed_idle", "Idle connections closed.", network.closed_idle),
        ("connections_closed_malformed", "Closed for bad bytes.", network.closed_malformed),
        ("connections_closed_slow", "Closed for slow requests.", network.closed_slow),
        (
            "connections_closed_over_limit",
            "Closed for a request above a limit of its API, or of memory in flight.",
            network.closed_over_limit,
        ),
        ("accept_failures", "No file descriptor or memory to accept.", network.accept_failures),
        ("truncated_files", "Files that ended before they were sent.", network.truncated_files),
        ("unexpected_errors", "Handlers that failed unexpectedly.", network.unexpected_errors),
    )
    for name, help_text, value in counters:
        yield counter(f"penstock_network_{name}_total", help_text, value)
    yield gauge(
        "penstock_network_receive_buffer_bytes",
        "Held by incomplete requests, spare buffers and requests in flight.",
        network.receive_buffer_bytes,
    )
    yield gauge(
        "penstock_network_waiting_for_memory",
        "Connections that are not read until there is memory.",
        network.waiting_for_memory,
    )


def _certificates(statistics: BrokerStatistics) -> Iterator[Family]:
    certificates = statistics.network.certificates
    yield counter(
        "penstock_network_authentication_failures_total",
        "TLS handshakes and logins that failed.",
        statistics.network.authentication_failures,
    )
    yield counter(
        "penstock_network_authentications_total",
        "Logins by SASL, renewed ones included.",
        statistics.network.authentications,
    )
    yield counter(
        "penstock_network_connections_closed_expired_total",
        "Connections whose client did not authenticate again (connections.max.reauth.ms).",
        statistics.network.closed_expired,
    )
    yield Family(
        "penstock_tls_certificate_expires_timestamp_seconds",
        MetricKind.GAUGE,
        "When the certificate of a listener expires, as Unix time.",
        [(labels(listener=name), tls.expires_s) for name, tls in certificates.items()],
    )
    yield Family(
        "penstock_tls_certificate_reloads_total",
        MetricKind.COUNTER,
        "Files of keys that have changed, by whether they were taken over.",
        [
            (labels(listener=name, result=result), count)
            for name, tls in certificates.items()
            for result, count in (("loaded", tls.reloads), ("refused", tls.failed_reloads))
        ],
    )


def _quotas(statistics: BrokerStatistics) -> Iterator[Family]:
    yield Family(
        "penstock_quota_throttled_total",
        MetricKind.COUNTER,
        "Responses, or new connections, that a client quota has made to wait.",
        [(labels(quota=key), quota.throttled) for key, quota in statistics.quotas.items()],
    )
    yield Family(
        "penstock_quota_throttle_seconds_total",
        MetricKind.COUNTER,
        "The throttle times that they were given, together.",
        [
            (labels(quota=key), round(quota.throttle_s, 3))
            for key, quota in statistics.quotas.items()
        ],
    )


def _audit(statistics: BrokerStatistics) -> Iterator[Family]:
    audit = statistics.audit
    yield counter(
        "penstock_audit_written_total", "Audit events that are in their topic.", audit.written
    )
    yield counter(
        "penstock_audit_dropped_total",
        "Audit events that were dropped, because they could not be written in time.",
        audit.dropped,
    )
    yield gauge(
        "penstock_audit_pending_bytes",
        "Audit events that wait in memory until they are written.",
        audit.pending_bytes,
    )


def _waiting(statistics: BrokerStatistics) -> Iterator[Family]:
    replicas, transactions = statistics.replicas, statistics.transaction_coordinator
    for kind, purgatory in (("produce", replicas.produces), ("fetch", replicas.fetches)):
        yield gauge(f"penstock_purgatory_{kind}_delayed", "Delayed requests.", purgatory.delayed)
        yield counter(
            f"penstock_purgatory_{kind}_expired_total", "Delayed until timeout.", purgatory.expired
        )
    yield gauge("penstock_timers_pending", "Timers in the wheel.", statistics.timers.pending)
    yield gauge("penstock_log_open_files", "Open segment files.", statistics.directories.open_files)
    yield gauge(
        "penstock_controller_queued_requests",
        "Requests that wait for the controller.",
        statistics.controller.queued_requests,
    )
    groups, deferred = statistics.group_coordinator, statistics.deferred_coordinator
    loading: list[Sample] = [
        (labels(coordinator="group"), 0 if groups is None else groups.loading),
        (labels(coordinator="transaction"), 0 if transactions is None else transactions.loading),
        (labels(coordinator="deferred"), 0 if deferred is None else deferred.loading),
    ]
    help_text = "Partitions that the coordinator is loading."
    yield Family("penstock_coordinator_loading_partitions", MetricKind.GAUGE, help_text, loading)
    ongoing = 0 if transactions is None else transactions.ongoing
    yield gauge("penstock_transactions_ongoing", "Transactions coordinated here.", ongoing)
    ids = 0 if transactions is None else transactions.transactional_ids
    yield gauge("penstock_transactional_ids", "Known here.", ids)


def _delayed_messages(statistics: BrokerStatistics) -> Iterator[Family]:
    """Of the shards that this broker leads."""
    deferred = statistics.deferred_coordinator
    yield gauge(
        "penstock_delayed_messages_pending",
        "Delayed messages that wait, or whose target has not confirmed them.",
        0 if deferred is None else deferred.pending,
    )
    yield gauge(
        "penstock_delayed_messages_due_lag_seconds",
        "How long the oldest message that is due has not been delivered; 0: none is due.",
        0 if deferred is None else deferred.due_lag_ms / 1000,
    )
    yield gauge(
        "penstock_delayed_messages_unconfirmed_targets",
        "Partitions that have not confirmed a delivery.",
        0 if deferred is None else deferred.unconfirmed,
    )
    yield counter(
        "penstock_delayed_messages_delivered_total",
        "Delayed messages that their targets have confirmed.",
        0 if deferred is None else deferred.delivered,
    )
    yield counter(
        "penstock_delayed_messages_cancelled_total",
        "Delayed messages that were cancelled.",
        0 if deferred is None else deferred.cancelled,
    )


def _half_messages(statistics: BrokerStatistics) -> Iterator[Family]:
    """Of the shards that this broker leads."""
    deferred = statistics.deferred_coordinator
    halves = None if deferred is None else deferred.halves
    yield gauge(
        "penstock_half_messages_pending",
        "Half ids that nobody has decided about.",
        0 if halves is None else halves.pending,
    )
    yield gauge(
        "penstock_half_messages_oldest_seconds",
        "How long the oldest of them has waited; 0: none waits.",
        0 if halves is None else halves.oldest_ms / 1000,
    )
    decided: list[Sample] = [
        (labels(decision="commit"), 0 if halves is None else halves.committed),
        (labels(decision="rollback"), 0 if halves is None else halves.rolled_back),
    ]
    help_text = "Half ids that were decided, by the decision."
    yield Family("penstock_half_messages_decided_total", MetricKind.COUNTER, help_text, decided)
    yield counter(
        "penstock_half_messages_expired_total",
        "Half ids that expired: nobody has decided after the last check.",
        0 if halves is None else halves.expired,
    )
    yield counter(
        "penstock_half_messages_ignored_decisions_total",
        "Decisions that came after another one, or for an unknown id.",
        0 if halves is None else halves.ignored,
    )


def _request_times(statistics: BrokerStatistics) -> Iterator[Family]:
    samples: list[Sample] = []
    for api in statistics.requests:
        samples += _histogram(f'request="{api.name}"', api.total)
    yield Family(
        "penstock_request_duration_seconds",
        MetricKind.HISTOGRAM,
        "From receipt to response, since the start.",
        samples,
    )


def _histogram(label: str, durations: DurationsSnapshot) -> Iterator[Sample]:
    """`label` is that of all its series, or empty."""
    below = list(accumulate(durations.counts))
    comma = "," if label else ""
    for index in _SHOWN:
        yield f'_bucket{{{label}{comma}le="{BOUNDS_S[index]:g}"}}', below[index]
    yield f'_bucket{{{label}{comma}le="+Inf"}}', below[-1]
    rest = f"{{{label}}}" if label else ""
    yield f"_sum{rest}", round(durations.sum_s, 6)
    yield f"_count{rest}", below[-1]


def _size_histogram(sizes: SizesSnapshot) -> Iterator[Sample]:
    below = list(accumulate(sizes.counts))
    for bound, count in zip(sizes.bounds, below, strict=False):
        yield f'_bucket{{le="{bound}"}}', count
    yield '_bucket{le="+Inf"}', below[-1]
    yield "_sum", sizes.sum
    yield "_count", below[-1]


def _process(statistics: BrokerStatistics) -> Iterator[Family]:
    process = statistics.process
    yield counter("process_cpu_seconds_total", "Processor time.", round(process.cpu_s, 3))
    yield gauge("process_resident_memory_bytes", "Resident memory.", process.resident_bytes)
    yield gauge("process_open_fds", "Open file descriptors.", process.open_fds)
    yield gauge("process_max_fds", "Limit of file descriptors.", process.max_fds)
    yield gauge("process_start_time_seconds", "Start, epoch.", round(process.start_time_s, 3))
    collections: list[Sample] = [
        (labels(generation=generation), count)
        for generation, count in enumerate(process.gc_collections)
    ]
    yield Family(
        "python_gc_collections_total",
        MetricKind.COUNTER,
        "Runs of the garbage collector.",
        collections,
    )
