"""The streaming source against a real broker, called like Spark does."""

from itertools import count

import pytest
from tests.unit.spark.source.source_log import ALL, Log, Query, values

import penstock
from penstock.spark.errors import DataLoss, SparkSourceError
from penstock.spark.source.offset_json import strip_offset

pytestmark = pytest.mark.xdist_group("spark-source")

_numbers = count(1)


@pytest.fixture
def log(penstock_broker: penstock.Broker) -> Log:
    return Log(penstock_broker.bootstrap_servers, f"stream-reader-{next(_numbers)}")


def letters(text: str) -> list[bytes]:
    return [name.encode() for name in text]


# Where a query starts, also after a crash.


def test_new_query_starts_at_the_end_by_default(log: Log) -> None:
    log.create()
    log.write(0, letters("abc"))
    latest, earliest = Query(log.options()), Query(log.options(startingOffsets="earliest"))
    assert latest.run_batch() == []
    assert earliest.run_batch() == [(0, 0, b"a"), (0, 1, b"b"), (0, 2, b"c")]
    log.write(0, letters("de"))
    assert values(latest.drain()) == letters("de")
    assert values(earliest.drain()) == letters("de")


def test_crash_in_the_first_batch_loses_nothing_with_latest(log: Log) -> None:
    log.create()
    log.write(0, letters("before"))
    query = Query(log.options())
    query.reader.initialOffset()
    log.write(0, letters("abc"))
    assert query.plan_batch()  # its end is saved, but it never ran
    log.write(0, letters("de"))
    query.crash()
    log.add_partitions(2)
    log.write(1, letters("f"))
    assert values(query.run_batch()) == letters("abc")
    assert values(query.drain()) == letters("def")


def test_crash_in_the_first_batch_of_an_idle_topic_keeps_its_start(log: Log) -> None:
    log.create()
    query = Query(log.options())
    assert query.plan_batch() == []
    log.write(0, letters("abc"))
    query.crash()
    assert values(query.drain()) == letters("abc")


def test_rerun_batch_reads_the_same_rows(log: Log) -> None:
    log.create(partitions=2)
    query = Query(log.options(startingOffsets="earliest", maxOffsetsPerTrigger="4"))
    log.write(0, letters("abcdef"))
    log.write(1, letters("gh"))
    query.run_batch()
    log.add_partitions(3)
    log.write(2, letters("ijk"))
    planned = query.plan_batch()
    assert planned is not None
    first = query.read(planned)
    log.write(0, letters("xyz"))
    log.delete_records(2, 1)  # the start of the new partition is saved
    query.crash()
    planned = query.plan_batch()
    assert planned is not None
    ((*_, last),) = (task.ranges for task in planned)
    assert (last.tp, last.start) == (log.tp(2), 0)
    assert first


def test_stripped_checkpoint_offsets_are_those_of_sparks_kafka_connector(log: Log) -> None:
    log.create(partitions=2)
    log.write(0, letters("abc"))
    query = Query(log.options(startingOffsets="earliest"))
    query.drain()
    log.write(1, letters("d"))
    query.drain()
    assert strip_offset(query.end()) == {log.topic: {"0": 3, "1": 1}}


def test_checkpoint_of_sparks_kafka_connector_is_continued(log: Log) -> None:
    log.create(partitions=2)
    log.write(0, letters("abc"))
    log.write(1, letters("de"))
    query = Query(log.options())
    query.offset_log, query.committed = [f'{{"{log.topic}":{{"0":2}}}}'], 1
    assert values(query.drain()) == letters("cde")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"startingOffsets": '{"TOPIC": {"0": 1, "1": -2}}'}, "bcde"),
        ({"startingOffsets": '{"TOPIC": {"0": -1, "1": 1}}'}, "e"),
        ({"startingTimestamp": "2000"}, "de"),
        ({"startingOffsetsByTimestamp": '{"TOPIC": {"0": 1, "1": 2001}}'}, "abc"),
    ],
)
def test_query_starts_where_its_options_say(
    log: Log, options: dict[str, str], expected: str
) -> None:
    log.create(partitions=2)
    log.write(0, letters("abc"), time_ms=1000)
    log.write(1, letters("de"), time_ms=2000)
    resolved = {name: text.replace("TOPIC", log.topic) for name, text in options.items()}
    resolved["startingOffsetsByTimestampStrategy"] = "latest"
    assert values(Query(log.options(**resolved)).drain()) == letters(expected)


