"""What readers of the log of leases find, when they begin late and when the broker is away."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import penstock
from penstock.client.cluster import ClusterClient
from penstock.client.errors import ClientError
from penstock.model.ids import Offset, TopicPartition
from penstock.spark.connect.connections import BlockingClient, ClientSettings, shared_client
from penstock.spark.sink.exactly_once.lease_log import (
    Introduction,
    IntroductionReader,
    RenewalReader,
    introduce,
    renew_lease,
)
from penstock.spark.sink.exactly_once.transactional_ids import LEASES_TOPIC

TIMEOUT_MS = 20_000
SOON_MS = 200
FIRST, SECOND = Introduction("plan-1", "query", "run"), Introduction("plan-2", "query", "run")


@pytest.fixture(name="own_broker")
def _own_broker() -> Iterator[penstock.Broker]:
    with penstock.Broker() as broker:
        yield broker


def client_of(broker: penstock.Broker) -> BlockingClient:
    return shared_client(ClientSettings(broker.bootstrap_servers))


def say(client: BlockingClient, introduction: Introduction) -> None:
    client.run(lambda cluster: introduce(cluster, introduction, timeout_ms=TIMEOUT_MS))


def introductions(client: BlockingClient, timeout_ms: int = TIMEOUT_MS) -> IntroductionReader:
    async def new(cluster: ClusterClient) -> IntroductionReader:
        return IntroductionReader(cluster, timeout_ms=timeout_ms)

    return client.run(new)


def test_a_batch_introduced_before_the_first_read_is_found(own_broker: penstock.Broker) -> None:
    client = client_of(own_broker)
    reader = introductions(client)
    assert client.run(lambda _: reader.read()) == []  # there is no topic
    say(client, FIRST)
    assert client.run(lambda _: reader.read()) == [FIRST]
    say(client, SECOND)
    assert client.run(lambda _: reader.read()) == [SECOND]
    late = introductions(client)
    assert client.run(lambda _: late.read()) == [FIRST, SECOND]


def test_what_was_written_while_reading_failed_is_read_afterwards(
    own_broker: penstock.Broker,
) -> None:
    client = client_of(own_broker)
    say(client, FIRST)
    reader = introductions(client, timeout_ms=SOON_MS)
    assert read_patiently(client, reader) == [FIRST]
    own_broker.kill()
    with pytest.raises(ClientError):
        client.run(lambda _: reader.read())
    own_broker.start()
    say(client, SECOND)
    assert read_patiently(client, reader) == [SECOND]


def read_patiently(client: BlockingClient, reader: IntroductionReader) -> list[Introduction]:
    """Repeats reads that fail: the reader waits 200 ms for an answer."""
    while True:
        try:
            return client.run(lambda _: reader.read())
        except ClientError:
            continue


def test_a_reader_that_was_behind_the_deleted_records_begins_anew(
    own_broker: penstock.Broker,
) -> None:
    client = client_of(own_broker)
    say(client, FIRST)
    reader = introductions(client)
    assert client.run(lambda _: reader.read()) == [FIRST]
    for _ in range(3):
        say(client, SECOND)
    with penstock.Admin(own_broker.bootstrap_servers) as admin:
        admin.delete_records({TopicPartition(LEASES_TOPIC, 0): Offset(3)})
    with pytest.raises(ClientError, match="OFFSET_OUT_OF_RANGE"):
        client.run(lambda _: reader.read())
    assert client.run(lambda _: reader.read()) == [SECOND]


def test_renewals_are_read_from_the_first_look_on(own_broker: penstock.Broker) -> None:
    client = client_of(own_broker)

    def renew(query: str) -> None:
        client.run(lambda cluster: renew_lease(cluster, query, timeout_ms=TIMEOUT_MS))

    async def new(cluster: ClusterClient) -> RenewalReader:
        return RenewalReader(cluster, timeout_ms=TIMEOUT_MS)

    renew("before")
    reader = client.run(new)
    assert client.run(lambda _: reader.read()) == set()
    renew("after")
    say(client, FIRST)
    assert client.run(lambda _: reader.read()) == {"after"}
