"""Names of Kafka settings that have no meaning here and would mislead if they were ignored."""

_KRAFT_NAMES = frozenset(
    {
        "process.roles",
        "controller.listener.names",
        "sasl.mechanism.controller.protocol",
        "broker.heartbeat.interval.ms",
        "broker.session.timeout.ms",
        "initial.broker.registration.timeout.ms",
        "server.max.startup.time.ms",
        "eligible.leader.replicas.enable",
        "zookeeper.metadata.migration.enable",
        "zookeeper.metadata.migration.min.batch.size",
    }
)
_KRAFT_PREFIXES = (
    "controller.quorum.",
    "controller.performance.",
    "metadata.log.",
    "metadata.max.",
    "internal.metadata.",
)


def find_refusal(name: str) -> str | None:
    """Why `name` is refused and what to do instead; None if it is accepted."""
    if name in _KRAFT_NAMES or name.startswith(_KRAFT_PREFIXES):
        return (
            "belongs to KRaft mode; Penstock coordinates through ZooKeeper (zookeeper.connect) "
            "or, on a single node, its embedded tree; remove it"
        )
    if name == "config.providers" or name.startswith("config.providers."):
        return "values are not filled in from elsewhere; write the value itself and remove it"
    return None
