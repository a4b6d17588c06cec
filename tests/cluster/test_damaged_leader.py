"""A real leader whose log is damaged on disk: an in-sync replica takes over, and the log is
repaired."""

import pytest
from tests.cluster.records import create_on, read, send, wait_stored
from tests.profile import is_long
from tests.stored_batches import has_shared_log

from penstock.model.ids import TopicPartition
from penstock.testing import Cluster

pytestmark = [
    pytest.mark.xdist_group("cluster"),
    pytest.mark.skipif(not is_long(), reason="tests/unit/inter_broker has it in one process"),
]

TOPIC = TopicPartition("damaged", 0)
VALUES = [f"value {number}" for number in range(5)]


def test_a_leader_with_a_flipped_bit_is_replaced_and_repaired() -> None:
    with Cluster(brokers=3) as cluster:
        create_on(cluster, TOPIC.topic, (1, 2))
        for value in VALUES:
            send(cluster, TOPIC.topic, value)
        wait_stored(cluster, 2, TOPIC.topic, VALUES)
        flip_a_bit(cluster, 1)

        cluster.ask(lambda client: client.reassignments.alter({TOPIC: (1, 2, 3)}))
        cluster.wait(lambda: cluster.leader(*TOPIC), lambda leader: leader == 2)
        cluster.wait_in_sync(*TOPIC, 3)

        assert read(cluster, TOPIC.topic) == VALUES
        for broker in (1, 2, 3):
            wait_stored(cluster, broker, TOPIC.topic, VALUES)
        assert send(cluster, TOPIC.topic, "afterwards") == len(VALUES)
        assert cluster.logs(1).count("IS DAMAGED") == 1
        assert cluster.logs(3).count("cannot be appended") == 1


def flip_a_bit(cluster: Cluster, broker: int) -> None:
    """Flips a bit in the middle of the log, inside a record."""
    data = cluster.data(broker)
    folder = data / ("commitlog" if has_shared_log(data) else "damaged-0")
    value = VALUES[2].encode()
    [path] = [
        path
        for path in folder.iterdir()
        if path.suffix in ("", ".log") and value in path.read_bytes()
    ]
    with path.open("r+b") as log:
        position = path.read_bytes().index(value)
        log.seek(position)
        byte = log.read(1)[0]
        log.seek(position)
        log.write(bytes([byte ^ 1]))
