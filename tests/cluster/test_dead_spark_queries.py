"""What a dead Spark query has left undecided is ended on a cluster whose brokers fail meanwhile."""

from __future__ import annotations

import pytest
from tests.profile import is_long
from tests.unit.spark.sink.exactly_once.sink_process import Work
from tests.unit.spark.sink.exactly_once.sink_state import decide_only, settled, undecided

from penstock.spark.sink.exactly_once.lease import LEAST_ABANDONED_AFTER_MS
from penstock.testing import Cluster

pytestmark = pytest.mark.xdist_group("cluster")
QUERIES = 6
TASKS = 4  # of each: its transactions have several coordinators
CONFIG = {
    "transaction.state.log.num.partitions": 9,
    "default.replication.factor": 3,
    "min.insync.replicas": 2,
}


@pytest.mark.skipif(not is_long(), reason="three brokers for half a minute: in `make verify`")
def test_left_overs_are_ended_although_brokers_are_killed_and_paused() -> None:
    with Cluster(brokers=3, config=CONFIG) as cluster:
        cluster.create_topic("copies", partitions=1, replication_factor=3)
        works = [
            Work(
                servers=cluster.bootstrap_servers,
                topic="copies",
                query=f"query-{number}",
                run="run",
                batch=number,
                tasks=TASKS,
                rows=2,
                abandoned_after_ms=LEAST_ABANDONED_AFTER_MS,
            )
            for number in range(QUERIES)
        ]
        prepared = [work.write_all() for work in works]
        decided = works[::2]
        for work, transactions in list(zip(works, prepared, strict=True))[::2]:
            decide_only(work, [transaction.state for transaction in transactions])
        cluster.pause(2)
        cluster.kill(1)
        cluster.resume(2)
        cluster.start(1)
        cluster.wait(lambda: sum(undecided(work) for work in works), lambda count: count == 0)
        expected = sorted(value for work in decided for value in work.values())
        assert settled(works[0]) == expected
