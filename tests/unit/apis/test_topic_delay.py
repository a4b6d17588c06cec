"""A topic with a delay: how far each kind of reader sees, and when a waiting fetch is answered."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.unit.apis.brokers_listener import let_brokers_in
from tests.unit.apis.harness import ME, NOW_MS, OTHER, ApiHarness, Sent, batch, node, topic_id_of

from penstock.model.cluster import BrokerId
from penstock.model.errors import ErrorCode
from penstock.model.ids import Offset, TopicPartition
from penstock.protocol.api_keys import ApiKey
from penstock.protocol.batch import iter_headers, stamp_append_time
from penstock.protocol.control import build_end_marker_batch
from penstock.protocol.records import Record, build_batch
from penstock.storage.engine import AppendItem, AppendOrigin, LogAppendInfo

DELAY_MS = 1_000
DELAYED = {"message.timestamp.type": "LogAppendTime", "penstock.delay.ms": str(DELAY_MS)}
P0 = TopicPartition("retry", 0)
LATEST, LARGEST = -1, -3
SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
FAR_BACK_MS = NOW_MS - 50_000  # producers' times, which must not matter


def make_topic(harness: ApiHarness, **options: Any) -> None:
    harness.make_topic("retry", configs=DELAYED, **options)


def pass_ms(harness: ApiHarness, duration_ms: int) -> None:
    """Both clocks: the wall clock first, because timers read it."""
    harness.wall_ms += duration_ms
    harness.clock.advance_ms(duration_ms)


def fetch(
    harness: ApiHarness,
    offset: int = 0,
    *,
    wait_ms: int = 0,
    isolation: int = 0,
    min_bytes: int = 1,
    follower: int = -1,
    **values: Any,
) -> Sent:
    partition = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
    if follower >= 0:
        partition |= {"current_leader_epoch": 0}
    return harness.send(
        ApiKey.FETCH,
        16,
        max_wait=timedelta(milliseconds=wait_ms),
        min_bytes=min_bytes,
        max_bytes=1 << 20,
        isolation_level=isolation,
        replica_state={"replica_id": follower, "replica_epoch": -1},
        topics=[
            {"topic": "retry", "topic_id": topic_id_of("retry"), "partitions": [partition]},
        ],
        **values,
    )


def only(sent: Sent) -> Any:
    ((answer,),) = ([*topic.partitions] for topic in sent.reply.responses)
    return answer


def seen(sent: Sent) -> tuple[int, int, int, list[int]]:
    """Error, high watermark, last stable offset, and the offsets of the batches."""
    answer = only(sent)
    batches = [header.base_offset for _, header in iter_headers(bytes(answer.records))]
    return answer.error_code, answer.high_watermark, answer.last_stable_offset, batches


def list_offset(harness: ApiHarness, timestamp: int, isolation: int = 0) -> tuple[int, int]:
    partition = {"partition_index": 0, "timestamp": timestamp, "current_leader_epoch": -1}
    reply = harness.ask(
        ApiKey.LIST_OFFSETS,
        9,
        replica_id=-1,
        isolation_level=isolation,
        topics=[{"name": "retry", "partitions": [partition]}],
    )
    (answer,) = reply.topics[0].partitions
    assert answer.error_code == 0
    return answer.offset, answer.timestamp


@pytest.mark.parametrize("isolation", [0, 1])
def test_a_record_is_read_once_it_has_been_in_the_log_for_the_delay(
    harness: ApiHarness, isolation: int
) -> None:
    make_topic(harness)
    harness.fill("retry", batch(b"a", b"b", at_ms=FAR_BACK_MS))
    pass_ms(harness, 400)
    harness.fill("retry", batch(b"c", at_ms=FAR_BACK_MS))
    assert seen(fetch(harness, isolation=isolation)) == (0, 0, 0, [])
    pass_ms(harness, DELAY_MS - 401)
    assert seen(fetch(harness, isolation=isolation)) == (0, 0, 0, [])
    pass_ms(harness, 1)
    assert seen(fetch(harness, isolation=isolation)) == (0, 2, 2, [0])
    pass_ms(harness, 400)
    assert seen(fetch(harness, isolation=isolation)) == (0, 3, 3, [0, 2])


def test_a_fetch_between_visible_end_and_log_end_waits(harness: ApiHarness) -> None:
    make_topic(harness)
    harness.fill("retry", batch(b"a"), batch(b"b"), batch(b"c"))
    for offset in (0, 1, 3):
        assert seen(fetch(harness, offset)) == (0, 0, 0, [])
    assert only(fetch(harness, 4)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_waiting_fetch_is_answered_the_moment_a_record_is_visible(harness: ApiHarness) -> None:
    make_topic(harness)
    sent = fetch(harness, wait_ms=60_000)
    pass_ms(harness, 5)
    harness.fill("retry", batch(b"a"))
    pass_ms(harness, 300)
    harness.fill("retry", batch(b"b"))
    pass_ms(harness, DELAY_MS - 301)
    assert not sent.is_answered
    pass_ms(harness, 1)
    assert seen(sent) == (0, 1, 1, [0])
    following = fetch(harness, 1, wait_ms=60_000)
    pass_ms(harness, 299)
    assert not following.is_answered
    pass_ms(harness, 1)
    assert seen(following) == (0, 2, 2, [1])
    assert harness.clock.pending == 0


def test_a_fetch_waits_on_for_min_bytes_until_more_is_visible(harness: ApiHarness) -> None:
    make_topic(harness)
    harness.fill("retry", batch(b"a"))
    pass_ms(harness, 100)
    harness.fill("retry", batch(b"b"))
    size = len(batch(b"a"))
    sent = fetch(harness, wait_ms=60_000, min_bytes=size + 1)
    pass_ms(harness, DELAY_MS - 1)
    assert not sent.is_answered
    pass_ms(harness, 1)
    assert seen(sent) == (0, 2, 2, [0, 1])


def test_a_clock_that_is_set_back_hides_nothing_again(harness: ApiHarness) -> None:
    make_topic(harness)
    harness.fill("retry", batch(b"a"))
    pass_ms(harness, DELAY_MS)
    assert seen(fetch(harness)) == (0, 1, 1, [0])
    harness.wall_ms -= 10 * DELAY_MS
    assert seen(fetch(harness)) == (0, 1, 1, [0])
    harness.fill("retry", batch(b"b"))
    sent = fetch(harness, 1, wait_ms=60_000)
    pass_ms(harness, DELAY_MS)
    assert seen(sent) == (0, 2, 2, [1])


def test_a_waiting_fetch_outlives_a_clock_that_is_set_back(harness: ApiHarness) -> None:
    make_topic(harness)
    harness.fill("retry", batch(b"a"))
    sent = fetch(harness, wait_ms=60_000)
    harness.wall_ms -= 500
    pass_ms(harness, DELAY_MS)
    assert not sent.is_answered
    pass_ms(harness, 500)
    assert seen(sent) == (0, 1, 1, [0])


def test_changing_the_delay_applies_to_records_in_the_log(harness: ApiHarness) -> None:
    make_topic(harness)
    harness.fill("retry", batch(b"a"))
    sent = fetch(harness, wait_ms=60_000)
    topic = harness.cluster.find_topic("retry")
    assert topic is not None
    harness.update_metadata(replace(topic, configs=DELAYED | {"penstock.delay.ms": "0"}))
    assert seen(sent) == (0, 1, 1, [0])
    harness.update_metadata(replace(topic, configs=DELAYED | {"penstock.delay.ms": "5000"}))
    assert seen(fetch(harness, 1)) == (0, 0, 0, [])
    pass_ms(harness, 5_000)
    assert seen(fetch(harness)) == (0, 1, 1, [0])
    assert harness.clock.pending == 0


def test_records_from_before_the_topic_had_append_times_stay_visible(harness: ApiHarness) -> None:
    """A producer's time may lie in the future, and says nothing about the append."""
    harness.make_topic("retry")
    harness.fill("retry", batch(b"old", at_ms=NOW_MS + 60_000))
    topic = harness.cluster.find_topic("retry")
    assert topic is not None
    harness.update_metadata(replace(topic, configs=DELAYED))
    harness.fill("retry", batch(b"new"))
    assert seen(fetch(harness)) == (0, 1, 1, [0])
    pass_ms(harness, DELAY_MS)
    assert seen(fetch(harness)) == (0, 2, 2, [0, 1])


