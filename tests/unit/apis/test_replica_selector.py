"""A consumer reads from a replica in its rack, if the broker selects replicas (KIP-392)."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.unit.apis.harness import ME, OTHER, ApiHarness, Sent, batch, node, topic_id_of

from penstock.apis.registry import APIS
from penstock.model.errors import ErrorCode
from penstock.model.ids import Offset, TopicPartition
from penstock.protocol.api_keys import ApiKey

KEY = ApiKey.FETCH
VERSIONS = [version for version in APIS[KEY].versions if version >= 11]
P0 = TopicPartition("orders", 0)
BOTH = (ME, OTHER)
SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


@pytest.fixture
def near(tmp_path: Path) -> Iterator[ApiHarness]:
    """A broker in rack-1, whose follower is in rack-2."""
    harness = ApiHarness(tmp_path, settings={"replica.selector.class": SELECTOR})
    harness.update_metadata(brokers=(node(ME), node(OTHER)))
    yield harness
    harness.close()


def fetch(
    harness: ApiHarness,
    offset: int = 0,
    *,
    rack: str = "rack-2",
    version: int = VERSIONS[-1],
    wait_ms: int = 0,
    epoch: int = -1,
) -> Sent:
    requested = {
        "partition": 0,
        "fetch_offset": offset,
        "partition_max_bytes": 1 << 20,
        "current_leader_epoch": epoch,
    }
    return harness.send(
        KEY,
        version,
        rack_id=rack,
        max_wait=timedelta(milliseconds=wait_ms),
        min_bytes=1,
        max_bytes=1 << 20,
        topics=[{"topic": "orders", "topic_id": topic_id_of("orders"), "partitions": [requested]}],
    )


def only(sent: Sent) -> Any:
    ((answer,),) = ([*topic.partitions] for topic in sent.reply.responses)
    return answer


def lead(harness: ApiHarness, *, follower_end: int) -> None:
    harness.make_topic("orders", replicas=BOTH)
    harness.fill("orders", batch(b"a"), batch(b"b"))
    harness.replicas.update_follower_end_offset(
        harness.replicas.get(P0), OTHER, Offset(follower_end)
    )


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("wait_ms", [0, 500])
def test_a_consumer_is_sent_to_a_follower_in_its_rack(
    near: ApiHarness, version: int, wait_ms: int
) -> None:
    lead(near, follower_end=2)
    answer = only(fetch(near, 2, version=version, wait_ms=wait_ms))
    assert (answer.error_code, answer.preferred_read_replica) == (0, OTHER)
    assert not answer.records
    assert answer.high_watermark == 2


@pytest.mark.parametrize("rack", ["", "rack-1", "rack-3"])
def test_a_consumer_in_the_leaders_rack_or_in_no_rack_stays(near: ApiHarness, rack: str) -> None:
    lead(near, follower_end=2)
    answer = only(fetch(near, rack=rack))
    assert answer.preferred_read_replica == -1
    assert answer.records


def test_a_follower_without_the_offset_is_not_selected(near: ApiHarness) -> None:
    lead(near, follower_end=1)
    assert only(fetch(near, 1)).preferred_read_replica == OTHER
    assert only(fetch(near, 2)).preferred_read_replica == -1


def test_without_the_selector_no_consumer_is_redirected(harness: ApiHarness) -> None:
    harness.update_metadata(brokers=(node(ME), node(OTHER)))
    lead(harness, follower_end=2)
    assert only(fetch(harness)).preferred_read_replica == -1


def follow(harness: ApiHarness, *, high_watermark: int) -> None:
    """Become a follower with two records, and this high watermark."""
    harness.make_topic("orders", replicas=BOTH)
    harness.fill("orders", batch(b"a"), batch(b"b"))
    harness.make_topic("orders", replicas=BOTH, leader=OTHER, epoch=1)
    harness.replicas.get(P0).log.advance_high_watermark(Offset(high_watermark))


@pytest.mark.parametrize("version", VERSIONS)
def test_a_follower_serves_committed_records(near: ApiHarness, version: int) -> None:
    follow(near, high_watermark=1)
    answer = only(fetch(near, rack="rack-1", version=version))
    assert (answer.error_code, answer.high_watermark, answer.preferred_read_replica) == (0, 1, -1)
    assert len(bytes(answer.records)) == len(batch(b"a"))


def test_a_follower_refuses_consumers_of_another_epoch(near: ApiHarness) -> None:
    follow(near, high_watermark=2)
    assert only(fetch(near, epoch=0)).error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert only(fetch(near, epoch=2)).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert only(fetch(near, epoch=1)).error_code == ErrorCode.NONE


def test_a_follower_refuses_versions_without_read_replicas(near: ApiHarness) -> None:
    follow(near, high_watermark=2)
    assert only(fetch(near, version=10)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_follower_refuses_consumers_without_the_selector(harness: ApiHarness) -> None:
    follow(harness, high_watermark=2)
    assert only(fetch(harness)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
