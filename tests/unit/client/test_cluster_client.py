from __future__ import annotations

import asyncio
import itertools
import socket
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager

import pytest
from tests.unit.client.conftest import Run
from tests.unit.client.scripted_broker import (
    ZERO,
    Answer,
    Cluster,
    Hang,
    HangUp,
    ReceivedRequest,
    ScriptedBroker,
    fetched,
    produced,
)

from penstock.client.admin_values import ConfigResource, NewTopic
from penstock.client.cluster import ClusterClient
from penstock.client.connection import ConnectionLimits
from penstock.client.data_calls import LATEST, FetchFrom
from penstock.client.errors import (
    ClientClosed,
    ClientError,
    ConnectFailed,
    Disconnected,
    ItemsFailed,
    OutOfTime,
    RefusedByBroker,
)
from penstock.model.errors import ErrorCode
from penstock.model.ids import Offset, TopicPartition
from penstock.protocol.api_keys import ApiKey

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
PRODUCE, FETCH, METADATA = ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.METADATA
CREATE = ApiKey.CREATE_TOPICS
LOG_DIRS, CONFIGS = ApiKey.DESCRIBE_LOG_DIRS, ApiKey.DESCRIBE_CONFIGS


@asynccontextmanager
async def two_brokers() -> AsyncIterator[tuple[Cluster, ScriptedBroker, ScriptedBroker]]:
    async with ScriptedBroker(1) as first, ScriptedBroker(2) as second:
        cluster = Cluster(first, second)
        cluster.leaders["t"] = [1, 2]
        yield cluster, first, second


def client_of(*brokers: ScriptedBroker) -> ClusterClient:
    return ClusterClient([str(broker.address) for broker in brokers], retry_backoff_ms=1)


def hang(_: ReceivedRequest) -> Answer:
    raise Hang


def hang_up(_: ReceivedRequest) -> Answer:
    raise HangUp


def test_a_batch_goes_to_the_leader_of_its_partition(run: Run) -> None:
    async def scenario() -> None:
        async with two_brokers() as (_, first, second), client_of(first) as client:
            first.handlers[PRODUCE] = lambda request: produced(request, base_offset=10)
            second.handlers[PRODUCE] = lambda request: produced(request, base_offset=20)
            assert (await client.produce(T0, b"batch")).base_offset == 10
            assert (await client.produce(T1, b"batch")).base_offset == 20
            (request,) = [request for request in second.requests if request.api_key is PRODUCE]
            assert request.message.acks == -1
            records = request.message.topic_data[0].partition_data[0].records
            assert bytes(records) == b"batch"

    run(scenario)


def test_a_new_leader_is_found_with_new_metadata(run: Run) -> None:
    async def scenario() -> None:
        async with two_brokers() as (cluster, first, second), client_of(first) as client:

            def not_leader(request: ReceivedRequest) -> Answer:
                cluster.leaders["t"] = [2, 2]
                return produced(request, code=ErrorCode.NOT_LEADER_OR_FOLLOWER)

            first.handlers[PRODUCE] = not_leader
            second.handlers[PRODUCE] = lambda request: produced(request, base_offset=20)
            assert (await client.produce(T0, b"batch")).base_offset == 20
            assert first.count(PRODUCE) == second.count(PRODUCE) == 1

    run(scenario)


def test_produce_continues_with_the_next_leader_after_a_broker_failure(run: Run) -> None:
    async def scenario() -> None:
        async with two_brokers() as (cluster, first, second), client_of(first, second) as client:
            first.handlers[PRODUCE] = produced
            second.handlers[PRODUCE] = lambda request: produced(request, base_offset=20)
            await client.produce(T0, b"batch")
            await first.stop()
            cluster.leaders["t"] = [2, 2]
            assert (await client.produce(T0, b"batch")).base_offset == 20
            await first.start()

    run(scenario)


