"""Draws what `cluster_top` found: one screen that is drawn again, or plain text."""

from collections.abc import Sequence

from penstock.cli.cluster_top import SHOWN, BrokerLoad, ClusterLoad

_COLUMNS = (
    "broker",
    "leads",
    "records/s",
    "in/s",
    "out/s",
    "req/s",
    "produce p99",
    "fetch p99",
    "busy",
)


def describe(load: ClusterLoad) -> str:
    """The whole view as text, for a terminal of any kind and for files."""
    parts = [_describe_cluster(load), "", _align([_COLUMNS, *map(_row, load.brokers)])]
    parts += [f"broker {broker}: {error}" for broker, error in sorted(load.errors.items())]
    if load.busiest:
        rows = [(str(tp), f"{rate:,.0f}") for tp, rate in load.busiest[:SHOWN]]
        parts += ["", _align([("busiest partitions", "records/s"), *rows])]
    return "\n".join(parts)


def _describe_cluster(load: ClusterLoad) -> str:
    status = load.status
    summary = (
        f"cluster {status.cluster_id or '-'}: {status.health.value}; "
        f"{len(status.partitions)} partitions, {len(status.under_replicated)} under-replicated, "
        f"{len(status.leaderless)} offline; {load.messages_in:,.0f} records/s"
    )
    lines = [summary]
    if load.largest_lag is not None:
        group, topic, records = load.largest_lag
        lines.append(f"largest lag: {records:,} records of {topic} in group {group}")
    return "\n".join(lines)


def _row(load: BrokerLoad) -> tuple[str, ...]:
    return (
        str(load.broker),
        str(load.leads),
        _number(load.messages_in),
        _bytes(load.bytes_in),
        _bytes(load.bytes_out),
        _number(load.requests),
        _milliseconds(load.produce_p99_ms),
        _milliseconds(load.fetch_p99_ms),
        "-" if load.busy_share is None else f"{load.busy_share:.0%}",
    )


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}"


def _milliseconds(value: float | None) -> str:
    return "-" if value is None else f"{value:,.1f} ms"


def _bytes(value: float | None) -> str:
    if value is None:
        return "-"
    for unit in ("B", "KB", "MB"):
        if value < 1000:
            return f"{value:,.0f} {unit}"
        value /= 1000
    return f"{value:,.1f} GB"


def _align(rows: Sequence[Sequence[str]]) -> str:
    """The first column to the left, numbers to the right."""
    widths = [max(len(row[index]) for row in rows) for index in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [row[0].ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)
