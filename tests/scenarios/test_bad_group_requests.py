"""Group requests that are too large or invalid affect their sender only, and no other group.

All groups are in one partition of the offsets topic, and one of them has a steady member.
"""

import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from tests.profile import is_long
from tests.scenarios.raw_client import PATIENCE_S, CutOff, RawClient, request_frame
from tests.scenarios.watched_broker import TOPIC, WatchedBroker

from penstock.apis.registry import APIS
from penstock.model.errors import ErrorCode
from penstock.protocol.api_keys import ApiKey

pytestmark = pytest.mark.xdist_group("bad-group-requests")

SETTINGS = {"offsets.topic.num.partitions": 1, "group.initial.rebalance.delay.ms": 0}
JOIN, SYNC, HEARTBEAT = ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP, ApiKey.HEARTBEAT
COMMIT, LEAVE = ApiKey.OFFSET_COMMIT, ApiKey.LEAVE_GROUP
LONGEST = 32_767  # maximum size of a string, in bytes
EXTREMES = (-(2**31), -2, -1, 0, 2, 2**31 - 1)
SESSION: dict[str, Any] = {
    "session_timeout": timedelta(minutes=30),  # no machine is so slow that a member expires
    "rebalance_timeout": timedelta(seconds=60),
    "protocol_type": "consumer",
}
RANGE = [{"name": "range", "metadata": b"\0\1"}]


class Steady:
    """The only member of a group in generation 1."""

    def __init__(self, client: RawClient) -> None:
        self.client = client
        wait_for_coordinator(client, "steady")
        joined = client.ask(JOIN, 2, group_id="steady", protocols=RANGE, **SESSION)
        assert (joined.error_code, joined.generation_id) == (0, 1)
        self.id: str = joined.member_id
        assignments = [{"member_id": self.id, "assignment": b"all"}]
        synced = client.ask(SYNC, 2, **self.fields, assignments=assignments)
        assert (synced.error_code, synced.assignment) == (0, b"all")

    @property
    def fields(self) -> dict[str, Any]:
        return {"group_id": "steady", "generation_id": 1, "member_id": self.id}

    def check(self) -> None:
        """Checks that the group was not rebalanced and can still commit."""
        assert self.client.ask(HEARTBEAT, 2, **self.fields).error_code == 0
        assert commit(self.client, "steady", member_id=self.id, generation=1) == [0]


def wait_for_coordinator(client: RawClient, group: str) -> None:
    """Finds the coordinator; the first request creates the offsets topic."""
    response = client.ask(ApiKey.FIND_COORDINATOR, 3, key=group)
    assert response.error_code == 0, response


def commit(
    client: RawClient,
    group: str,
    topics: dict[str, list[int]] | None = None,
    *,
    member_id: str = "",
    generation: int = -1,
) -> list[int]:
    response = client.ask(
        COMMIT,
        8,
        group_id=group,
        member_id=member_id,
        generation_id_or_member_epoch=generation,
        topics=[
            {"name": name, "partitions": [{"partition_index": index} for index in indexes]}
            for name, indexes in (topics or {TOPIC: [0]}).items()
        ],
    )
    return [partition.error_code for topic in response.topics for partition in topic.partitions]


@pytest.fixture(name="steady", scope="module")
def _steady(watched: WatchedBroker) -> Iterator[Steady]:
    with watched.connect() as client:
        yield Steady(client)


@pytest.fixture(name="bad")
def _bad(broker: WatchedBroker, steady: Steady) -> Iterator[RawClient]:
    with broker.connect() as client:
        assert client.is_served()  # the first request has a time limit, and some take long to build
        yield client
    steady.check()


# -- too large ---------------------------------------------------------------------------------


def test_a_join_group_of_ten_megabytes_closes_the_connection(bad: RawClient) -> None:
    protocols = [{"name": "range", "metadata": b"x" * (10 << 20)}]
    with pytest.raises(CutOff):
        bad.ask(JOIN, 2, group_id="large", protocols=protocols, **SESSION)


@pytest.mark.parametrize("version", [2, 9])
def test_a_join_group_too_large_for_a_record_is_rejected(bad: RawClient, version: int) -> None:
    protocols = [{"name": "range", "metadata": b"x" * (3 << 20)}]
    group = f"large-{version}"
    join = {"group_id": group, "protocols": protocols, **SESSION}
    joined = bad.ask(JOIN, version, **join)
    if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
        joined = bad.ask(JOIN, version, **join, member_id=joined.member_id)
    if joined.error_code == 0:
        fields = {"group_id": group, "generation_id": 1, "member_id": joined.member_id}
        joined = bad.ask(SYNC, 3, **fields)
    assert joined.error_code != 0
    assert bad.is_served()


def test_an_assignment_too_large_for_a_record_is_rejected(bad: RawClient) -> None:
    joined = bad.ask(JOIN, 2, group_id="heavy", protocols=RANGE, **SESSION)
    assert joined.error_code == 0
    fields = {
        "group_id": "heavy",
        "generation_id": joined.generation_id,
        "member_id": joined.member_id,
    }
    assignments = [{"member_id": joined.member_id, "assignment": b"x" * (3 << 20)}]
    assert bad.ask(SYNC, 2, **fields, assignments=assignments).error_code != 0
    assert bad.is_served()


def test_a_thousand_protocols_are_accepted(bad: RawClient) -> None:
    protocols = [{"name": f"p{number}", "metadata": b""} for number in range(1000)]
    joined = bad.ask(JOIN, 2, group_id="many", protocols=protocols, **SESSION)
    assert (joined.error_code, joined.protocol_name) == (0, "p0")


