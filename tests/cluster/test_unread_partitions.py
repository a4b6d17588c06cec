"""`penstock.Consumer` with a timeout and a partition that it cannot read, beside a broker that
answers: the iteration fails, because its end would say that all is read."""

import pytest
from tests.cluster.records import create_on, send

import penstock
from penstock.testing import Cluster

pytestmark = pytest.mark.xdist_group("cluster")

SESSION_MS = 600_000  # however slow the machine is, a frozen broker stays registered


def test_a_consumer_does_not_end_where_a_leader_does_not_answer() -> None:
    with Cluster(brokers=2, config={"zookeeper.session.timeout.ms": SESSION_MS}) as cluster:
        create_on(cluster, "read", (1,))
        create_on(cluster, "unread", (2,))
        send(cluster, "unread", "on a broker that does not answer")
        with penstock.Consumer(
            ("read", "unread"),
            bootstrap_servers=cluster.bootstrap_servers,
            from_beginning=True,
            timeout_s=1,
            connect_timeout_s=10,
        ) as consumer:
            assert next(consumer).topic == "unread"
            cluster.pause(2)
            # Names unread-0, or the topics where librdkafka asks the frozen broker for metadata.
            with pytest.raises(penstock.BrokersUnreachable, match="unread"):
                next(consumer)
