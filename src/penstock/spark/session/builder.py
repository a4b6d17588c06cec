"""Builds a local Spark session that is fast with small micro-batches and needs no set-up.

Not needed for `format("penstock")`, which works in any session. `LOW_LATENCY` is for sessions that
are built elsewhere; the user's own settings always override it.
"""

import os
import sys
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from penstock.config.java import find_java
from penstock.spark.session.class_archive import use_archive
from penstock.spark.session.default_save_mode import accept_default_mode
from penstock.spark.session.worker_python import make_worker_python

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEFAULT_MASTER = "local[*]"

# Measured: a micro-batch of 100 rows takes 0.55 of the time it takes with Spark's defaults.
LOW_LATENCY: Mapping[str, str] = MappingProxyType(
    {
        # Checkpoints on local disks without a checksum file for each file: half the files.
        "spark.hadoop.fs.AbstractFileSystem.file.impl": "org.apache.hadoop.fs.local.RawLocalFs",
        # Spark and its Python workers share a machine and need no TCP between them.
        "spark.python.unix.domain.socket.enabled": "true",
        # Spark's cost of a null array grows with the rows of its Arrow batch (decision 0030).
        "spark.sql.execution.arrow.maxRecordsPerBatch": "2000",
    }
)


def session(
    name: str = "penstock",
    *,
    master: str = DEFAULT_MASTER,
    config: Mapping[str, str] | None = None,
    low_latency: bool = True,
    own_group: bool = False,
) -> "SparkSession":
    """A session with the preset, on this Java and this Python. Returns the running session if
    there is one, with those settings that can still be changed. `own_group`: Spark's Java runs in
    a process group of its own."""
    from pyspark.sql import SparkSession

    _choose_java_and_python(is_local=master.startswith("local"))
    builder = SparkSession.builder.appName(name).master(master)
    settings = preset(master, config) if low_latency else dict(config or {})
    for key, value in settings.items():
        builder = builder.config(key, value)
    if own_group:
        _launch_java({**settings, "spark.app.name": name, "spark.master": master})
    accept_default_mode()
    return builder.getOrCreate()


def _launch_java(settings: Mapping[str, str]) -> None:
    """Whoever ends the group of this process, as `timeout` does, would end Java before a query can
    be stopped; it ends with this process anyway."""
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql.utils import is_remote

    if is_remote() or SparkContext._gateway is not None:  # noqa: SLF001 (it is launched once)
        return
    conf = SparkConf().setAll(list(settings.items()))
    gateway = launch_gateway(conf, {"process_group": 0})  # type: ignore[no-untyped-call]
    SparkContext._ensure_initialized(gateway=gateway, conf=conf)  # noqa: SLF001 (takes none else)


def preset(master: str = DEFAULT_MASTER, config: Mapping[str, str] | None = None) -> dict[str, str]:
    """The settings for this master, overridden by those of `config`."""
    local = _for_local(master) if master.startswith("local") else {}
    return {**LOW_LATENCY, **local, **(config or {})}


def _for_local(master: str) -> dict[str, str]:
    return {
        # The default of 200 suits clusters; here it would mean 200 tasks and state stores a batch.
        "spark.sql.shuffle.partitions": str(_cores(master)),
        "spark.python.daemon.module": "penstock.spark.session.worker_daemon",
    }


def _cores(master: str) -> int:
    """`local`, `local[4]`, `local[*]`, `local[4,2]`."""
    inside = master.removeprefix("local").strip("[]").split(",")[0]
    if inside.isdecimal():
        return int(inside)
    return len(os.sched_getaffinity(0)) if inside == "*" else 1


def _choose_java_and_python(*, is_local: bool) -> None:
    """Spark's scripts look for both in the environment; the user's own values stay."""
    java = find_java()
    if "JAVA_HOME" not in os.environ:
        os.environ["JAVA_HOME"] = java.home
    use_archive(java)
    if "PYSPARK_PYTHON" not in os.environ:
        os.environ["PYSPARK_PYTHON"] = make_worker_python() if is_local else sys.executable
