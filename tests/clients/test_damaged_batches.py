"""Our consumer and `penstock consume` at a batch that does not decode: an error, never a hang."""

import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import timedelta

import pytest
from tests.scenarios.batch_cases import good, with_payload
from tests.scenarios.raw_client import RawClient

import penstock
from penstock.model.errors import ErrorCode
from penstock.protocol.api_keys import ApiKey
from penstock.protocol.compression import Codec, compress

NOW_MS = time.time_ns() // 1_000_000
NOISE = b"\xff" * 100
DAMAGED = {
    "noise": with_payload(Codec.NONE, NOISE, count=2, now_ms=NOW_MS),
    "compressed-noise": with_payload(
        Codec.ZSTD, compress(Codec.ZSTD, NOISE), count=2, now_ms=NOW_MS
    ),
    "no-compressed-data": with_payload(Codec.LZ4, NOISE, count=2, now_ms=NOW_MS),
}


@pytest.fixture(scope="module")
def broker() -> Iterator[penstock.Broker]:
    """A broker that accepts any records, so that logs hold what only an older broker would have
    written."""
    with penstock.Broker(config={"penstock.validate.records": "false"}) as broker:
        yield broker


def write_around(broker: penstock.Broker, topic: str, damaged: bytes) -> None:
    """Writes valid records at offsets 0 and 1, damaged ones at 2 and 3, valid ones at 4 and 5."""
    broker.create_topic(topic)
    with RawClient(broker.bootstrap_servers) as client:
        for records in (good(NOW_MS), damaged, good(NOW_MS)):
            data = [{"index": 0, "records": records}]
            response = client.ask(
                ApiKey.PRODUCE,
                9,
                acks=1,
                timeout=timedelta(seconds=30),
                topic_data=[{"name": topic, "partition_data": data}],
            )
            assert response.responses[0].partition_responses[0].error_code == ErrorCode.NONE


def read_until_failure(consumer: penstock.Consumer, read: list[int]) -> penstock.ConsumeFailed:
    try:
        for message in consumer:
            read.append(message.offset)  # noqa: PERF401 - kept when the next one fails
    except penstock.ConsumeFailed as failure:
        return failure
    raise AssertionError(f"no failure after {read}")


@pytest.mark.parametrize("group", [None, "readers"])
@pytest.mark.parametrize("kind", DAMAGED)
def test_a_consumer_names_the_damaged_batch_and_can_continue_after_it(
    broker: penstock.Broker, kind: str, group: str | None
) -> None:
    topic = f"{kind}-{group}"
    write_around(broker, topic, DAMAGED[kind])
    read: list[int] = []
    with penstock.Consumer(
        topic,
        bootstrap_servers=broker.bootstrap_servers,
        group=group and f"{topic}-{group}",
        from_beginning=True,
    ) as consumer:
        failure = read_until_failure(consumer, read)
        assert f"{topic}-0: the batch at offset 2 is damaged" in str(failure)
        assert read == [0, 1]
        consumer.seek(0, 4)
        assert [next(consumer).offset, next(consumer).offset] == [4, 5]


def test_a_consumer_that_starts_at_the_damaged_batch_names_it(broker: penstock.Broker) -> None:
    write_around(broker, "first", DAMAGED["noise"])
    with penstock.Consumer(
        "first", bootstrap_servers=broker.bootstrap_servers, from_beginning=True
    ) as consumer:
        consumer.seek(0, 2)
        with pytest.raises(
            penstock.ConsumeFailed, match="first-0: the batch at offset 2 is damaged"
        ):
            next(consumer)


def poll_forever(consumer: penstock.Consumer, read: list[int]) -> None:
    while True:
        read += [message.offset for message in consumer.poll_batch(10, timeout_s=0.05)]


@pytest.mark.parametrize("committed", [None, 2])
def test_short_polls_of_a_group_report_the_damaged_batch(
    broker: penstock.Broker, committed: int | None
) -> None:
    """The consumer has read nothing yet, so it looks for damage where the group's position is."""
    topic = group = f"short-{committed}"
    write_around(broker, topic, DAMAGED["noise"])
    if committed is not None:
        with penstock.Consumer(
            topic, bootstrap_servers=broker.bootstrap_servers, group=group, from_beginning=True
        ) as consumer:
            assert [next(consumer).offset for _ in range(committed)] == [0, 1]
            consumer.reached()  # marks both messages as processed
            consumer.commit()
    read: list[int] = []
    with penstock.Consumer(
        topic, bootstrap_servers=broker.bootstrap_servers, group=group, from_beginning=True
    ) as consumer:
        with pytest.raises(penstock.ConsumeFailed, match="the batch at offset 2 is damaged"):
            poll_forever(consumer, read)
        assert read == ([0, 1] if committed is None else [])


def test_the_command_prints_the_records_before_the_damage_and_exits_with_an_error(
    broker: penstock.Broker,
) -> None:
    write_around(broker, "printed", DAMAGED["noise"])
    command = [sys.executable, "-m", "penstock.cli.main", "consume", "printed", "--from-beginning"]
    done = subprocess.run(
        [*command, "--bootstrap", broker.bootstrap_servers],
        capture_output=True,
        text=True,
        check=False,
        timeout=180,
    )
    assert done.stdout == "value\nvalue\n"
    assert done.returncode == 1
    assert "printed-0: the batch at offset 2 is damaged" in done.stderr


def test_a_transaction_marker_at_the_end_does_not_count_as_damage(broker: penstock.Broker) -> None:
    broker.create_topic("ended")
    with (
        penstock.TransactionalProducer(
            broker.bootstrap_servers, transactional_id="ended"
        ) as producer,
        producer.transaction(),
    ):
        producer.send("ended", b"v")
    with penstock.Consumer(
        "ended", bootstrap_servers=broker.bootstrap_servers, from_beginning=True, timeout_s=1
    ) as consumer:
        assert [message.offset for message in consumer] == [0]
