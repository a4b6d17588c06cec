"""Decides which xdist worker runs what next: computing beside waiting, the longest first.

Tests of groups and scenarios wait for processes that they started: brokers, JVMs. A worker that
only waits leaves a core idle, so one worker always computes as long as there is work of both kinds.
The tests of a group share processes, except for "cluster": its files start their own and are spread
over the workers.
Short tests are scheduled by file, because scheduling each one costs more than many of them take.
Invariant: every test belongs to one scope, and all tests of a scope run on one worker, in order.
"""

from __future__ import annotations

from collections.abc import Iterable

from xdist.scheduler import LoadGroupScheduling  # type: ignore[import-untyped]
from xdist.workermanage import WorkerController  # type: ignore[import-untyped]

# Groups whose files share no process: each file is a scope, and of long tests each test.
SPREAD = ("cluster",)
# What waits, in the order in which it starts: the longest first, but Sparks, which compute much,
# beside clusters, which wait much. Unlisted scopes follow.
LONGEST = (
    "spark", "cluster tests/cluster/test_faults.py", "spark-kills",
    "cluster tests/cluster/test_balance.py", "clients", "spark-parity", "zookeeper",
    "spark-processes", "tests/scenarios/test_up.py", "cluster tests/cluster/test_lost_replicas.py",
    "cluster tests/cluster/test_replica_replacement.py", "raw transactions",
    "groups-confluent-kafka", "groups-java", "delayed messages", "exactly-once sink",
    "groups-kafka-python", "cluster tests/cluster/test_delayed_messages.py",
    "cluster tests/cluster/test_zookeeper_consumer.py",
    "cluster tests/cluster/test_exactly_once.py", "group-restarts", "transactions",
    "cluster tests/cluster/test_zookeeper_outage.py", "cluster tests/cluster/test_up_brokers.py",
    "cluster tests/cluster/test_half_messages.py", "tls", "client-java", "transactions-java",
    "kafka",
)  # fmt: skip
# Folders whose tests wait for processes, in a group or not.
WAITING = ("tests/scenarios/", "tests/clients/")
# Folders whose tests take seconds each, the longest first; other tests are scheduled by file.
LONG_TESTS = ("tests/simulation/", "tests/examples/", "tests/properties/", "tests/crash/")


def scope_of(test: str) -> str:
    """The scope of a test: its group, or itself if it is long, or its file."""
    if test.rfind("@") > test.rfind("]"):
        test, _, group = test.rpartition("@")
        return f"{group} {_unshared(test)}" if group in SPREAD else group
    return _unshared(test)


def _unshared(test: str) -> str:
    return test if test.startswith(LONG_TESTS) else test.partition("::")[0]


def is_waiting(scope: str) -> bool:
    """Whether its tests wait for processes that they started."""
    return scope.startswith(WAITING) or not scope.startswith("tests/")


def choose_scope(scopes: Iterable[str], *, waiting_at_work: int, workers: int) -> str:
    """The next scope for a worker, given how many other workers are waiting."""
    wants_waiting = waiting_at_work < workers - 1
    return min(scopes, key=lambda scope: (is_waiting(scope) != wants_waiting, _rank(scope)))


def _rank(scope: str) -> int:
    if is_waiting(scope):
        return LONGEST.index(scope) if scope in LONGEST else len(LONGEST)
    ranks = (rank for rank, folder in enumerate(LONG_TESTS) if scope.startswith(folder))
    return next(ranks, len(LONG_TESTS))


class SideBySide(LoadGroupScheduling):  # type: ignore[misc]
    """xdist's scheduler, except for what a scope is and which comes next."""

    def _split_scope(self, nodeid: str) -> str:
        return scope_of(nodeid)

    def _assign_work_unit(self, node: WorkerController) -> None:
        others = [other for other in self.nodes if other is not node]
        at_work = sum(self._waits(other) for other in others)
        scope = choose_scope(self.workqueue, waiting_at_work=at_work, workers=len(self.nodes))
        self.workqueue.move_to_end(scope, last=False)
        super()._assign_work_unit(node)

    def _waits(self, node: WorkerController) -> bool:
        assigned = self.assigned_work[node].items()
        return any(is_waiting(scope) and not all(tests.values()) for scope, tests in assigned)
