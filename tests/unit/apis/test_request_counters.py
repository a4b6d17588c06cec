"""Requests, errors and traffic are counted where they happen."""

from collections import Counter
from datetime import timedelta

from tests.unit.apis.brokers_listener import let_brokers_in
from tests.unit.apis.harness import ME, OTHER, ApiHarness, batch, topic_id_of
from tests.unit.metrics.made_statistics import make_statistics

from penstock.apis.request_counters import ApiRequestStatistics
from penstock.metrics.broker_families import broker_families
from penstock.metrics.exposition import render
from penstock.metrics.families import Dialect
from penstock.metrics.windows import RecentRequests
from penstock.protocol.api_keys import ApiKey
from penstock.replication.topic_traffic import TrafficStatistics


def requests_of(harness: ApiHarness, name: str) -> ApiRequestStatistics:
    return {api.name: api for api in harness.dispatcher.statistics()}[name]


def traffic_of(harness: ApiHarness, topic: str) -> TrafficStatistics:
    """With what the current leaderships have appended."""
    statistics = harness.replicas.statistics()
    total = statistics.traffic[topic]
    for partition in statistics.partitions:
        if partition.tp.topic == topic:
            total = total._replace(
                messages_in=total.messages_in + partition.messages_in,
                bytes_in=total.bytes_in + partition.bytes_in,
            )
    return total


def produce(harness: ApiHarness, topic: str, *, partition: int = 0, size: int = 10) -> None:
    entry = {"index": partition, "records": batch(b"v" * size, b"w")}
    topics = [{"name": topic, "partition_data": [entry]}]
    harness.send(ApiKey.PRODUCE, 9, acks=1, topic_data=topics)


def fetch(harness: ApiHarness, offset: int = 0, *, follower: int = -1, version: int = 12) -> None:
    entry = {
        "partition": 0,
        "fetch_offset": offset,
        "partition_max_bytes": 1 << 20,
        "current_leader_epoch": 0,
        "last_fetched_epoch": -1,
    }
    topic = {"topic": "orders", "topic_id": topic_id_of("orders"), "partitions": [entry]}
    harness.send(ApiKey.FETCH, version, replica_id=follower, max_bytes=1 << 20, topics=[topic])


def test_requests_are_counted_by_api_and_version(harness: ApiHarness) -> None:
    harness.ask(ApiKey.METADATA, 5)
    harness.ask(ApiKey.METADATA, 9)
    harness.ask(ApiKey.METADATA, 9)
    metadata = requests_of(harness, "Metadata")
    assert metadata.versions == {5: 1, 9: 2}
    assert metadata.requests == metadata.total.total == metadata.local.total == 3
    assert metadata.errors == {}


def test_a_refused_partition_counts_as_an_error_of_its_request(harness: ApiHarness) -> None:
    produce(harness, "absent")
    assert requests_of(harness, "Produce").errors == {"UNKNOWN_TOPIC_OR_PARTITION": 1}
    other = harness.replicas.statistics().other_traffic
    assert (other.produces, other.failed_produces) == (1, 1)


def test_a_response_with_an_error_code_is_counted(harness: ApiHarness) -> None:
    reply = harness.ask(ApiKey.FIND_COORDINATOR, 2, key="g", key_type=9)
    assert reply.error_code
    counted = requests_of(harness, "FindCoordinator")
    assert (counted.requests, sum(counted.errors.values())) == (1, 1)


def test_errors_inside_of_a_response_are_counted(harness: ApiHarness) -> None:
    entries = [{"partition_index": index, "timestamp": -1} for index in range(3)]
    topics = [{"name": "absent", "partitions": entries}]
    reply = harness.ask(ApiKey.LIST_OFFSETS, 5, topics=topics)
    codes = [entry.error_code.name for entry in reply.topics[0].partitions]
    counted = requests_of(harness, "ListOffsets")
    assert counted.errors == Counter(codes)
    assert (sum(counted.errors.values()), counted.failed) == (3, 1)


