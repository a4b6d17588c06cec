"""Rules between settings: a conflict stops the broker, a doubtful combination is a warning.

Every value is typed and within its own bounds already.
"""

from collections.abc import Iterator, Mapping, Set
from typing import Any, NamedTuple

from penstock.config.listeners import get_listeners, get_protocol_map

Values = Mapping[str, Any]


class ConfigFinding(NamedTuple):
    name: str  # the setting to look at first
    message: str


def broker_conflicts(values: Values, explicit: Set[str]) -> list[ConfigFinding]:
    """Combinations that cannot work in a broker. `explicit` are the names that the user set."""
    return [
        *_identity_conflicts(values, explicit),
        *_log_conflicts(values),
        *_listener_conflicts(values, explicit),
        *_sasl_conflicts(values, explicit),
        *_connection_conflicts(values),
        *_order_conflicts(values),
    ]


def topic_conflicts(values: Values) -> list[ConfigFinding]:
    """Combinations that cannot work in a topic."""
    return [
        *_check_order(values, "min.compaction.lag.ms", "max.compaction.lag.ms"),
        *(_delay_conflicts(values) if values["penstock.delay.ms"] else ()),
    ]


def _delay_conflicts(values: Values) -> Iterator[ConfigFinding]:
    name = "penstock.delay.ms"
    delay_ms, policy = values[name], values["cleanup.policy"]
    if values["message.timestamp.type"] != "LogAppendTime":
        yield ConfigFinding(
            name,
            f"is {delay_ms}, which needs message.timestamp.type = LogAppendTime: the delay counts "
            "from the leader's time, which is the same on every replica",
        )
    retention_ms = values["retention.ms"]
    if "delete" in policy and 0 <= retention_ms <= delay_ms:
        yield ConfigFinding(
            name,
            f"is {delay_ms}, not below retention.ms = {retention_ms}: records could be deleted "
            "before consumers see them; raise retention.ms",
        )
    if "compact" in policy:
        yield from _check_order(values, name, "max.compaction.lag.ms")


def group_conflicts(values: Values, broker: Values) -> list[ConfigFinding]:
    """Values that the broker's bounds do not allow, or that cannot work together."""
    return [
        *_bound_conflicts(values, broker, "session.timeout.ms"),
        *_bound_conflicts(values, broker, "heartbeat.interval.ms"),
        *_check_order(values, "consumer.heartbeat.interval.ms", "consumer.session.timeout.ms"),
    ]


def _bound_conflicts(values: Values, broker: Values, name: str) -> Iterator[ConfigFinding]:
    value = values[f"consumer.{name}"]
    for bound, is_broken in (
        (f"group.consumer.min.{name}", int.__lt__),
        (f"group.consumer.max.{name}", int.__gt__),
    ):
        if is_broken(value, broker[bound]):
            yield ConfigFinding(
                f"consumer.{name}", f"is {value}, but the brokers have {bound} = {broker[bound]}"
            )


def broker_doubts(values: Values, explicit: Set[str]) -> list[ConfigFinding]:
    """Combinations that work, but probably not as intended."""
    return [*_shadowed(values, explicit), *_few_replicas(values)]


def _identity_conflicts(values: Values, explicit: Set[str]) -> Iterator[ConfigFinding]:
    broker_id = values["broker.id"]
    if {"broker.id", "node.id"} <= explicit and broker_id != values["node.id"]:
        other = values["node.id"]
        yield ConfigFinding("node.id", f"is {other} but broker.id is {broker_id}; give one of them")
    largest = values["reserved.broker.max.id"]
    if values["broker.id.generation.enable"] and broker_id > largest:
        yield ConfigFinding(
            "broker.id",
            f"is {broker_id}, above reserved.broker.max.id = {largest}, where numbers are given "
            "out; raise that or set broker.id.generation.enable = false",
        )
    if not values["broker.id.generation.enable"] and broker_id < 0:
        yield ConfigFinding("broker.id", "is needed when broker.id.generation.enable = false")


def _log_conflicts(values: Values) -> Iterator[ConfigFinding]:
    retention_ms = values["log.retention.ms"]
    if retention_ms == 0:
        yield ConfigFinding(
            "log.retention.ms", "is 0, which keeps nothing; use -1 to keep everything"
        )
    log_dirs = values["log.dirs"]
    if "" in log_dirs:
        yield ConfigFinding("log.dirs", "has an empty entry; remove the comma too many")
    if len(set(log_dirs)) < len(log_dirs):
        yield ConfigFinding("log.dirs", f"names a directory twice: {', '.join(log_dirs)}")
    yield from _check_order(
        values, "log.cleaner.min.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms"
    )