def test_timestamp_without_match_is_an_error_by_default(log: Log) -> None:
    log.create()
    log.write(0, letters("a"), time_ms=1000)
    with pytest.raises(SparkSourceError, match="startingOffsetsByTimestampStrategy"):
        Query(log.options(startingTimestamp="1001")).drain()


@pytest.mark.parametrize(
    ("offsets", "hint"),
    [
        ('{"TOPIC": {"0": 0}}', "lacks TOPIC-1"),
        ('{"TOPIC": {"0": 0, "1": 0, "2": 0}}', "TOPIC-2 are not read"),
        ('{"TOPIC": {"0": 0, "1": 0}, "other": {"0": 0}}', "other-0 are not read"),
    ],
)
def test_starting_offsets_must_name_all_partitions(log: Log, offsets: str, hint: str) -> None:
    log.create(partitions=2)
    query = Query(log.options(startingOffsets=offsets.replace("TOPIC", log.topic)))
    with pytest.raises(SparkSourceError, match=hint.replace("TOPIC", log.topic)):
        query.drain()


# Consumer groups.


def committed(log: Log, group: str) -> dict[int, int]:
    offsets = log.client.groups.fetch_offsets(group)
    return {tp.partition: entry.offset for tp, entry in offsets.items()}


def test_progress_is_published_as_committed_offsets(log: Log) -> None:
    log.create(partitions=2)
    log.write(0, letters("abcdefgh"))
    group = f"{log.topic}-group"
    options = log.options(
        startingOffsets="earliest", maxOffsetsPerTrigger="4", kafka__group__id=group
    )
    query = Query(options)
    query.run_batch()
    assert committed(log, group) == {0: 0, 1: 0}  # the batch may not have been written yet
    query.run_batch()
    assert committed(log, group) == {0: 4, 1: 0}
    assert query.run_batch() is None
    assert committed(log, group) == {0: 8, 1: 0}


def test_available_now_leaves_no_lag(log: Log) -> None:
    log.create()
    log.write(0, letters("abc"))
    options = log.options(startingOffsets="earliest", group__id=f"{log.topic}-group")
    Query(options, available_now=True).drain()
    assert committed(log, f"{log.topic}-group") == {0: 3}


def test_publishing_offsets_can_be_disabled(log: Log) -> None:
    log.create()
    log.write(0, letters("abc"))
    group = f"{log.topic}-group"
    options = log.options(
        startingOffsets="earliest", kafka__group__id=group, publishGroupOffsets="false"
    )
    Query(options).drain()
    assert committed(log, group) == {}


def test_query_continues_when_its_group_rejects_commits(
    log: Log, caplog: pytest.LogCaptureFixture
) -> None:
    """The group has an active member."""
    log.create()
    log.write(0, letters("abc"))
    group = f"{log.topic}-group"
    with penstock.Consumer(
        log.topic, bootstrap_servers=log.servers, group=group, from_beginning=True
    ) as consumer:
        next(consumer)
        query = Query(log.options(startingOffsets="earliest", kafka__group__id=group))
        assert values(query.drain()) == letters("abc")
    warnings = [message for message in caplog.messages if "cannot publish" in message]
    assert len(warnings) == 1
    assert group in warnings[0]


@pytest.mark.parametrize(
    ("strategy", "expected"), [("earliest", "cde"), ("latest", "c"), (None, "cde")]
)
def test_query_starts_at_a_groups_committed_offsets(
    log: Log, strategy: str | None, expected: str
) -> None:
    log.create(partitions=2)
    log.write(0, letters("abc"))
    log.write(1, letters("de"))
    group = f"{log.topic}-group"
    first = Query(
        log.options(
            assign=f'{{"{log.topic}": [0]}}',
            kafka__group__id=group,
            startingOffsets=f'{{"{log.topic}": {{"0": 2}}}}',
        )
    )
    first.plan_batch()
    more = {} if strategy is None else {"startingOffsetsByGroupStrategy": strategy}
    options = log.options(startingOffsets="group", kafka__group__id=group, **more)
    assert values(Query(options).drain()) == letters(expected)


def test_group_without_committed_offsets_can_be_an_error(log: Log) -> None:
    log.create()
    options = log.options(
        startingOffsets="group", kafka__group__id="nobody", startingOffsetsByGroupStrategy="error"
    )
    with pytest.raises(SparkSourceError, match=r"'nobody' has no committed offset for .*-0"):
        Query(options).drain()


