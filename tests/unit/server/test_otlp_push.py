"""Pushing metrics to a collector: the request, and what is logged if it does not take them."""

import asyncio
from pathlib import Path

import pytest

pytest.importorskip("opentelemetry.proto.metrics.v1.metrics_pb2", reason="needs the extra otlp")

from tests.otlp_receiver import receive_otlp
from tests.unit.metrics.made_statistics import find_no_time, make_partition, make_statistics

from penstock.logs.event_logger import EventLogger
from penstock.metrics.committed_times import CommittedTimes
from penstock.metrics.families import Dialect
from penstock.metrics.statistics import BrokerStatistics
from penstock.server.otlp_push import HEADERS_VARIABLE, OtlpPush, read_headers


def make_push(url: str, folder: Path, reports: list[str]) -> OtlpPush:
    statistics = make_statistics((make_partition(folder).statistics(),))

    async def collect() -> BrokerStatistics:
        return statistics

    return OtlpPush(
        url,
        collect=collect,
        committed_times=CommittedTimes(find_no_time),
        dialect=Dialect.A,
        partition_limit=lambda: 10,
        interval_ms=lambda: 60_000,
        started_s=0.0,
        logger=EventLogger(lambda level, event, message, fields: reports.append(message)),
    )


def test_a_push_has_the_series_of_a_scrape(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(HEADERS_VARIABLE, "api-key=a%20secret")
    reports: list[str] = []
    with receive_otlp() as receiver:
        asyncio.run(make_push(receiver.url, tmp_path, reports).push())
        pushed = receiver.pushed.get_nowait()
    assert (pushed.path, pushed.headers["api-key"]) == ("/v1/metrics", "a secret")
    assert pushed.headers["content-type"] == "application/x-protobuf"
    assert pushed.resource() == {
        "service.name": "penstock",
        "service.version": "0",
        "service.instance.id": "1",
        "penstock.cluster.id": "bench",
    }
    metrics = pushed.metrics()
    (replicas,) = metrics["kafka_cluster_partition_replicascount"].gauge.data_points
    assert replicas.as_int == 1
    assert metrics["penstock_request_duration_seconds"].HasField("histogram")
    assert reports == []


def test_a_failing_collector_is_logged_once_until_it_recovers(tmp_path: Path) -> None:
    reports: list[str] = []

    async def scenario() -> None:
        with receive_otlp() as receiver:
            push = make_push(receiver.url, tmp_path, reports)
            receiver.status = 503
            await push.push()
            await push.push()
            receiver.status = 200
            await push.push()
            await push.push()

    asyncio.run(scenario())
    assert len(reports) == 2
    assert "cannot be pushed" in reports[0]
    assert "503" in reports[0]
    assert reports[1].endswith(" again")


def test_a_collector_that_is_not_there_is_a_failure(tmp_path: Path) -> None:
    reports: list[str] = []
    with receive_otlp() as receiver:
        url = receiver.url
    asyncio.run(make_push(url, tmp_path, reports).push())
    assert len(reports) == 1


def test_headers_are_read_as_every_exporter_reads_them() -> None:
    assert read_headers(" a=1, b=x%3Dy ,,c") == {"a": "1", "b": "x=y"}


def test_a_collector_that_does_not_speak_http_is_logged_and_harms_nothing(tmp_path: Path) -> None:
    """Such as one that expects gRPC at its other port."""
    reports: list[str] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"\0\0\x12\4\0\0\0\0\0\r\n\r\n")
        await writer.drain()
        writer.close()

    async def push() -> None:
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()
        async with server:
            pusher = make_push(f"http://{host}:{port}/v1/metrics", tmp_path, reports)
            await pusher.push()
            await pusher.push()

    asyncio.run(push())
    (report,) = reports
    assert "no response in HTTP (BadStatusLine); gRPC is not spoken here" in report


def test_a_password_in_the_url_is_not_logged(tmp_path: Path) -> None:
    reports: list[str] = []
    url = "http://alice:secret-one@127.0.0.1:1/v1/metrics?key=secret-two"
    asyncio.run(make_push(url, tmp_path, reports).push())
    (report,) = reports
    assert "pushed to http://127.0.0.1:1/v1/metrics: " in report
    assert "secret" not in report
