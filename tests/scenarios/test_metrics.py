"""A live scrape has every series that dashboards ask for, with the values that clients caused."""

import asyncio
import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from typer.testing import CliRunner

import penstock
from penstock.cli.main import app
from penstock.client.cluster import ClusterClient
from penstock.client.group_values import CommittedOffset
from penstock.client.metrics import DescribedMetrics
from penstock.model.cluster import BrokerId
from penstock.model.ids import TopicPartition

METRICS = Path(__file__).parents[2] / "docs" / "metrics"
SENT = 7
VALUE = b"x" * 100
HANG_S = 120.0


class ScrapedBroker(NamedTuple):
    broker: penstock.Broker
    url: str

    def get(self, path: str) -> tuple[int, str]:
        try:
            with urlopen(self.url + path, timeout=180) as response:
                return response.status, response.read().decode()
        except HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def scrape(self, dialect: str = "A") -> dict[str, float]:
        status, text = self.get(f"/metrics?dialect={dialect}")
        assert status == 200
        return parse(text)


def parse(text: str) -> dict[str, float]:
    """Series with labels -> value. Every line must be what the text format allows."""
    series: dict[str, float] = {}
    label = r'[a-zA-Z_]+="[^"]*"'
    sample = re.compile(rf"([a-z_][a-zA-Z0-9_]*(?:\{{{label}(?:,{label})*\}})?) (\S+)")
    for line in text.splitlines():
        if line.startswith("#"):
            assert re.match(r"# (HELP|TYPE) [a-z_][a-zA-Z0-9_]* \S", line), line
            continue
        match = sample.fullmatch(line)
        assert match, line
        assert match[1] not in series, f"{match[1]} is there twice"
        series[match[1]] = float(match[2])
    return series


@pytest.fixture(scope="module")
def scraped() -> Iterator[ScrapedBroker]:
    with penstock.Broker(config={"metrics.listener": "127.0.0.1:0"}) as broker:
        match = re.search(r"metrics at (http://\S+)/metrics", broker.logs())
        assert match
        broker.create_topic("orders", partitions=2)
        with penstock.Producer(broker.bootstrap_servers) as producer:
            for _ in range(SENT):
                producer.send_and_wait("orders", VALUE, partition=0)
        with penstock.Consumer(
            "orders", bootstrap_servers=broker.bootstrap_servers, group="g", from_beginning=True
        ) as consumer:
            for _, message in zip(range(SENT), consumer, strict=False):
                assert message.value == VALUE
        yield ScrapedBroker(broker, match[1])


def asked_for(dialect: str) -> list[str]:
    rows = [line.split() for line in (METRICS / "series.txt").read_text().splitlines()]
    return [row[1] for row in rows if row[0] == dialect]


def excluded() -> re.Pattern[str]:
    lines = (METRICS / "excluded.txt").read_text().splitlines()
    return re.compile("|".join(line.split()[0] for line in lines if not line.startswith("#")))


@pytest.mark.parametrize("dialect", ["A", "B", "D"])
def test_every_series_of_the_known_dashboards_is_there(
    scraped: ScrapedBroker, dialect: str
) -> None:
    names = {series.partition("{")[0] for series in scraped.scrape(dialect)}
    wanted = [name for name in asked_for(dialect) if not excluded().fullmatch(name)]
    assert len(wanted) >= 20
    assert [name for name in wanted if name not in names] == []


def test_an_exclusion_is_needed_and_not_served(scraped: ScrapedBroker) -> None:
    names = {series.partition("{")[0] for series in scraped.scrape()}
    assert [name for name in names if excluded().fullmatch(name)] == []


@pytest.mark.parametrize("name", ["dashboard.json", "alerts.yaml"])
def test_our_dashboard_and_alerts_ask_for_series_that_exist(
    scraped: ScrapedBroker, name: str
) -> None:
    names = {series.partition("{")[0] for series in scraped.scrape()}
    text = (METRICS / name).read_text()
    wanted = set(re.findall(r"\b(?:kafka|penstock|process)_[a-z0-9_]+", text))
    assert len(wanted) >= 10
    assert wanted - names == set()