# -- transactions --------------------------------------------------------------------------


def test_an_open_transaction_holds_the_last_stable_offset_as_ever(harness: ApiHarness) -> None:
    make_topic(harness)
    open_batch = batch(b"a", producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    append(harness, open_batch)
    harness.fill("retry", batch(b"b"))
    pass_ms(harness, DELAY_MS)
    assert seen(fetch(harness, isolation=1)) == (0, 2, 0, [])
    marker = build_end_marker_batch(
        commit=True, coordinator_epoch=1, producer_id=7, producer_epoch=0, timestamp_ms=NOW_MS
    )
    append(harness, marker)
    assert seen(fetch(harness, isolation=1)) == (0, 3, 3, [0, 1, 2])


def append(harness: ApiHarness, content: bytearray) -> None:
    codes: list[int] = []
    harness.replicas.append(
        [(P0, memoryview(content))],
        acks=1,
        timeout_ms=1,
        origin=AppendOrigin.COORDINATOR,
        done=lambda results: codes.extend(result.code for result in results),
    )
    assert codes == [0]


# -- other requests ------------------------------------------------------------------------


@pytest.mark.parametrize("isolation", [0, 1])
def test_offsets_are_listed_up_to_the_visible_end(harness: ApiHarness, isolation: int) -> None:
    make_topic(harness)
    harness.fill("retry", batch(b"a", b"b"))
    pass_ms(harness, 100)
    harness.fill("retry", batch(b"c"))
    pass_ms(harness, DELAY_MS - 100)
    assert list_offset(harness, LATEST, isolation) == (2, -1)
    assert list_offset(harness, NOW_MS, isolation) == (0, NOW_MS)
    assert list_offset(harness, NOW_MS + 1, isolation) == (-1, -1)
    assert list_offset(harness, LARGEST, isolation) == (0, NOW_MS)
    pass_ms(harness, 100)
    assert list_offset(harness, LATEST, isolation) == (3, -1)
    assert list_offset(harness, NOW_MS + 1, isolation) == (2, NOW_MS + 100)
    assert list_offset(harness, LARGEST, isolation) == (2, NOW_MS + 100)


def test_nothing_visible_has_no_largest_timestamp(harness: ApiHarness) -> None:
    make_topic(harness)
    assert list_offset(harness, LARGEST) == (-1, -1)
    harness.fill("retry", batch(b"a"))
    assert list_offset(harness, LARGEST) == (-1, -1)


def test_old_style_offsets_end_at_the_visible_end(harness: ApiHarness) -> None:
    make_topic(harness)
    harness.fill("retry", batch(b"a"))
    pass_ms(harness, DELAY_MS)
    harness.fill("retry", batch(b"b"))
    partition = {"partition_index": 0, "timestamp": LATEST, "max_num_offsets": 5}
    reply = harness.ask(
        ApiKey.LIST_OFFSETS,
        0,
        replica_id=-1,
        topics=[{"name": "retry", "partitions": [partition]}],
    )
    assert reply.topics[0].partitions[0].old_style_offsets == (1, 0)


def test_deleting_all_records_stops_at_the_visible_end(harness: ApiHarness) -> None:
    make_topic(harness)
    harness.fill("retry", batch(b"a"), batch(b"b"))
    pass_ms(harness, DELAY_MS)
    harness.fill("retry", batch(b"c"))
    assert harness.replicas.delete_records(P0, Offset(-1)) == 2
    assert seen(fetch(harness, 2)) == (0, 2, 2, [])
    pass_ms(harness, DELAY_MS)
    assert seen(fetch(harness, 2)) == (0, 3, 3, [2])


def test_a_deleted_record_holds_back_nobody(harness: ApiHarness) -> None:
    """The one behind it is due before it, because the clock was set back in between."""
    make_topic(harness)
    harness.fill("retry", batch(b"a"))
    assert seen(fetch(harness)) == (0, 0, 0, [])
    harness.wall_ms -= 400
    harness.fill("retry", batch(b"b"))
    assert harness.replicas.delete_records(P0, Offset(1)) == 1
    sent = fetch(harness, 1, wait_ms=60_000)
    pass_ms(harness, DELAY_MS - 1)
    assert not sent.is_answered
    pass_ms(harness, 1)
    assert seen(sent) == (0, 2, 2, [1])


def test_lag_counts_what_consumers_can_read(harness: ApiHarness) -> None:
    make_topic(harness)
    harness.fill("retry", batch(b"a"), batch(b"b"))
    (partition,) = harness.replicas.statistics().partitions
    assert (partition.visible_end, partition.high_watermark) == (0, 2)
    pass_ms(harness, DELAY_MS)
    (partition,) = harness.replicas.statistics().partitions
    assert (partition.visible_end, partition.high_watermark) == (2, 2)


# -- replicas ------------------------------------------------------------------------------


def test_followers_read_everything_and_are_told_the_true_ends(harness: ApiHarness) -> None:
    let_brokers_in(harness)
    make_topic(harness, replicas=(ME, OTHER))
    harness.fill("retry", batch(b"a"), batch(b"b"))
    assert seen(fetch(harness, follower=OTHER)) == (0, 0, 0, [0, 1])
    assert seen(fetch(harness, 2, follower=OTHER)) == (0, 2, 2, [])
    assert seen(fetch(harness, 0)) == (0, 0, 0, [])
    pass_ms(harness, DELAY_MS)
    assert seen(fetch(harness, 0)) == (0, 2, 2, [0, 1])


def test_records_that_are_not_committed_stay_hidden_after_the_delay(harness: ApiHarness) -> None:
    let_brokers_in(harness)
    make_topic(harness, replicas=(ME, OTHER))
    harness.fill("retry", batch(b"a"))
    sent = fetch(harness, 0, wait_ms=60_000)
    pass_ms(harness, 2 * DELAY_MS)
    assert not sent.is_answered
    fetch(harness, 1, follower=OTHER)
    assert seen(sent) == (0, 1, 1, [0])


@pytest.fixture
def near(tmp_path: Path) -> Iterator[ApiHarness]:
    """A broker that consumers in its rack may read from, though it does not lead."""
    harness = ApiHarness(tmp_path, settings={"replica.selector.class": SELECTOR})
    harness.update_metadata(brokers=(node(ME), node(OTHER)))
    yield harness
    harness.close()


def test_consumers_of_a_follower_are_held_back_like_those_of_the_leader(near: ApiHarness) -> None:
    make_topic(near, replicas=(OTHER, ME), leader=BrokerId(OTHER))
    follow(near, 0, NOW_MS)
    follow(near, 1, NOW_MS + 100)
    sent = fetch(near, 0, wait_ms=60_000, rack_id="rack-1")
    pass_ms(near, DELAY_MS - 1)
    assert not sent.is_answered
    pass_ms(near, 1)
    assert seen(sent) == (0, 1, 1, [0])
    pass_ms(near, 100)
    assert seen(fetch(near, 1, rack_id="rack-1")) == (0, 2, 2, [1])


def test_a_truncated_follower_hides_what_it_fetches_anew(near: ApiHarness) -> None:
    """Below the visible end that it had found before, as after an unclean election."""
    make_topic(near, replicas=(OTHER, ME), leader=BrokerId(OTHER))
    follow(near, 0, NOW_MS)
    follow(near, 1, NOW_MS)
    pass_ms(near, DELAY_MS)
    assert seen(fetch(near, 0, rack_id="rack-1")) == (0, 2, 2, [0, 1])
    partition = near.replicas.get(P0)
    partition.log.truncate_to(Offset(1), near.wall_ms)
    partition.on_truncated()
    follow(near, 1, near.wall_ms)
    follow(near, 2, near.wall_ms)
    assert seen(fetch(near, 1, rack_id="rack-1")) == (0, 1, 1, [])
    pass_ms(near, DELAY_MS)
    assert seen(fetch(near, 1, rack_id="rack-1")) == (0, 3, 3, [1, 2])


def follow(harness: ApiHarness, offset: int, append_ms: int) -> None:
    """Append what the leader would send, and learn that it is committed."""
    record = Record(offset, FAR_BACK_MS, b"key", b"v")
    content = build_batch([record], base_offset=offset, leader_epoch=0)
    stamp_append_time(content, 0, len(content), append_ms)
    partition = harness.replicas.get(P0)
    item = AppendItem(
        partition.log, memoryview(content), partition.leader_epoch, AppendOrigin.REPLICATION
    )
    (result,) = harness.engine.append([item], harness.wall_ms)
    assert isinstance(result, LogAppendInfo), result
    partition.log.advance_high_watermark(result.end_offset)
    harness.replicas.on_fetched(partition)