# How much a batch takes.


def test_batch_respects_max_offsets_per_trigger(log: Log) -> None:
    log.create(partitions=2)
    log.write(0, letters("abcdef"))
    log.write(1, letters("ghi"))
    query = Query(log.options(startingOffsets="earliest", maxOffsetsPerTrigger="3"))
    assert [len(rows) for rows in query.drain()] == [3, 3, 3]


def test_batch_respects_max_bytes_per_trigger(log: Log) -> None:
    log.create()
    for _ in range(10):
        log.write(0, [b"x" * 1000] * 10)
    query = Query(log.options(startingOffsets="earliest", maxBytesPerTrigger="25000"))
    sizes = [len(rows) for rows in query.drain()]
    assert sum(sizes) == 100
    assert sizes[:4] == [24] * 4  # 1000 bytes of value and a few more each


def test_smaller_of_two_limits_applies(log: Log) -> None:
    log.create()
    log.write(0, [b"x" * 1000] * 20)
    query = Query(
        log.options(
            startingOffsets="earliest", maxBytesPerTrigger="10500", maxOffsetsPerTrigger="7"
        )
    )
    assert [len(rows) for rows in query.drain()] == [7, 7, 6]


def test_spark_may_read_all_available(log: Log) -> None:
    log.create()
    log.write(0, letters("abcdef"))
    reader = Query(log.options(startingOffsets="earliest", maxOffsetsPerTrigger="3")).reader
    end = reader.latestOffset(reader.initialOffset(), ALL)
    assert end[log.topic] == {"0": 6}


def test_batch_waits_for_min_offsets_per_trigger(log: Log) -> None:
    log.create()
    query = Query(log.options(minOffsetsPerTrigger="3", maxTriggerDelay="1h"))
    # The first batch never waits: Spark saves where the query starts.
    assert query.run_batch() == []
    log.write(0, letters("ab"))
    assert query.run_batch() is None
    log.write(0, letters("c"))
    assert values(query.run_batch()) == letters("abc")


def test_batch_waits_at_most_max_trigger_delay(log: Log) -> None:
    log.create()
    query = Query(log.options(minOffsetsPerTrigger="3", maxTriggerDelay="0ms"))
    query.run_batch()
    log.write(0, letters("ab"))
    assert values(query.run_batch()) == letters("ab")


def test_large_partitions_are_split_into_tasks(log: Log) -> None:
    log.create(partitions=2)
    log.write(0, letters("abcdef"))
    log.write(1, letters("gh"))
    for options, tasks in (({"minPartitions": "4"}, 4), ({"maxRecordsPerPartition": "2"}, 4)):
        query = Query(log.options(startingOffsets="earliest", **options))
        planned = query.plan_batch()
        assert planned is not None
        assert len(planned) == tasks
        assert sorted(values(query.read(planned))) == letters("abcdefgh")


def test_small_partitions_share_a_task_and_large_ones_do_not(log: Log) -> None:
    log.create(partitions=4)
    sizes = (600, 300, 200, 1_500)
    for partition, size in enumerate(sizes):
        log.write(partition, [b"%d" % number for number in range(size)])
    for options, tasks in (({}, 3), ({"maxRecordsPerPartition": "1500"}, 3)):
        query = Query(log.options(startingOffsets="earliest", **options))
        planned = query.plan_batch()
        assert planned is not None
        assert len(planned) == tasks
        assert query.read(planned) == [
            (partition, offset, b"%d" % offset)
            for partition, size in enumerate(sizes)
            for offset in range(size)
        ]


def test_min_partitions_keep_small_partitions_in_tasks_of_their_own(log: Log) -> None:
    log.create(partitions=2)
    log.write(0, letters("ab"))
    log.write(1, letters("cd"))
    planned = Query(log.options(startingOffsets="earliest", minPartitions="1")).plan_batch()
    assert planned is not None
    assert len(planned) == 2


# Topics that change.


def test_new_partitions_are_read_from_their_start(log: Log) -> None:
    log.create()
    query = Query(log.options())
    query.drain()
    log.add_partitions(3)
    log.write(2, letters("ab"))
    log.write(0, letters("c"))
    assert sorted(values(query.drain())) == letters("abc")


