from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from tests.unit.client.conftest import Run
from tests.unit.client.scripted_broker import (
    ZERO,
    Answer,
    Cluster,
    HangUp,
    ReceivedRequest,
    ScriptedBroker,
)

from penstock.client.cluster import ClusterClient
from penstock.client.errors import OutOfTime, RefusedByBroker
from penstock.client.group_calls import read_assignment
from penstock.client.group_values import CommittedOffset, ListedGroup
from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicPartition
from penstock.protocol.api_keys import ApiKey

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
FIND, LIST, DESCRIBE = ApiKey.FIND_COORDINATOR, ApiKey.LIST_GROUPS, ApiKey.DESCRIBE_GROUPS
FETCH, COMMIT, DELETE = ApiKey.OFFSET_FETCH, ApiKey.OFFSET_COMMIT, ApiKey.DELETE_GROUPS
SERVED = {FIND: (0, 4), LIST: (0, 5), DESCRIBE: (0, 5), FETCH: (1, 9), COMMIT: (2, 9)}


class TwoBrokers:
    """Two brokers, one of which coordinates the group."""

    def __init__(self, first: ScriptedBroker, second: ScriptedBroker) -> None:
        self.first, self.second = first, second
        self.coordinator = first
        Cluster(first, second)
        for broker in (first, second):
            broker.served |= SERVED | {DELETE: (0, 2)}
            broker.handlers[FIND] = self._find

    def _find(self, request: ReceivedRequest) -> Answer:
        (key,) = request.message.coordinator_keys
        address = self.coordinator.address
        coordinator = {"key": key, "node_id": self.coordinator.id, "error_code": 0}
        location = {"host": address.host, "port": address.port, "error_message": None}
        return {"throttle_time": ZERO, "coordinators": [coordinator | location]}


@asynccontextmanager
async def two_coordinators() -> AsyncIterator[tuple[TwoBrokers, ClusterClient]]:
    async with ScriptedBroker(1) as first, ScriptedBroker(2) as second:
        both = TwoBrokers(first, second)
        async with ClusterClient(str(first.address), retry_backoff_ms=1) as client:
            yield both, client


def offsets(code: ErrorCode = ErrorCode.NONE, *committed: int) -> Answer:
    partitions = [
        {
            "partition_index": number,
            "committed_offset": offset,
            "committed_leader_epoch": 3,
            "metadata": "m",
            "error_code": 0,
        }
        for number, offset in enumerate(committed)
    ]
    topics = [{"name": "t", "partitions": partitions}]
    return {
        "throttle_time": ZERO,
        "groups": [{"group_id": "g", "topics": topics, "error_code": code}],
    }


def deleted(code: ErrorCode = ErrorCode.NONE) -> Answer:
    return {"throttle_time": ZERO, "results": [{"group_id": "g", "error_code": code}]}


def described(state: str, code: ErrorCode = ErrorCode.NONE) -> Answer:
    group = {
        "error_code": code,
        "group_id": "g",
        "group_state": state,
        "protocol_type": "consumer",
        "protocol_data": "range",
        "members": [],
        "authorized_operations": 0,
    }
    return {"throttle_time": ZERO, "groups": [group]}


def listed(*groups: str) -> Answer:
    topics = [
        {
            "group_id": group,
            "protocol_type": "consumer",
            "group_state": "Stable",
            "group_type": "Classic",
        }
        for group in groups
    ]
    return {"throttle_time": ZERO, "error_code": 0, "groups": topics}


def test_group_requests_go_to_the_coordinator(run: Run) -> None:
    async def scenario() -> None:
        async with two_coordinators() as (both, client):
            both.coordinator = both.second
            both.second.handlers[FETCH] = lambda _: offsets(ErrorCode.NONE, 5, -1)
            assert await client.groups.fetch_offsets("g") == {T0: CommittedOffset(5, 3, "m")}
            await client.groups.fetch_offsets("g")
            # The coordinator is cached.
            assert both.first.count(FIND) + both.second.count(FIND) == 1

    run(scenario)


def test_a_new_coordinator_is_found_after_not_coordinator(run: Run) -> None:
    async def scenario() -> None:
        async with two_coordinators() as (both, client):

            def moved(_: ReceivedRequest) -> Answer:
                both.coordinator = both.second
                return offsets(ErrorCode.NOT_COORDINATOR)

            both.first.handlers[FETCH] = moved
            both.second.handlers[FETCH] = lambda _: offsets(ErrorCode.NONE, 1, 2)
            committed = await client.groups.fetch_offsets("g")
            assert {tp: at.offset for tp, at in committed.items()} == {T0: 1, T1: 2}

    run(scenario)


