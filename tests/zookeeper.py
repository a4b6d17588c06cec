"""One ZooKeeper for all tests of a worker, started on first use, and a plain client to inspect
it."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from kazoo.client import KazooClient

from penstock.config.java import JavaMissing, find_java
from penstock.metadata_store.errors import ZooKeeperMissing
from penstock.metadata_store.zookeeper.jars import find_jars
from penstock.metadata_store.zookeeper.server import ZooKeeperEnsemble


def skip_without_zookeeper() -> None:
    try:
        find_java()
        find_jars()
    except (JavaMissing, ZooKeeperMissing) as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="session")
def zookeeper_connect(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The connect string. Tests share the server, each below its own chroot."""
    skip_without_zookeeper()
    with ZooKeeperEnsemble(tmp_path_factory.mktemp("zookeeper")) as ensemble:
        yield ensemble.connect


@contextmanager
def kazoo_client(connect: str, timeout_s: float = 10.0) -> Iterator[KazooClient]:
    """A client that is not ours, to read and write znodes."""
    client = KazooClient(connect, timeout=timeout_s)
    client.start()
    try:
        yield client
    finally:
        client.stop()
        client.close()
