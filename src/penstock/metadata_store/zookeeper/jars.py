"""Finds ZooKeeper's server in the jars of PySpark. PySpark itself is not imported."""

import os
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

from penstock.metadata_store.errors import ZooKeeperMissing

# The server and its dependencies. All of Spark's jars would work too, but slowly.
_NEEDED = ("zookeeper-3", "zookeeper-jute-3", "slf4j-api-", "netty-common-", "netty-handler-")
_PREFIXES = (
    *_NEEDED,
    "netty-buffer-",
    "netty-transport-",
    "netty-codec-base-",
    "netty-resolver-",
    "metrics-core-",
    "snappy-java-",
    "log4j-api-",
    "log4j-core-",
    "log4j-slf4j",
)


def find_jars(environment: Mapping[str, str] = os.environ) -> list[str]:
    """The class path, or ZooKeeperMissing."""
    looked = list(_folders(environment))
    for folder in looked:
        jars = _choose(sorted(folder.glob("*.jar")))
        if jars:
            return jars
    where = f"not in {', '.join(map(str, looked))}" if looked else "PySpark is not installed"
    raise ZooKeeperMissing(
        f"ZooKeeper's server comes with PySpark, and was not found ({where}); "
        f"pip install 'penstock[cluster]', or run ZooKeeper yourself and name it with --zookeeper"
    )


def _folders(environment: Mapping[str, str]) -> list[Path]:
    spec = find_spec("pyspark")
    installed = [] if spec is None else list(spec.submodule_search_locations or ())
    home = environment.get("SPARK_HOME")
    return [Path(folder) / "jars" for folder in (*installed, *([home] if home else ()))]


def _choose(jars: Sequence[Path]) -> list[str]:
    """Empty unless all that are needed exist."""
    names = [jar.name for jar in jars]
    if not all(any(name.startswith(prefix) for name in names) for prefix in _NEEDED):
        return []
    return [str(jar) for jar in jars if jar.name.startswith(_PREFIXES)]
