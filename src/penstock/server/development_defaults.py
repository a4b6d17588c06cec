"""Settings of nodes that nobody configured: for a person who waits, not for a fleet.

As Kafka's own sample file has them. Whatever a user gives counts before these.
"""

DEVELOPMENT_SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",  # a fleet's members come together; here one waits
}

# Of several brokers on one machine. They come and go while somebody looks on.
CLUSTER_SETTINGS = {
    **DEVELOPMENT_SETTINGS,
    "zookeeper.session.timeout.ms": "6000",
}