def _listener_conflicts(values: Values, explicit: Set[str]) -> Iterator[ConfigFinding]:
    names = {listener.name for listener in get_listeners(values["listeners"])}
    advertised = get_listeners(values["advertised.listeners"])
    yield from _advertised_conflicts(values, explicit, names)
    protocols = get_protocol_map(values["listener.security.protocol.map"])
    for name in sorted(names - protocols.keys()):
        yield ConfigFinding(
            "listeners", f"{name} has no protocol in listener.security.protocol.map"
        )
    inter_broker = values["inter.broker.listener.name"]
    if inter_broker is not None and "security.inter.broker.protocol" in explicit:
        yield ConfigFinding(
            "inter.broker.listener.name", "excludes security.inter.broker.protocol; give one"
        )
    wanted = (inter_broker or values["security.inter.broker.protocol"]).upper()
    there = [listener.name for listener in advertised]
    if wanted not in there:
        key = "inter.broker.listener.name" if inter_broker else "security.inter.broker.protocol"
        yield ConfigFinding(
            key,
            f"{wanted} is not among the advertised listeners; set inter.broker.listener.name to "
            f"the one over which brokers reach each other: {' or '.join(there)}",
        )


def _advertised_conflicts(
    values: Values, explicit: Set[str], names: Set[str]
) -> Iterator[ConfigFinding]:
    key = "advertised.listeners"
    if key not in explicit:
        return  # clients are given the address that they connected to, which they can reach
    for listener in get_listeners(values[key]):
        if listener.name not in names:
            yield ConfigFinding(key, f"{listener.name} is not among listeners")
        if listener.host in ("0.0.0.0", "::"):  # noqa: S104 (refused, not bound)
            yield ConfigFinding(
                key,
                f"{listener.host} cannot be reached by clients; set advertised.listeners to a "
                "name or address of this machine",
            )


def _sasl_conflicts(values: Values, explicit: Set[str]) -> Iterator[ConfigFinding]:
    protocols = get_protocol_map(values["listener.security.protocol.map"])
    listener = values["inter.broker.listener.name"]
    protocol = protocols.get((listener or values["security.inter.broker.protocol"]).upper(), "")
    mechanism = values["sasl.mechanism.inter.broker.protocol"]
    # A listener may enable its own mechanisms, which are not in the general list.
    own_list = any(name.endswith(".sasl.enabled.mechanisms") for name in explicit)
    if not protocol.startswith("SASL") or own_list:
        return
    if mechanism not in values["sasl.enabled.mechanisms"]:
        yield ConfigFinding(
            "sasl.mechanism.inter.broker.protocol",
            f"{mechanism} is not among sasl.enabled.mechanisms",
        )


def _connection_conflicts(values: Values) -> Iterator[ConfigFinding]:
    queued = values["queued.max.request.bytes"]
    if 0 < queued < values["socket.request.max.bytes"]:
        yield ConfigFinding(
            "queued.max.request.bytes",
            f"is {queued}, too small for one request of socket.request.max.bytes = "
            f"{values['socket.request.max.bytes']}; raise it or use -1",
        )
    if values["max.connections.per.ip"] == 0 and not values["max.connections.per.ip.overrides"]:
        yield ConfigFinding(
            "max.connections.per.ip", "is 0, which needs max.connections.per.ip.overrides"
        )
    idle_ms = values["connections.max.idle.ms"]
    if 0 <= idle_ms <= values["connection.failed.authentication.delay.ms"]:
        yield ConfigFinding(
            "connection.failed.authentication.delay.ms",
            f"must be below connections.max.idle.ms = {idle_ms}",
        )


_ORDERED = (
    ("replica.fetch.wait.max.ms", "replica.socket.timeout.ms"),
    ("replica.fetch.wait.max.ms", "replica.lag.time.max.ms"),
    ("group.min.session.timeout.ms", "group.max.session.timeout.ms"),
    ("group.consumer.min.session.timeout.ms", "group.consumer.session.timeout.ms"),
    ("group.consumer.session.timeout.ms", "group.consumer.max.session.timeout.ms"),
    ("group.consumer.min.heartbeat.interval.ms", "group.consumer.heartbeat.interval.ms"),
    ("group.consumer.heartbeat.interval.ms", "group.consumer.max.heartbeat.interval.ms"),
    ("group.consumer.heartbeat.interval.ms", "group.consumer.session.timeout.ms"),
)


def _order_conflicts(values: Values) -> Iterator[ConfigFinding]:
    for smaller, larger in _ORDERED:
        yield from _check_order(values, smaller, larger)


def _check_order(values: Values, smaller: str, larger: str) -> Iterator[ConfigFinding]:
    if values[smaller] > values[larger]:
        yield ConfigFinding(smaller, f"is {values[smaller]}, above {larger} = {values[larger]}")


_SHADOWING = (
    ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
    ("log.roll.ms", "log.roll.hours"),
    ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    ("log.dirs", "log.dir"),
)


def _shadowed(values: Values, explicit: Set[str]) -> Iterator[ConfigFinding]:
    for chain in _SHADOWING:
        first, *others = [name for name in chain if name in explicit] or [""]
        for other in others:
            yield ConfigFinding(other, f"is not used, because {first} = {values[first]} is set")


def _few_replicas(values: Values) -> Iterator[ConfigFinding]:
    needed, made = values["min.insync.replicas"], values["default.replication.factor"]
    if needed > made:
        yield ConfigFinding(
            "min.insync.replicas",
            f"is {needed}, above default.replication.factor = {made}: topics created with the "
            "default will refuse every acks=all write",
        )