def test_a_lost_connection_is_reopened(run: Run) -> None:
    async def scenario() -> None:
        async with two_brokers() as (_, first, _second), client_of(first) as client:
            attempts = itertools.count()
            first.handlers[PRODUCE] = lambda request: (
                produced(request) if next(attempts) else hang_up(request)
            )
            assert (await client.produce(T0, b"batch")).base_offset == 7
            assert first.count(PRODUCE) == 2

    run(scenario)


def test_a_fatal_error_is_raised_at_once(run: Run) -> None:
    async def scenario() -> None:
        async with two_brokers() as (_, first, _second), client_of(first) as client:
            first.handlers[PRODUCE] = lambda request: produced(
                request, code=ErrorCode.MESSAGE_TOO_LARGE
            )
            with pytest.raises(
                RefusedByBroker, match=r"produce to t-0.*MESSAGE_TOO_LARGE"
            ) as caught:
                await client.produce(T0, b"batch")
            assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE
            assert first.count(PRODUCE) == 1

    run(scenario)


def test_retries_end_at_the_timeout_with_the_last_error(run: Run) -> None:
    async def scenario() -> None:
        async with two_brokers() as (_, first, _second), client_of(first) as client:
            first.handlers[PRODUCE] = lambda request: produced(
                request, code=ErrorCode.NOT_ENOUGH_REPLICAS
            )
            with pytest.raises(OutOfTime, match=r"within 1\.5 s.*NOT_ENOUGH_REPLICAS"):
                await client.produce(T0, b"batch", timeout_ms=1_500)
            assert first.count(PRODUCE) > 1

    run(scenario)


@pytest.mark.parametrize(
    ("partition", "complaint"),
    [
        (TopicPartition("missing", 0), "'missing' does not exist"),
        (TopicPartition("t", 7), "2 partitions, none with the number 7"),
        (TopicPartition("t", -1), "2 partitions, none with the number -1"),
    ],
)
def test_a_missing_partition_is_named(run: Run, partition: TopicPartition, complaint: str) -> None:
    async def scenario() -> None:
        async with two_brokers() as (_, first, _second), client_of(first) as client:
            with pytest.raises(OutOfTime, match=complaint):
                await client.produce(partition, b"batch", timeout_ms=1_200)

    run(scenario)


def test_produce_waits_for_a_partition_without_leader(run: Run) -> None:
    async def scenario() -> None:
        async with two_brokers() as (cluster, first, second), client_of(first) as client:
            cluster.leaders["t"] = [-1, 2]
            second.handlers[PRODUCE] = produced
            ordinary, looks = first.handlers[METADATA], itertools.count(1)

            def elect_in_the_end(request: ReceivedRequest) -> Answer | Awaitable[Answer]:
                if next(looks) == 4:
                    cluster.leaders["t"] = [2, 2]
                return ordinary(request)

            first.handlers[METADATA] = second.handlers[METADATA] = elect_in_the_end
            assert (await client.produce(T0, b"batch")).base_offset == 7
            assert next(looks) == 5

    run(scenario)


def test_acks_0_does_not_wait_for_a_response(run: Run) -> None:
    async def scenario() -> None:
        async with two_brokers() as (_, first, _second), client_of(first) as client:
            first.handlers[PRODUCE] = lambda _: None
            assert (await client.produce(T0, b"batch", acks=0)).base_offset == -1

    run(scenario)


def test_concurrent_failures_refresh_metadata_once(run: Run) -> None:
    async def scenario() -> None:
        async with two_brokers() as (cluster, first, second), client_of(first) as client:
            second.handlers[PRODUCE] = produced

            def not_leader(request: ReceivedRequest) -> Answer:
                cluster.leaders["t"] = [2, 2]
                return produced(request, code=ErrorCode.NOT_LEADER_OR_FOLLOWER)

            first.handlers[PRODUCE] = not_leader
            await client.metadata(["t"])
            before = first.count(METADATA) + second.count(METADATA)
            await asyncio.gather(*(client.produce(T0, b"batch") for _ in range(10)))
            # One refresh for the topic that was new to the client, one after the failures; a late
            # failure may cause one more.
            assert first.count(METADATA) + second.count(METADATA) - before <= 3

    run(scenario)


