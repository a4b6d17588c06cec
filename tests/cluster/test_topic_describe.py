"""`penstock topic describe` on a cluster: each replica's offsets, and which one is behind."""

import json
import time
from typing import Any

import pytest
from tests.cluster.records import LEADER, ConnectedClient, create_on
from typer.testing import CliRunner

from penstock.cli.main import app
from penstock.testing import Cluster

pytestmark = pytest.mark.xdist_group("cluster")

SESSION_MS = 600_000  # however slow the machine is, a frozen broker stays registered and in sync
PATIENCE_S = 180.0


def run(cluster: Cluster, *options: str) -> str:
    arguments = ["--bootstrap", cluster.bootstrap_servers, "topic", "describe", "watched"]
    done = CliRunner().invoke(app, [*arguments, *options])
    assert done.exit_code == 0, done.output
    return done.stdout


def replicas(cluster: Cluster) -> list[dict[str, Any]]:
    (only,) = json.loads(run(cluster, "--json"))["partitions"]
    return list(only["replicas"])


def ends(replica: dict[str, Any]) -> tuple[int, bool, int, int]:
    return (replica["broker"], replica["answered"], replica["log_end_offset"], replica["behind"])


def test_a_frozen_follower_is_shown_as_the_one_that_is_behind() -> None:
    patient = {
        "zookeeper.session.timeout.ms": SESSION_MS,
        "replica.lag.time.max.ms": SESSION_MS,
    }
    with Cluster(brokers=2, config=patient) as cluster:
        create_on(cluster, "watched", (1, 2))
        with ConnectedClient(cluster) as client:
            client.send("watched", "replicated")
            assert [ends(replica) for replica in replicas(cluster)] == [
                (1, True, 1, 0),
                (2, True, 1, 0),
            ]
            cluster.pause(2)
            for number in range(3):
                client.send("watched", f"not replicated {number}", acks=LEADER)
            leader, frozen = replicas(cluster)
            text = run(cluster)
            cluster.resume(2)
        assert (ends(leader), leader["leader"]) == ((1, True, 4, 0), True)
        assert (ends(frozen), frozen["high_watermark"]) == ((2, False, 1, 3), None)
        assert frozen["behind_ms"] > 0
        (line,) = [line for line in text.splitlines() if "no answer" in line]
        assert line.split()[:2] == ["0", "2"]
        deadline = time.monotonic() + PATIENCE_S
        while ends(replicas(cluster)[1]) != (2, True, 4, 0):
            assert time.monotonic() < deadline, replicas(cluster)