def test_a_loading_coordinator_is_retried(run: Run) -> None:
    async def scenario() -> None:
        async with two_coordinators() as (both, client):
            attempts = itertools.count()
            both.first.handlers[FETCH] = lambda _: offsets(
                ErrorCode.NONE if next(attempts) else ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            )
            assert await client.groups.fetch_offsets("g") == {}
            both.first.handlers[FETCH] = lambda _: offsets(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
            with pytest.raises(OutOfTime, match="COORDINATOR_LOAD_IN_PROGRESS"):
                await client.groups.fetch_offsets("g", timeout_ms=1_000)

    run(scenario)


def test_offsets_are_committed_without_a_member(run: Run) -> None:
    async def scenario() -> None:
        async with two_coordinators() as (both, client):
            answer = {"partition_index": 0, "error_code": ErrorCode.UNKNOWN_MEMBER_ID}
            topics = [{"name": "t", "partitions": [answer]}]
            both.first.handlers[COMMIT] = lambda _: {"throttle_time": ZERO, "topics": topics}
            with pytest.raises(RefusedByBroker, match=r"group 'g' in t-0.*UNKNOWN_MEMBER_ID"):
                await client.groups.commit_offsets("g", {T0: CommittedOffset(9, metadata="why")})
            (request,) = [request for request in both.first.requests if request.api_key is COMMIT]
            message = request.message
            assert (message.member_id, message.generation_id_or_member_epoch) == ("", -1)
            (partition,) = message.topics[0].partitions
            assert (partition.committed_offset, partition.committed_metadata) == (9, "why")

    run(scenario)


def test_a_group_missing_after_a_lost_response_counts_as_deleted(run: Run) -> None:
    async def scenario() -> None:
        async with two_coordinators() as (both, client):
            attempts = itertools.count()

            def delete(_: ReceivedRequest) -> Answer:
                if not next(attempts):
                    raise HangUp
                return deleted(ErrorCode.GROUP_ID_NOT_FOUND)

            both.first.handlers[DELETE] = delete
            await client.groups.delete("g")
            with pytest.raises(RefusedByBroker, match="GROUP_ID_NOT_FOUND"):
                await client.groups.delete("g")

    run(scenario)


@pytest.mark.parametrize(
    "answer", [described("Dead"), described("", ErrorCode.GROUP_ID_NOT_FOUND)], ids=["old", "new"]
)
def test_an_unknown_group_gets_group_id_not_found(run: Run, answer: Answer) -> None:
    async def scenario() -> None:
        async with two_coordinators() as (both, client):
            both.first.handlers[DESCRIBE] = lambda _: answer
            with pytest.raises(RefusedByBroker) as refused:
                await client.groups.describe("g")
            assert refused.value.code is ErrorCode.GROUP_ID_NOT_FOUND

    run(scenario)


def test_a_broker_without_the_consumer_protocol_gets_only_classic_requests(run: Run) -> None:
    async def scenario() -> None:
        async with two_coordinators() as (both, client):
            both.first.handlers[DESCRIBE] = lambda _: described("Empty")
            description = await client.groups.describe("g")
            assert (description.kind, description.state, description.coordinator.id) == (
                "classic",
                "Empty",
                1,
            )
            assert ApiKey.CONSUMER_GROUP_DESCRIBE not in {e.api_key for e in both.first.requests}

    run(scenario)


def test_groups_of_all_brokers_are_listed(run: Run) -> None:
    async def scenario() -> None:
        async with two_coordinators() as (both, client):
            both.first.handlers[LIST] = lambda _: listed("b")
            both.second.handlers[LIST] = lambda _: listed("a", "c")
            groups = await client.groups.list_groups()
            assert [listing.group for listing in groups] == ["a", "b", "c"]
            assert groups[0] == ListedGroup("a", "classic", "Stable", "consumer")

    run(scenario)


def test_groups_are_listed_after_a_broker_failure(run: Run) -> None:
    """The client still knows the failed broker; its groups are on the other one."""

    async def scenario() -> None:
        async with two_coordinators() as (both, client):
            both.first.handlers[LIST] = lambda _: listed("a")
            both.second.handlers[LIST] = lambda _: listed("b")
            assert [group.group for group in await client.groups.list_groups()] == ["a", "b"]
            both.first.handlers[LIST] = lambda _: listed("a", "b")
            await both.second.stop()
            assert [group.group for group in await client.groups.list_groups()] == ["a", "b"]

    run(scenario)


def test_assignments_of_any_version_are_decoded_and_invalid_ones_are_empty() -> None:
    assigned = b"\x00\x00\x00\x01\x00\x01t\x00\x00\x00\x02\x00\x00\x00\x01\x00\x00\x00\x00"
    for version in (b"\x00\x00", b"\x00\x03"):
        assert read_assignment(version + assigned + b"\xff\xff\xff\xff") == (T0, T1)
    assert read_assignment(b"") == read_assignment(b"\x00\x00\x7f\xff\xff\xff") == ()
