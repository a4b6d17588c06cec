"""Gives the znodes of a cluster that exist already the ACLs that new ones get, or takes them away.

Run it while brokers run: each znode is changed by itself, and doing it twice changes nothing.
"""

from penstock.metadata_store.errors import NoNode
from penstock.metadata_store.zookeeper.session import ZooKeeperSession
from penstock.metadata_store.zookeeper.znode_access import SECURED_ROOTS


async def change_acls(session: ZooKeeperSession, *, is_secure: bool) -> int:
    """Of all znodes but those of consumers. Returns how many there are. A failure says at which
    one it stopped; run it again then."""
    await session.set_acls("/", is_secure=is_secure)
    count, paths = 1, list(SECURED_ROOTS)
    while paths:
        path = paths.pop()
        try:
            await session.set_acls(path, is_secure=is_secure)
            children = await session.children(path)
        except NoNode:
            continue  # deleted meanwhile, or not made by this cluster
        count += 1
        paths += (f"{path}/{child}" for child in children)
    return count
