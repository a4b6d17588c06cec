"""Defaults of brokers on a developer's machine, as in Kafka's own sample config.

The user's config overrides them.
"""

DEVELOPMENT_SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",  # a fleet starts together; here a person waits
}

# Several brokers on one machine, which are stopped and started while somebody waits.
CLUSTER_SETTINGS = {
    **DEVELOPMENT_SETTINGS,
    "zookeeper.session.timeout.ms": "6000",
}
