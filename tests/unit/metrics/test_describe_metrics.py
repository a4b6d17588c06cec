"""DescribeMetrics: who may ask, what is left out, and that other work goes on meanwhile."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.unit.apis.harness import ApiHarness, read_part
from tests.unit.metrics.made_statistics import find_no_time, make_partition, make_statistics

from penstock.apis.dispatcher import Dispatcher
from penstock.apis.registry import APIS
from penstock.metrics.committed_times import CommittedTimes
from penstock.metrics.describe_metrics import MAX_NAMES, make_api, read_metrics
from penstock.metrics.scrape import Scraper
from penstock.metrics.statistics import BrokerStatistics
from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicPartition
from penstock.protocol.describe_metrics import DescribeMetricsRequest, encode_describe_metrics
from penstock.protocol.headers import encode_request_header, read_response_header
from penstock.protocol.private_keys import FIRST_FLEXIBLE_OF_ALL, PrivateKey
from penstock.protocol.private_response import PrivateResponse, decode_private_response
from penstock.security.authorizer import CLUSTER_NAME, AclOperation, ResourceType

KEY = PrivateKey.DESCRIBE_METRICS
ALL = 1 << 30


def make_scraper(folder: Path, partitions: int) -> Scraper:
    one = make_partition(folder).statistics()
    statistics = make_statistics(
        tuple(one._replace(tp=TopicPartition("t", number)) for number in range(partitions))
    )

    async def collect() -> BrokerStatistics:
        return statistics

    return Scraper(
        collect, CommittedTimes(find_no_time), started_s=0.0, partition_limit=lambda: 1 << 30
    )


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[ApiHarness]:
    harness = ApiHarness(tmp_path / "broker")
    scraper = make_scraper(tmp_path / "other", 3)
    services = replace(harness.services, client_apis={KEY: lambda: make_api(lambda: scraper)})
    harness.dispatcher = Dispatcher(APIS, services)
    yield harness
    harness.close()


def ask(harness: ApiHarness, request: DescribeMetricsRequest, version: int = 0) -> PrivateResponse:
    header = encode_request_header(KEY, version, 1, "test", FIRST_FLEXIBLE_OF_ALL)
    in_flight = harness.send_frame(bytearray(header + encode_describe_metrics(request)))
    frame = b"".join(map(read_part, in_flight.parts))
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    _, body = read_response_header(memoryview(frame)[4:], KEY, version, FIRST_FLEXIBLE_OF_ALL)
    return decode_private_response(body)


def test_clients_get_the_named_families_on_any_listener(harness: ApiHarness) -> None:
    names = ("kafka_cluster_partition_replicas", "kafka_brokers")
    response = ask(harness, DescribeMetricsRequest(names, ALL))
    assert (response.code, response.is_truncated) == (ErrorCode.NONE, False)
    lines = response.payload.decode().splitlines()
    assert [line for line in lines if not line.startswith("#")] == [
        "kafka_brokers 1",
        *(
            f'kafka_cluster_partition_replicascount{{topic="t",partition="{number}"}} 1'
            for number in range(3)
        ),
    ]


def test_describing_needs_describe_on_the_cluster(harness: ApiHarness) -> None:
    harness.guard.deny(AclOperation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME)
    response = ask(harness, DescribeMetricsRequest((), ALL))
    assert response.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert "needs DESCRIBE on the cluster" in str(response.message)
    assert response.payload == b""


def test_an_unknown_version_gets_the_supported_ones(harness: ApiHarness) -> None:
    response = ask(harness, DescribeMetricsRequest((), ALL), version=7)
    assert response.code is ErrorCode.UNSUPPORTED_VERSION
    assert (response.first_version, response.last_version) == (0, 0)


def test_too_many_names_are_refused(harness: ApiHarness) -> None:
    response = ask(harness, DescribeMetricsRequest(("kafka_",) * (MAX_NAMES + 1), ALL))
    assert response.code is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("limit", [0, 1, 700, 70_000])
def test_a_response_is_cut_after_a_whole_line(harness: ApiHarness, limit: int) -> None:
    whole = ask(harness, DescribeMetricsRequest((), ALL)).payload
    response = ask(harness, DescribeMetricsRequest((), limit))
    assert response.is_truncated == (limit < len(whole))
    assert len(response.payload) <= limit
    assert response.payload in (b"", whole[: len(response.payload)])
    assert response.payload[-1:] in (b"", b"\n")
    assert whole[len(response.payload) :].find(b"\n") >= limit - len(response.payload) or not (
        response.is_truncated
    )


def test_it_is_not_served_to_clients_before_the_broker_is(harness: ApiHarness) -> None:
    services = replace(harness.services, client_apis={KEY: lambda: pytest.fail("loaded")})
    harness.dispatcher = Dispatcher(APIS, services, serves_clients=False)
    header = encode_request_header(KEY, 0, 1, "test", FIRST_FLEXIBLE_OF_ALL)
    body = encode_describe_metrics(DescribeMetricsRequest((), ALL))
    harness.send_frame(bytearray(header + body))
    assert "not served yet" in str(harness.connection.closed_because)


def test_other_work_goes_on_while_many_partitions_are_described(tmp_path: Path) -> None:
    async def scenario() -> tuple[int, int]:
        scraper = make_scraper(tmp_path, 10_000)
        turns = 0
        is_done = asyncio.Event()

        async def work() -> None:
            nonlocal turns
            while not is_done.is_set():
                turns += 1
                await asyncio.sleep(0)

        working = asyncio.create_task(work())
        text = await read_metrics(scraper, DescribeMetricsRequest((), ALL))
        is_done.set()
        await working
        return turns, sum(chunk.count(b"\n") for chunk in text.chunks)

    turns, lines = asyncio.run(scenario())
    assert lines > 10_000 * 15
    assert turns >= lines / 2_000