def test_values_are_what_clients_did(scraped: ScrapedBroker) -> None:
    series = scraped.scrape()
    prefix = "kafka_server_brokertopicmetrics"
    assert series[f'{prefix}_messagesin_total{{topic="orders"}}'] == SENT
    assert series[f'{prefix}_bytesin_total{{topic="orders"}}'] > SENT * len(VALUE)
    assert (
        series[f'{prefix}_bytesout_total{{topic="orders"}}']
        == series[f'{prefix}_bytesin_total{{topic="orders"}}']
        == series['kafka_log_log_size{topic="orders",partition="0"}']
    )
    assert series['kafka_topic_partitions{topic="orders"}'] == 2
    assert series['kafka_topic_partition_current_offset{topic="orders",partition="0"}'] == SENT
    assert series["kafka_brokers"] == 1
    assert series["kafka_controller_kafkacontroller_activecontrollercount"] == 1
    lag = 'kafka_consumergroup_lag{consumergroup="g",topic="orders",partition="0"}'
    offset = 'kafka_consumergroup_current_offset{consumergroup="g",topic="orders",partition="0"}'
    assert series[lag] + series[offset] == SENT
    produced = [
        count
        for name, count in series.items()
        if name.startswith('kafka_network_requestmetrics_requests_total{request="Produce"')
    ]
    assert sum(produced) == SENT
    assert series['kafka_network_requestmetrics_totaltimems_count{request="Produce"}'] == SENT
    assert series['penstock_request_duration_seconds_count{request="Produce"}'] == SENT
    assert series['kafka_network_requestmetrics_totaltimems{request="Produce",quantile="0.99"}'] > 0
    assert 0 <= series["penstock_loop_busy_share"] <= 1
    groups = "kafka_server_group_coordinator_metrics"
    assert series[f'{groups}_group_count{{protocol="classic"}}'] == 1
    assert (
        sum(count for name, count in series.items() if f"{groups}_classic_group_count" in name) == 1
    )


def test_messages_that_wait_are_counted() -> None:
    config = {
        "metrics.listener": "127.0.0.1:0",
        "penstock.half.first.check.ms": "100",
        "penstock.half.check.interval.ms": "100",
        "penstock.half.max.checks": "1",
        "penstock.delayed.topic.num.partitions": "2",
    }
    with penstock.Broker(config=config) as broker:
        match = re.search(r"metrics at (http://\S+)/metrics", broker.logs())
        assert match
        scraped = ScrapedBroker(broker, match[1])
        assert scraped.scrape()["penstock_delayed_messages_pending"] == 0
        _delay_messages(broker)
        _wait_for_series(
            scraped,
            {
                "penstock_delayed_messages_pending": 1,
                "penstock_delayed_messages_due_lag_seconds": 0,
                "penstock_delayed_messages_delivered_total": 1,
                "penstock_delayed_messages_cancelled_total": 1,
                "penstock_delayed_messages_unconfirmed_targets": 0,
            },
        )
        _send_halves(broker)
        series = _wait_for_series(
            scraped,
            {
                "penstock_half_messages_pending": 1,
                'penstock_half_messages_decided_total{decision="commit"}': 1,
                'penstock_half_messages_decided_total{decision="rollback"}': 1,
                "penstock_half_messages_ignored_decisions_total": 1,
            },
        )
        assert series["penstock_half_messages_oldest_seconds"] > 0
        with penstock.HalfMessages(
            "orders",
            bootstrap_servers=broker.bootstrap_servers,
            group="shop",
            check=lambda _: "unknown",
        ):
            _wait_for_series(
                scraped,
                {"penstock_half_messages_expired_total": 1, "penstock_half_messages_pending": 0},
            )


def _delay_messages(broker: penstock.Broker) -> None:
    broker.create_topic("reminders", config={"penstock.delayed.messages": "true"})
    with penstock.Producer(broker.bootstrap_servers) as producer:
        producer.send("reminders", b"soon", delay_s=0.01)
        for delay_id in ("cancelled", "later"):
            producer.send("reminders", b"v", delay_s=3600, delay_id=delay_id)
        assert producer.cancel("reminders", "cancelled") == "cancelled"


