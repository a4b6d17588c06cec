"""What is in a ZooKeeper, seen by a client that is none of ours."""

from collections.abc import Iterator
from contextlib import contextmanager

from kazoo.client import KazooClient


@contextmanager
def looking_into(connect: str, timeout_s: float = 10.0) -> Iterator[KazooClient]:
    client = KazooClient(connect, timeout=timeout_s)
    client.start()
    try:
        yield client
    finally:
        client.stop()
        client.close()
