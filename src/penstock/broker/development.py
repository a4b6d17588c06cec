"""Settings of a single node that nobody configured: for a person who waits, not for a fleet.

As Kafka's own sample file has it. Whatever a user gives counts before these.
"""

DEVELOPMENT_SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",  # a fleet's members come together; here one waits
}