def _send_halves(broker: penstock.Broker) -> None:
    for name in ("orders", "shop.half.checks", "orders.half.expired"):
        broker.create_topic(name)
    for name in ("orders.half", "orders.half.decisions"):
        broker.create_topic(name, config={"penstock.half.groups": "shop"})
    with penstock.HalfMessages(
        "orders", bootstrap_servers=broker.bootstrap_servers, group="shop"
    ) as half:
        half.send(b"one", local=lambda: "commit", half_id="one")
        half.send(b"two", local=lambda: "rollback", half_id="two")
        half.send(b"three", local=lambda: "unknown")
        half.decide("two", "commit")  # too late


def _wait_for_series(scraped: ScrapedBroker, wanted: dict[str, float]) -> dict[str, float]:
    deadline = time.monotonic() + HANG_S
    while True:
        series = scraped.scrape()
        values = {name: series[name] for name in wanted}
        if values == wanted:
            return series
        assert time.monotonic() < deadline, values
        time.sleep(0.02)


def test_time_lag_is_the_age_of_the_record_at_the_committed_offset(scraped: ScrapedBroker) -> None:
    servers = scraped.broker.bootstrap_servers
    scraped.broker.create_topic("readings", partitions=2)
    times_ms = (1_700_000_000_000, 1_700_000_001_000, 1_700_000_002_000)
    with penstock.Producer(servers) as producer:
        for time_ms in times_ms:
            producer.send_and_wait("readings", VALUE, partition=0, timestamp_ms=time_ms)

    async def commit(offset: int) -> None:
        async with ClusterClient(servers) as client:
            offsets = {TopicPartition("readings", 0): CommittedOffset(offset)}
            await client.groups.commit_offsets("slow", offsets)

    lag = 'penstock_consumergroup_time_lag_seconds{consumergroup="slow",topic="readings",'
    for offset, time_ms in enumerate(times_ms):
        asyncio.run(commit(offset))
        began_s = time.time() - 0.001  # the broker's clock ticks in milliseconds
        age_s = scraped.scrape()[lag + 'partition="0"}']
        assert began_s <= age_s + time_ms / 1000 <= time.time() + 0.001
    asyncio.run(commit(len(times_ms)))
    assert scraped.scrape()[lag + 'partition="0"}'] == 0


def test_a_running_broker_is_live_and_ready(scraped: ScrapedBroker) -> None:
    assert scraped.get("/live") == (200, "live\n")
    assert scraped.get("/ready") == (200, "ready\n")
    assert scraped.get("/v1/broker-state") == (200, '{"brokerState": 3}\n')
    assert scraped.get("/v1/ready") == (204, "")
    assert scraped.get("/other")[0] == 404


def run_command(broker: penstock.Broker, *arguments: str) -> str:
    result = CliRunner().invoke(app, ["--bootstrap", broker.bootstrap_servers, *arguments])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_commands_need_no_metrics_listener() -> None:
    with penstock.Broker() as broker:
        broker.create_topic("orders", partitions=1)
        with penstock.Producer(broker.bootstrap_servers) as producer:
            producer.send_and_wait("orders", VALUE)
        assert run_command(broker, "cluster", "health") == "healthy\n"
        top = ("top", "--count", "1", "--interval", "0.2", "--json")
        load = json.loads(run_command(broker, "cluster", *top))
        assert (load["status"], load["errors"]) == ("healthy", {})
        assert load["brokers"][0]["requests"] > 0
        metrics = json.loads(run_command(broker, "cluster", "metrics", "--json"))
        messages = "kafka_server_brokertopicmetrics_messagesin_total"
        assert metrics["brokers"]["1"][messages] == metrics["cluster"][messages] == 1
        assert metrics["cluster"]["kafka_controller_kafkacontroller_activecontrollercount"] == 1
        offset = "kafka_topic_partition_current_offset"
        table = run_command(broker, "cluster", "metrics", offset).splitlines()
        assert table[0].split() == ["metric", "broker", "1", "cluster"]
        row = [offset + '{topic="orders",partition="0"}', "1", "1"]
        assert row in [line.split() for line in table]


def test_a_broker_describes_the_same_series_as_its_listener(scraped: ScrapedBroker) -> None:
    async def describe() -> DescribedMetrics:
        async with ClusterClient(scraped.broker.bootstrap_servers) as client:
            await client.metadata()
            return await client.metrics.describe(BrokerId(1))

    described = asyncio.run(describe())
    assert not described.is_truncated
    assert parse(described.text).keys() >= scraped.scrape().keys()