def test_a_delayed_request_is_remote_while_it_waits(harness: ApiHarness) -> None:
    harness.make_topic("orders")
    entry = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}
    topics = [{"topic": "orders", "partitions": [entry]}]
    wait = timedelta(milliseconds=500)
    sent = harness.send(
        ApiKey.FETCH, 12, max_wait=wait, min_bytes=1, max_bytes=1 << 20, topics=topics
    )
    was_answered = sent.is_answered
    assert requests_of(harness, "FetchConsumer").total.total == 0
    produce(harness, "orders")
    assert (was_answered, sent.is_answered) == (False, True)
    consumer = requests_of(harness, "FetchConsumer")
    assert (consumer.total.total, consumer.local.total, consumer.remote.total) == (1, 1, 1)
    assert consumer.remote.sum_s + consumer.local.sum_s <= consumer.total.sum_s + 1e-9


def test_followers_fetches_are_apart_from_consumers(harness: ApiHarness) -> None:
    harness.make_topic("orders", replicas=(ME, OTHER))
    fetch(harness)
    fetch(harness, follower=OTHER)
    fetch(harness, follower=OTHER)
    counts = {
        name: requests_of(harness, name).requests
        for name in ("Fetch", "FetchConsumer", "FetchFollower")
    }
    assert counts == {"Fetch": 3, "FetchConsumer": 1, "FetchFollower": 2}
    assert requests_of(harness, "Fetch").total.total == 3
    assert requests_of(harness, "FetchFollower").total.total == 2


def test_traffic_counts_bytes_and_records_both_ways(harness: ApiHarness) -> None:
    harness.make_topic("orders", 2)
    produce(harness, "orders")
    produce(harness, "orders", partition=1)
    written = sum(partition.size_bytes for partition in harness.replicas.statistics().partitions)
    fetch(harness)
    fetch(harness, offset=99)
    counted = traffic_of(harness, "orders")
    assert counted.messages_in == 4
    assert counted.bytes_in == written
    assert counted.bytes_out == written // 2
    assert (counted.produces, counted.fetches, counted.failed_fetches) == (2, 2, 1)
    assert counted.replication_bytes_out == 0


def test_bytes_to_followers_are_apart_from_consumers(harness: ApiHarness) -> None:
    let_brokers_in(harness)
    harness.make_topic("orders", replicas=(ME, OTHER))
    produce(harness, "orders")
    fetch(harness, follower=OTHER)
    counted = traffic_of(harness, "orders")
    assert counted.bytes_out == 0
    assert counted.replication_bytes_out == counted.bytes_in > 0


def test_a_batch_that_is_too_large_counts_as_rejected(harness: ApiHarness) -> None:
    harness.make_topic("orders", configs={"max.message.bytes": "100"})
    produce(harness, "orders", size=1000)
    counted = traffic_of(harness, "orders")
    assert counted.failed_produces == 1
    assert counted.bytes_rejected > 1000
    assert counted.messages_in == 0


def test_totals_do_not_fall_when_leadership_or_a_topic_ends(harness: ApiHarness) -> None:
    harness.make_topic("orders", replicas=(ME, OTHER))
    produce(harness, "orders")
    before = traffic_of(harness, "orders")
    assert before.messages_in == 2
    harness.make_topic("orders", epoch=1, replicas=(ME, OTHER), leader=OTHER)
    assert traffic_of(harness, "orders")[:2] == before[:2]
    assert traffic_of(harness, "orders").messages_in == before.messages_in
    harness.delete_topic("orders")
    assert harness.replicas.statistics().traffic == {}
    assert harness.replicas.statistics().other_traffic == before


def test_responses_without_error_never_become_fewer(harness: ApiHarness) -> None:
    """An error counts once a partition, so errors may outnumber requests."""
    harness.make_topic("orders")
    produce(harness, "orders")
    assert without_error(harness) == 1
    entries = [{"index": index, "records": batch(b"v")} for index in range(7)]
    topics = [{"name": "absent", "partition_data": entries}]
    harness.send(ApiKey.PRODUCE, 9, acks=1, topic_data=topics)
    assert requests_of(harness, "Produce").errors == {"UNKNOWN_TOPIC_OR_PARTITION": 7}
    assert without_error(harness) == 1
    produce(harness, "orders")
    assert without_error(harness) == 2


def without_error(harness: ApiHarness) -> int:
    statistics = make_statistics(())._replace(requests=harness.dispatcher.statistics())
    recent = RecentRequests(0.0)
    recent.look(1.0, statistics.requests, {})
    text = b"".join(render(broker_families(statistics, recent, {}), Dialect.A)).decode()
    name = 'kafka_network_requestmetrics_errors_total{request="Produce",error="NONE"} '
    (line,) = [line for line in text.splitlines() if line.startswith(name)]
    return int(line.removeprefix(name))
