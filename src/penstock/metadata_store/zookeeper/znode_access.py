"""Which access strangers have to a znode when `zookeeper.set.acl` is on: Kafka's rules, by path.

Decides only. Its creators, who are all with the same login or certificate, may do everything.
"""

from enum import Enum

CONSUMERS = "/consumers"  # members of older groups, each with its own session, write below it
_SENSITIVE = (
    "/config/users",
    "/config/brokers",
    "/config/penstock_login_secret",
    "/delegation_token/tokens",
)
# What `penstock zookeeper secure` goes through, besides the root itself.
SECURED_ROOTS = (
    "/admin",
    "/brokers",
    "/cluster",
    "/config",
    "/controller",
    "/controller_epoch",
    "/controller_queue",
    "/delegation_token",
    "/feature",
    "/isr_change_notification",
    "/kafka-acl",
    "/kafka-acl-changes",
    "/kafka-acl-extended",
    "/kafka-acl-extended-changes",
    "/latest_producer_id_block",
    "/log_dir_event_notification",
    "/migration",
)


class ZnodeAccess(Enum):
    """Of whoever reaches ZooKeeper."""

    OPEN = "everything"
    READABLE = "reading"
    SENSITIVE = "nothing"


def find_access(path: str) -> ZnodeAccess:
    """The path is below the chroot of the cluster."""
    if path == CONSUMERS or path.startswith(f"{CONSUMERS}/"):
        return ZnodeAccess.OPEN
    if path.startswith(_SENSITIVE):
        return ZnodeAccess.SENSITIVE
    return ZnodeAccess.READABLE
