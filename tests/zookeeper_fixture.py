"""One ZooKeeper for all tests of a worker, started when the first of them asks for it."""

from collections.abc import Iterator

import pytest

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
    """Where it is; tests share it, each below a node of its own (a path in the connect string)."""
    skip_without_zookeeper()
    with ZooKeeperEnsemble(tmp_path_factory.mktemp("zookeeper")) as ensemble:
        yield ensemble.connect