def test_metadata_is_refreshed_after_its_max_age(run: Run) -> None:
    async def scenario() -> None:
        async with two_brokers() as (_, first, _second):
            first.handlers[PRODUCE] = produced
            async with ClusterClient(str(first.address), metadata_max_age_ms=1) as client:
                await client.produce(T0, b"batch")
                before = first.count(METADATA) + _second.count(METADATA)
                await asyncio.sleep(0.01)  # ten times the max age
                await client.produce(T0, b"batch")
                assert first.count(METADATA) + _second.count(METADATA) > before

    run(scenario)


def test_a_fetch_goes_to_every_leader_and_keeps_the_order_of_the_request(run: Run) -> None:
    async def scenario() -> None:
        async with two_brokers() as (_, first, second), client_of(first) as client:
            first.handlers[FETCH] = lambda request: fetched(request, records=b"one")
            second.handlers[FETCH] = lambda request: fetched(request, records=b"two")
            got = await client.fetch([FetchFrom(T1, Offset(0)), FetchFrom(T0, Offset(5))])
            assert [(partition.tp, bytes(partition.batches)) for partition in got] == [
                (T1, b"two"),
                (T0, b"one"),
            ]
            (request,) = [request.message for request in first.requests if request.api_key is FETCH]
            assert request.topics[0].partitions[0].fetch_offset == 5

    run(scenario)


def test_a_partition_that_fails_does_not_affect_the_others(run: Run) -> None:
    async def scenario() -> None:
        async with two_brokers() as (_, first, second), client_of(first) as client:
            first.handlers[FETCH] = lambda request: fetched(request, records=b"one")
            second.handlers[FETCH] = hang_up
            good, bad = await client.fetch([FetchFrom(T0, Offset(0)), FetchFrom(T1, Offset(0))])
            assert bytes(good.batches) == b"one"
            assert (bad.error, len(bad.batches)) == (ErrorCode.NETWORK_EXCEPTION, 0)

    run(scenario)


def test_a_fetch_in_which_every_partition_failed_is_retried(run: Run) -> None:
    async def scenario() -> None:
        async with two_brokers() as (_, first, _second), client_of(first) as client:
            codes = iter([ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NONE])
            first.handlers[FETCH] = lambda request: fetched(request, code=next(codes))
            (got,) = await client.fetch([FetchFrom(T0, Offset(0))])
            assert bytes(got.batches) == b"batch"

    run(scenario)


def test_an_offset_out_of_range_is_returned_without_a_retry(run: Run) -> None:
    async def scenario() -> None:
        async with two_brokers() as (_, first, _second), client_of(first) as client:
            first.handlers[FETCH] = lambda request: fetched(
                request, code=ErrorCode.OFFSET_OUT_OF_RANGE, records=b""
            )
            (got,) = await client.fetch([FetchFrom(T0, Offset(99))])
            assert got.error is ErrorCode.OFFSET_OUT_OF_RANGE
            assert first.count(FETCH) == 1

    run(scenario)


def test_a_waiting_fetch_does_not_delay_other_requests(run: Run) -> None:
    async def scenario() -> None:
        async with two_brokers() as (_, first, _second), client_of(first) as client:
            fetching = asyncio.Event()

            def wait_long(request: ReceivedRequest) -> Answer:
                fetching.set()
                raise Hang

            first.handlers[FETCH] = wait_long
            first.handlers[PRODUCE] = produced
            long_poll = asyncio.create_task(client.fetch([FetchFrom(T0, Offset(0))]))
            await fetching.wait()
            assert (await client.produce(T0, b"batch")).base_offset == 7
            long_poll.cancel()
            await asyncio.wait([long_poll])

    run(scenario)