def test_pattern_finds_new_topics(log: Log) -> None:
    log.create()
    other = Log(log.servers, f"{log.topic}-more")
    query = Query(log.options(subscribePattern=f"{log.topic}(-more)?"))
    query.drain()
    other.create()
    other.write(0, letters("ab"))
    assert values(query.drain()) == letters("ab")


def test_pattern_may_match_nothing_yet(log: Log) -> None:
    query = Query(log.options(subscribePattern=log.topic))
    assert query.run_batch() == []
    log.create()
    log.write(0, letters("ab"))
    assert values(query.drain()) == letters("ab")


def test_missing_topic_is_named(log: Log) -> None:
    with pytest.raises(SparkSourceError, match=f"no topic '{log.topic}'"):
        Query(log.options(fetchOffset__numRetries="0")).drain()


def test_missing_partition_is_named(log: Log) -> None:
    log.create()
    with pytest.raises(SparkSourceError, match=f"{log.topic}-7"):
        Query(log.options(assign=f'{{"{log.topic}": [0, 7]}}')).drain()


def test_deleted_records_fail_the_query_or_are_skipped(log: Log) -> None:
    log.create()
    log.write(0, letters("abcdef"))
    strict = Query(log.options(startingOffsets="earliest"))
    lenient = Query(log.options(startingOffsets="earliest", failOnDataLoss="false"))
    planned = [query.plan_batch() for query in (strict, lenient)]
    log.delete_records(0, 4)
    with pytest.raises(DataLoss, match=r"offsets 0 to 3 of .* are deleted.*failOnDataLoss"):
        strict.read(planned[0] or [])
    assert values(lenient.read(planned[1] or [])) == letters("ef")


def test_completely_deleted_range_is_skipped(log: Log) -> None:
    log.create()
    log.write(0, letters("abcdef"))
    options = {"startingOffsets": "earliest", "failOnDataLoss": "false"}
    query = Query(log.options(**options, maxOffsetsPerTrigger="3"))
    planned = query.plan_batch()
    log.delete_records(0, 5)
    assert query.read(planned or []) == []


def recreate(log: Log, text: str) -> None:
    log.delete()
    log.create()
    log.write(0, letters(text))


# Shorter than what was read, as long, and longer.
@pytest.mark.parametrize("anew", ["ab", "uvwxyz", "rstuvwxyz"])
def test_recreated_topic_is_data_loss(log: Log, anew: str) -> None:
    log.create()
    log.write(0, letters("abcdef"))
    query = Query(log.options(startingOffsets="earliest", fetchOffset__retryIntervalMs="1"))
    query.drain()
    recreate(log, anew)
    for _ in range(2):
        with pytest.raises(DataLoss, match=f"'{log.topic}' was deleted and created anew"):
            query.drain()
        query.crash()


@pytest.mark.parametrize("anew", ["ab", "uvwxyz", "rstuvwxyz"])
def test_recreated_topic_is_read_from_its_start_if_data_loss_is_allowed(
    log: Log, anew: str
) -> None:
    log.create()
    log.write(0, letters("abcdef"))
    group = f"{log.topic}-group"
    lenient = {"failOnDataLoss": "false", "fetchOffset__retryIntervalMs": "1"}
    query = Query(log.options(startingOffsets="earliest", kafka__group__id=group, **lenient))
    query.drain()
    recreate(log, anew)
    assert values(query.drain()) == letters(anew)
    assert committed(log, group) == {0: len(anew)}
    log.write(0, letters("k"))
    query.crash()
    assert values(query.drain()) == letters("k")


@pytest.mark.parametrize("available_now", [False, True])
def test_batch_planned_before_its_topic_was_recreated_is_data_loss(
    log: Log, available_now: bool
) -> None:
    log.create()
    log.write(0, letters("abcdef"))
    options = {"startingOffsets": "earliest", "fetchOffset__retryIntervalMs": "1"}
    strict, lenient = (
        Query(log.options(**options, failOnDataLoss=name), available_now=available_now)
        for name in ("true", "false")
    )
    for query in (strict, lenient):
        query.plan_batch()  # its end is saved, but it never ran
        query.crash()
    recreate(log, "rstuvwxyz")
    with pytest.raises(DataLoss, match="deleted and created anew"):
        strict.run_batch()
    assert lenient.run_batch() == []
    lenient.crash()
    assert values(lenient.drain()) == letters("rstuvwxyz")


