"""A broker with storage.engine=commitlog, as clients see it: nothing is different."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

import penstock
from penstock.cli.main import app
from penstock.storage.verify import verify_directory
from penstock.testing.embedded_broker import BrokerNotStarted

pytestmark = pytest.mark.xdist_group("clients")

SEGMENTED = {"storage.engine": "segmented"}
RECORDS = [b"v%03d" % number for number in range(200)]


@pytest.fixture
def shared_broker(tmp_path: Path) -> Iterator[penstock.Broker]:
    with penstock.Broker(data=tmp_path, config={"storage.engine": "commitlog"}) as broker:
        yield broker


def write(broker: penstock.Broker, topic: str, values: list[bytes]) -> None:
    with penstock.Producer(broker.bootstrap_servers) as producer:
        pending = [producer.send(topic, value) for value in values]
        for acknowledged in pending:
            acknowledged.result(timeout=180)


def read(broker: penstock.Broker, topic: str, count: int) -> list[bytes]:
    with penstock.Consumer(
        topic,
        bootstrap_servers=broker.bootstrap_servers,
        from_beginning=True,
        group=f"readers-of-{topic}",
        timeout_s=180,
    ) as consumer:
        return sorted(message.value or b"" for message in itertools.islice(consumer, count))


def test_records_are_there_after_a_kill_and_after_a_clean_stop(
    shared_broker: penstock.Broker, tmp_path: Path
) -> None:
    shared_broker.create_topic("t", partitions=5)
    write(shared_broker, "t", RECORDS[:100])
    shared_broker.kill()
    assert (tmp_path / "commitlog").is_dir()
    assert not (tmp_path / "t-0").exists()
    shared_broker.start()
    write(shared_broker, "t", RECORDS[100:])
    shared_broker.stop()
    assert not (tmp_path / "abort").exists()
    shared_broker.start()
    assert read(shared_broker, "t", len(RECORDS)) == RECORDS


def test_a_broker_refuses_the_directory_of_another_engine(
    shared_broker: penstock.Broker, tmp_path: Path
) -> None:
    shared_broker.create_topic("t", partitions=1)
    shared_broker.stop()
    other = penstock.Broker(data=tmp_path, config=SEGMENTED)
    with pytest.raises(
        BrokerNotStarted, match=r"written with storage\.engine=commitlog.*log convert"
    ):
        other.start()
    shared_broker.start()
    write(shared_broker, "t", RECORDS[:1])


def test_log_convert_moves_a_stopped_broker_to_the_other_engine_and_back(tmp_path: Path) -> None:
    data = tmp_path / "data"
    broker = penstock.Broker(data=data, config=SEGMENTED)
    with broker:
        broker.create_topic("t", partitions=3)
        write(broker, "t", RECORDS[:100])
        refused = CliRunner().invoke(app, ["log", "convert", str(data), "--to", "commitlog"])
        assert refused.exit_code == 1
        assert "in use by another process" in refused.output
    converted = CliRunner().invoke(app, ["log", "convert", str(data), "--to", "commitlog"])
    assert converted.exit_code == 0, converted.output
    shared = penstock.Broker(data=data, config={"storage.engine": "commitlog"})
    with shared:
        assert read(shared, "t", 100) == RECORDS[:100]
        write(shared, "t", RECORDS[100:])
    assert not list(data.glob("t-*"))
    back = CliRunner().invoke(app, ["--json", "log", "convert", str(data), "--to", "segmented"])
    assert back.exit_code == 0, back.output
    assert json.loads(back.output)["engine"] == "segmented"
    assert verify_directory(data).is_clean
    with penstock.Broker(data=data, config=SEGMENTED) as broker:
        # The group has committed what it read from the other engine.
        assert read(broker, "t", 100) == RECORDS[100:]


def test_log_convert_names_the_engines() -> None:
    outcome = CliRunner().invoke(app, ["log", "convert", ".", "--to", "rocketmq"])
    assert outcome.exit_code == 2
    assert "give segmented or commitlog" in outcome.output