def test_only_failed_partitions_are_retried(run: Run) -> None:
    async def scenario() -> None:
        async with two_brokers() as (_, first, second), client_of(first) as client:
            codes = iter([ErrorCode.OFFSET_NOT_AVAILABLE, ErrorCode.NONE])
            first.handlers[ApiKey.LIST_OFFSETS] = lambda request: listed(request, ErrorCode.NONE)
            second.handlers[ApiKey.LIST_OFFSETS] = lambda request: listed(request, next(codes))
            offsets = await client.list_offsets({T0: LATEST, T1: LATEST})
            assert {offset: listed_offset.offset for offset, listed_offset in offsets.items()} == {
                T0: 5,
                T1: 5,
            }
            assert first.count(ApiKey.LIST_OFFSETS) == 1
            assert second.count(ApiKey.LIST_OFFSETS) == 2

    run(scenario)


def test_admin_requests_go_to_the_new_controller(run: Run) -> None:
    async def scenario() -> None:
        async with two_brokers() as (cluster, first, second), client_of(first) as client:

            def not_controller(request: ReceivedRequest) -> Answer:
                cluster.controller_id = 2
                return created(request, ErrorCode.NOT_CONTROLLER)

            first.handlers[CREATE] = not_controller
            second.handlers[CREATE] = lambda request: created(request, ErrorCode.NONE)
            created_ones = await client.admin.create_topics([NewTopic("new", 4)])
            (topic,) = created_ones.values()
            assert (topic.name, topic.partitions) == ("new", 4)

    run(scenario)


def test_an_admin_request_whose_response_was_lost_is_not_retried(run: Run) -> None:
    async def scenario() -> None:
        async with two_brokers() as (_, first, _second), client_of(first) as client:
            first.handlers[CREATE] = hang_up
            with pytest.raises(Disconnected, match="CreateTopics may have been carried out"):
                await client.admin.create_topics([NewTopic(name="new")])
            assert first.count(CREATE) == 1

    run(scenario)


def test_a_refused_admin_request_has_the_brokers_message(run: Run) -> None:
    async def scenario() -> None:
        async with two_brokers() as (_, first, _second), client_of(first) as client:
            first.handlers[CREATE] = lambda request: created(
                request, ErrorCode.TOPIC_ALREADY_EXISTS, "topic 'new' is there already"
            )
            with pytest.raises(RefusedByBroker) as caught:
                await client.admin.create_topics([NewTopic(name="new")])
            assert str(caught.value) == (
                "create topic 'new': topic 'new' is there already (TOPIC_ALREADY_EXISTS)"
            )

    run(scenario)


def test_a_broker_that_takes_long_does_not_hold_the_others_up(run: Run) -> None:
    async def scenario() -> None:
        async with two_brokers() as (_, first, second), client_of(first, second) as client:
            first.handlers[METADATA] = hang
            for _ in range(3):  # whichever is asked first
                metadata = await client.metadata(timeout_ms=600_000)
                assert set(metadata.brokers) == {1, 2}
            assert second.count(METADATA) >= 3

    run(scenario)


def test_a_broker_that_refuses_leaves_the_answers_of_the_others(run: Run) -> None:
    async def scenario() -> None:
        async with two_brokers() as (_, first, second), client_of(first) as client:
            first.handlers[LOG_DIRS] = lambda request: log_dirs(request, ErrorCode.NONE)
            second.handlers[LOG_DIRS] = lambda request: log_dirs(
                request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            )
            with pytest.raises(ItemsFailed, match="log dirs of broker 2") as caught:
                await client.admin.describe_log_dirs()
            assert list(caught.value.errors) == [2]
            assert caught.value.results == {1: []}

    run(scenario)