def test_task_reads_nothing_of_a_topic_that_was_recreated_after_planning(log: Log) -> None:
    log.create()
    log.write(0, letters("abcdef"))
    options = {"startingOffsets": "earliest", "kafka.request.timeout.ms": "500"}
    query = Query(log.options(**options))
    planned = query.plan_batch()
    recreate(log, "rstuvwxyz")
    with pytest.raises(DataLoss, match="was deleted"):
        query.read(planned or [])


def test_checkpoint_without_topic_ids_continues_and_learns_them(log: Log) -> None:
    log.create()
    log.write(0, letters("abc"))
    query = Query(log.options(fetchOffset__retryIntervalMs="1"))
    query.offset_log, query.committed = [f'{{"{log.topic}":{{"0":2}}}}'], 1
    assert values(query.drain()) == letters("c")
    recreate(log, "rstuvwxyz")
    with pytest.raises(DataLoss, match="deleted and created anew"):
        query.drain()


def test_deleted_topic_is_data_loss(log: Log) -> None:
    log.create()
    other = Log(log.servers, f"{log.topic}-other")
    other.create()
    log.write(0, letters("a"))
    both = {"subscribePattern": f"{log.topic}.*", "startingOffsets": "earliest"}
    strict, lenient = (
        Query(log.options(**both, failOnDataLoss=name)) for name in ("true", "false")
    )
    strict.drain()
    lenient.drain()
    other.delete()
    log.write(0, letters("b"))
    with pytest.raises(DataLoss, match=f"{other.topic}-0 are gone"):
        strict.drain()
    assert values(lenient.drain()) == letters("b")


# Trigger.AvailableNow.


def test_available_now_ends_where_the_log_ended_at_start(log: Log) -> None:
    log.create()
    log.write(0, letters("abcdef"))
    query = Query(
        log.options(startingOffsets="earliest", maxOffsetsPerTrigger="2", minOffsetsPerTrigger="2"),
        available_now=True,
    )
    first = query.run_batch()
    log.write(0, letters("xyz"))
    assert values(first) + values(query.drain()) == letters("abcdef")
    query.crash()
    assert values(query.drain()) == letters("xyz")


def test_available_now_never_waits_for_more_records(log: Log) -> None:
    log.create()
    log.write(0, letters("abc"))
    options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "2"}
    query = Query(log.options(**options, minOffsetsPerTrigger="2"), available_now=True)
    assert values(query.drain()) == letters("abc")


def test_available_now_with_latest_reads_nothing_and_starts_there(log: Log) -> None:
    log.create()
    query = Query(log.options(), available_now=True)
    log.write(0, letters("abc"))  # after the end was fixed, before the start was found
    assert values(query.drain()) == []
    log.write(0, letters("d"))
    query.crash()
    assert values(query.drain()) == letters("d")


def test_available_now_with_deleted_partitions_fails_unless_data_loss_is_allowed(log: Log) -> None:
    log.create()
    log.write(0, letters("abcd"))
    options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "2"}
    strict, lenient = (
        Query(log.options(**options, failOnDataLoss=name), available_now=True)
        for name in ("true", "false")
    )
    assert values(strict.run_batch()) == values(lenient.run_batch()) == letters("ab")
    log.delete()
    with pytest.raises(DataLoss, match="were there when this run started and are gone"):
        strict.run_batch()
    assert values(lenient.drain()) == []


# Reported metrics.


def test_latest_offsets_are_reported(log: Log) -> None:
    log.create()
    log.write(0, letters("abcdef"))
    group = f"{log.topic}-group"
    options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "2"}
    query = Query(log.options(**options))
    assert query.reader.reportLatestOffset() is None
    query.run_batch()
    assert query.reader.reportLatestOffset() == {log.topic: {"0": 6}}
    grouped = Query(log.options(**options, kafka__group__id=group))
    grouped.run_batch()
    assert grouped.reader.reportLatestOffset() == {
        log.topic: {"0": 6},
        "@publish": {"bootstrap": log.servers, "group": group},
    }


def test_topic_is_read_while_it_is_written(log: Log) -> None:
    log.create(partitions=2)
    query = Query(log.options(startingOffsets="earliest", maxOffsetsPerTrigger="50"))
    sent: list[bytes] = []
    read: list[bytes] = []
    for number in range(20):
        batch = [b"%d-%d" % (number, index) for index in range(17)]
        log.write(number % 2, batch)
        sent += batch
        read += values(query.run_batch())
    read += values(query.drain())
    assert sorted(read) == sorted(sent)
