"""Leaders and followers fail with diverging logs: which records survive, and why."""

import json
from collections.abc import Iterator

import pytest
from tests.cluster.records import (
    LEADER,
    ConnectedClient,
    create_on,
    read,
    send,
    stored,
    wait_stored,
)
from tests.stored_batches import has_shared_log
from typer.testing import CliRunner

from penstock.cli.main import app
from penstock.model.admin import ElectionType
from penstock.model.cluster import NO_BROKER
from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicPartition
from penstock.storage.verify import verify_directory
from penstock.testing import Cluster

pytestmark = pytest.mark.xdist_group("cluster")

SESSION_MS = 12_000  # long enough that a paused broker resumes before its session expires


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=3, config={"zookeeper.session.timeout.ms": SESSION_MS}) as cluster:
        create_on(cluster, "last-straw", (1, 2, 3))
        yield cluster


def freeze(cluster: Cluster, follower: int, client: ConnectedClient) -> None:
    """Stops the follower from getting records of broker 1.

    The follower has a fetch of all topics waiting there; an unrelated record completes it. Later
    records therefore stay with the leader.
    """
    cluster.pause(follower)
    client.send("last-straw", "for the frozen", acks=LEADER)


def test_three_messages_survive_a_lost_leader(cluster: Cluster) -> None:
    """The leader has three records, A two, B one. One is committed when the leader fails."""
    leader, a, b = 1, 2, 3
    create_on(cluster, "story", (leader, a, b))
    with ConnectedClient(cluster) as client:
        client.send("last-straw", "hello")
        client.send("story", "first")
        freeze(cluster, b, client)
        client.send("story", "second", acks=LEADER)
        wait_stored(cluster, a, "story", ["first", "second"])
        freeze(cluster, a, client)
        client.send("story", "third", acks=LEADER)

        assert stored(cluster, leader, "story") == ["first", "second", "third"]
        assert stored(cluster, b, "story") == ["first"]
        assert client.read("story") == ["first"], "all of them: this took longer than a session"

    cluster.kill(leader)
    cluster.resume(a)
    cluster.resume(b)
    _wait_led_by(cluster, "story", a)
    wait_stored(cluster, b, "story", ["first", "second"])
    assert_strict_status_names_missing(cluster, leader)
    cluster.start(leader)
    wait_stored(cluster, leader, "story", ["first", "second"])

    # The third record was never acknowledged, so its producer sends it again.
    cluster.wait_in_sync("story", 0, 3)
    assert send(cluster, "story", "third") == 2
    assert read(cluster, "story") == ["first", "second", "third"]
    _restore_preferred_leader(cluster)


def assert_strict_status_names_missing(cluster: Cluster, broker: int) -> None:
    arguments = ["--bootstrap", cluster.bootstrap_servers, "cluster", "status", "--json"]
    lenient, strict = (
        CliRunner().invoke(app, [*arguments, *flags]) for flags in ([], ["--strict"])
    )
    assert (lenient.exit_code, strict.exit_code) == (0, 1)
    for done in (lenient, strict):
        status = json.loads(done.stdout)
        assert (status["status"], status["missing_brokers"]) == ("under-replicated", [broker])


def test_a_paused_leader_truncates_its_uncommitted_tail(cluster: Cluster) -> None:
    create_on(cluster, "tail", (1, 2, 3), {"min.insync.replicas": "2"})
    with ConnectedClient(cluster) as client:
        client.send("last-straw", "hello")
        client.send("tail", "kept")
        freeze(cluster, 2, client)
        freeze(cluster, 3, client)
        for number in range(5):
            client.send("tail", f"tail {number}", acks=LEADER)
        assert client.read("tail") == ["kept"], "all of them: this took longer than a session"
    cluster.pause(1)
    assert len(stored(cluster, 1, "tail")) == 6

    cluster.resume(2)
    cluster.resume(3)
    _wait_led_by(cluster, "tail", 2)
    assert send(cluster, "tail", "instead") == 1

    cluster.resume(1)
    cluster.wait_in_sync("tail", 0, 3)
    for broker in (1, 2, 3):
        wait_stored(cluster, broker, "tail", ["kept", "instead"])
        if not has_shared_log(cluster.data(broker)):
            assert not verify_directory(cluster.data(broker) / "tail-0").problems
    _restore_preferred_leader(cluster)


def test_with_all_replicas_down_election_is_clean_or_unclean(cluster: Cluster) -> None:
    """The careful topic waits for the in-sync replica. The eager topic elects the first replica
    that returns, uncleanly, and keeps only its records."""
    create_on(cluster, "careful", (1, 2))
    create_on(cluster, "eager", (1, 2), {"unclean.leader.election.enable": "true"})
    for topic in ("careful", "eager"):
        send(cluster, topic, "on both")
    cluster.kill(2)
    for topic in ("careful", "eager"):
        cluster.wait_partition(topic, 0, lambda state: state.in_sync == (1,))
        send(cluster, topic, "on one")
    cluster.kill(1)
    cluster.wait_partition("careful", 0, lambda state: state.leader == NO_BROKER)

    cluster.start(2)
    _wait_led_by(cluster, "eager", 2)  # the controller has seen broker 2's registration
    assert cluster.partition("careful", 0).leader == NO_BROKER
    assert _elect_preferred_leader(cluster, "careful") is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    assert read(cluster, "eager") == ["on both"]
    send(cluster, "eager", "after the loss")

    cluster.start(1)
    _wait_led_by(cluster, "careful", 1)
    for topic in ("careful", "eager"):
        cluster.wait_in_sync(topic, 0, 2)
    for broker in (1, 2):
        wait_stored(cluster, broker, "careful", ["on both", "on one"])
        wait_stored(cluster, broker, "eager", ["on both", "after the loss"])


def _wait_led_by(cluster: Cluster, topic: str, broker: int) -> None:
    cluster.wait_partition(topic, 0, lambda state: state.leader == broker)


def _restore_preferred_leader(cluster: Cluster) -> None:
    """Makes broker 1, its preferred leader, the leader again for the next scenario."""
    cluster.wait_in_sync("last-straw", 0, 3)
    cluster.ask(lambda client: client.reassignments.elect_leaders(None))
    _wait_led_by(cluster, "last-straw", 1)


def _elect_preferred_leader(cluster: Cluster, topic: str) -> ErrorCode:
    tp = TopicPartition(topic, 0)
    results = cluster.ask(
        lambda client: client.reassignments.elect_leaders([tp], choice=ElectionType.PREFERRED)
    )
    return results[tp].code