def test_settings_of_a_missing_broker_leave_those_of_the_others(run: Run) -> None:
    async def scenario() -> None:
        async with two_brokers() as (_, first, _second), client_of(first) as client:
            first.handlers[CONFIGS] = described_configs
            there, absent = ConfigResource.broker(1), ConfigResource.broker(9)
            with pytest.raises(ItemsFailed, match="broker 9 is not registered") as caught:
                await client.admin.describe_configs([there, absent])
            assert (list(caught.value.errors), caught.value.results) == ([absent], {there: []})
            with pytest.raises(RefusedByBroker, match="broker 9 is not registered"):
                await client.admin.describe_configs([absent])

    run(scenario)


def log_dirs(_: ReceivedRequest, code: ErrorCode) -> Answer:
    return {"throttle_time": ZERO, "error_code": code, "results": ()}


def described_configs(request: ReceivedRequest) -> Answer:
    return {
        "throttle_time": ZERO,
        "results": [
            {
                "error_code": ErrorCode.NONE,
                "error_message": None,
                "resource_type": resource.resource_type,
                "resource_name": resource.resource_name,
                "configs": (),
            }
            for resource in request.message.resources
        ],
    }


def test_one_reachable_bootstrap_address_is_enough(run: Run) -> None:
    async def scenario() -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            dead = f"127.0.0.1:{free.getsockname()[1]}"
        async with (
            two_brokers() as (_, first, _second),
            ClusterClient(f"{dead},{first.address}") as client,
        ):
            assert set((await client.metadata()).brokers) == {1, 2}
        with pytest.raises(ConnectFailed, match=f"{dead}.*refused"):
            async with ClusterClient(dead):
                pass
        with pytest.raises(ClientError, match="none of 2 brokers answered"):
            async with ClusterClient([dead, str(first.address)]):
                pass

    run(scenario)


def test_close_fails_pending_operations(run: Run) -> None:
    async def scenario() -> None:
        async with two_brokers() as (_, first, _second):
            fetching = asyncio.Event()

            def wait_long(_: ReceivedRequest) -> Answer:
                fetching.set()
                raise Hang

            first.handlers[FETCH] = wait_long
            client = client_of(first)
            waiting = asyncio.create_task(client.fetch([FetchFrom(T0, Offset(0))]))
            await fetching.wait()
            await client.close()
            with pytest.raises(ClientClosed):
                await waiting
            with pytest.raises(ClientClosed):
                await client.metadata()

    run(scenario)


def test_reconnects_to_an_unreachable_broker_back_off(run: Run) -> None:
    async def scenario() -> None:
        async with two_brokers() as (_, first, second):
            second.handlers[ApiKey.API_VERSIONS] = hang_up
            first.handlers[METADATA] = Cluster(first, second)._metadata
            cluster = Cluster(first, second)
            cluster.leaders["t"] = [2, 2]
            limits = ConnectionLimits(connect_timeout_ms=1_000)
            client = ClusterClient(str(first.address), retry_backoff_ms=1, limits=limits)
            calls = [client.produce(T0, b"batch", timeout_ms=300) for _ in range(50)]
            results = await asyncio.gather(*calls, return_exceptions=True)
            assert {type(result) for result in results} == {OutOfTime}
            # The backoff is 50 ms, then 100, then 200, less a fifth at most.
            assert second.connections <= 4
            await client.close()

    run(scenario)


def listed(request: ReceivedRequest, code: ErrorCode) -> Answer:
    return {
        "throttle_time": ZERO,
        "topics": [
            {
                "name": topic.name,
                "partitions": [
                    {"partition_index": partition.partition_index, "error_code": code, "offset": 5}
                    for partition in topic.partitions
                ],
            }
            for topic in request.message.topics
        ],
    }


def created(request: ReceivedRequest, code: ErrorCode, message: str | None = None) -> Answer:
    return {
        "throttle_time": ZERO,
        "topics": [
            {
                "name": topic.name,
                "topic_id": None,
                "error_code": code,
                "error_message": message,
                "num_partitions": topic.num_partitions,
                "replication_factor": 1,
                "configs": (),
            }
            for topic in request.message.topics
        ],
    }
