"""Runs a cluster on this machine in the foreground and reports when it is ready and which broker
fails.

A broker that exits by itself is reported and stays down while the others go on, as on several
machines.
"""

import signal
import threading
from collections.abc import Callable
from types import FrameType

from penstock.config.java import JavaMissing
from penstock.metadata_store.errors import MetadataStoreError
from penstock.metadata_store.zookeeper.jars import find_jars
from penstock.metadata_store.zookeeper.vulnerabilities import find_vulnerability_warning
from penstock.server.broker_process import BrokerNotStarted
from penstock.server.cluster_directory import DirectoryInUse
from penstock.server.local_cluster import LocalCluster

Report = Callable[[str], None]

REFUSED = 1
FAILED = 3
LAST_WORDS_BYTES = 2000
_LOOK_EVERY_S = 0.5


class _StoppedAtStart(BaseException):
    """A signal came before every broker served."""


def run_cluster(cluster: LocalCluster, report: Report) -> int:
    """Returns the exit code."""
    stop, is_serving = threading.Event(), threading.Event()

    def on_signal(number: int, frame: FrameType | None) -> None:
        is_first = not stop.is_set()
        stop.set()
        if is_first and not is_serving.is_set():
            raise _StoppedAtStart

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, on_signal)
    try:
        cluster.start()
        is_serving.set()
    except _StoppedAtStart:
        cluster.kill()
        report("stopped by a signal before every broker served")
        return REFUSED
    except (BrokerNotStarted, DirectoryInUse, MetadataStoreError, JavaMissing, OSError) as refusal:
        report("\n".join([str(refusal), *getattr(refusal, "__notes__", [])]))
        return REFUSED
    for broker_id in cluster.broker_ids:
        report(f"broker {broker_id} logs to {cluster.log_of(broker_id)}")
    report(f"ZooKeeper is at {cluster.connect}")
    warning = None if cluster.ensemble is None else find_vulnerability_warning(find_jars())
    if warning is not None:
        report(f"WARN {warning}")
    print(f"ready {cluster.bootstrap_servers}", flush=True)
    code = _watch(cluster, stop, report)
    try:
        cluster.stop()
    except ExceptionGroup as failures:
        for failure in failures.exceptions:
            report(str(failure))
        return FAILED
    return code


def _watch(cluster: LocalCluster, stop: threading.Event, report: Report) -> int:
    while not stop.wait(_LOOK_EVERY_S):
        for broker_id, process in cluster.take_ended():
            logs = process.read_logs(LAST_WORDS_BYTES)
            process.kill()  # it has exited; release its pipes and its log
            report(f"broker {broker_id} exited; the end of its log:\n{logs}")
        if not cluster.processes:
            report("all brokers have exited; stopping")
            return FAILED
    return 0