@pytest.mark.parametrize("version", [2, 9] if is_long() else [9])
def test_two_hundred_thousand_protocols_are_an_invalid_request(
    bad: RawClient, version: int
) -> None:
    protocols = [{"name": f"p{number}", "metadata": b""} for number in range(200_000)]
    response = bad.ask(JOIN, version, group_id="countless", protocols=protocols, **SESSION)
    assert response.error_code == ErrorCode.INVALID_REQUEST
    assert "countless" not in groups_of(bad)


def test_a_group_of_pending_members_ends_with_their_connection(
    broker: WatchedBroker, bad: RawClient
) -> None:
    with broker.connect() as client:
        response = client.ask(JOIN, 9, group_id="brief", protocols=RANGE, **SESSION)
        assert response.error_code == ErrorCode.MEMBER_ID_REQUIRED
        assert "brief" in groups_of(bad)
    deadline = time.monotonic() + PATIENCE_S
    while "brief" in groups_of(bad):  # until the broker has noticed the disconnect
        assert time.monotonic() < deadline, "it is kept for the session timeout"


def groups_of(client: RawClient) -> set[str]:
    return {group.group_id for group in client.ask(ApiKey.LIST_GROUPS, 4).groups}


@pytest.mark.parametrize("version", [0, 5, 9])
@pytest.mark.parametrize("field", ["group_id", "member_id", "group_instance_id", "client_id"])
def test_names_of_any_length_get_a_response(bad: RawClient, version: int, field: str) -> None:
    """A member id contains the client id."""
    values: dict[str, Any] = {"group_id": "long", "protocols": RANGE, **SESSION}
    values[field] = "n" * LONGEST
    bad.send(request_frame(JOIN, version, **values))
    response = bad.read_response(JOIN, version, 0)
    if response.error_code == 0:  # a silent member would delay the next rebalance
        members = [{"member_id": response.member_id}]
        assert bad.ask(LEAVE, 3, group_id=values["group_id"], members=members).error_code == 0


def test_pending_member_ids_are_bounded(bad: RawClient) -> None:
    """Each member id is kept for the session timeout."""
    join_frame = request_frame(JOIN, 4, group_id="loop", protocols=RANGE, **SESSION)
    codes = set()
    for _ in range(101):
        bad.send(join_frame * 100)
        codes |= {bad.read_response(JOIN, 4, 0).error_code for _ in range(100)}
    assert codes == {ErrorCode.MEMBER_ID_REQUIRED, ErrorCode.GROUP_MAX_SIZE_REACHED}


# -- invalid -----------------------------------------------------------------------------------


@pytest.mark.parametrize("generation", EXTREMES)
def test_another_generation_is_rejected(bad: RawClient, steady: Steady, generation: int) -> None:
    fields = {**steady.fields, "generation_id": generation}
    illegal = ErrorCode.ILLEGAL_GENERATION
    assert bad.ask(HEARTBEAT, 2, **fields).error_code == illegal
    assert bad.ask(SYNC, 2, **fields).error_code == illegal
    assert commit(bad, "steady", member_id=steady.id, generation=generation) == [illegal]


def test_an_unknown_member_is_rejected(bad: RawClient) -> None:
    stranger = {"group_id": "steady", "generation_id": 1, "member_id": "stranger"}
    unknown = ErrorCode.UNKNOWN_MEMBER_ID
    assert bad.ask(HEARTBEAT, 2, **stranger).error_code == unknown
    assert bad.ask(SYNC, 2, **stranger).error_code == unknown
    assert bad.ask(LEAVE, 2, **stranger).error_code == unknown
    assert commit(bad, "steady", member_id="stranger", generation=1) == [unknown]
    assert commit(bad, "steady") == [unknown]


def test_offsets_of_unknown_partitions_are_not_stored(bad: RawClient) -> None:
    topics = {"absent": [0], "": [0], "a b": [0], TOPIC: [1, -1, 2**31 - 1]}
    codes = commit(bad, "offsets", topics)
    assert codes == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 6
    fetched = bad.ask(ApiKey.OFFSET_FETCH, 7, group_id="offsets", topics=None)
    assert (fetched.error_code, fetched.topics) == (0, ())


@pytest.mark.parametrize("timeout_ms", [-(2**31), -1, 0, 1, 2**31 - 1])
@pytest.mark.parametrize("name", ["session_timeout", "rebalance_timeout"])
def test_timeouts_out_of_range_get_a_response(bad: RawClient, name: str, timeout_ms: int) -> None:
    times = {**SESSION, name: timedelta(milliseconds=timeout_ms)}
    joined = bad.ask(JOIN, 2, group_id=f"{name}{timeout_ms}", protocols=RANGE, **times)
    expected = ErrorCode.INVALID_SESSION_TIMEOUT if name == "session_timeout" else ErrorCode.NONE
    assert joined.error_code == expected


def test_invalid_protocols_are_rejected(bad: RawClient) -> None:
    code = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    without_type = {**SESSION, "protocol_type": ""}
    assert bad.ask(JOIN, 2, group_id="p", protocols=[], **SESSION).error_code == code
    assert bad.ask(JOIN, 2, group_id="p", protocols=RANGE, **without_type).error_code == code


@pytest.mark.parametrize("key", [JOIN, SYNC, HEARTBEAT, LEAVE])
def test_an_empty_group_id_is_rejected(bad: RawClient, key: ApiKey) -> None:
    for version in APIS[key].versions:
        named = {"protocol_type": "consumer", "protocol_name": "range"}
        response = bad.ask(key, version, group_id="", **named)
        assert response.error_code == ErrorCode.INVALID_GROUP_ID
