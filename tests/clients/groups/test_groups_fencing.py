"""Which members may commit for a group: raw requests against a live group."""

from __future__ import annotations

import pytest
from tests.clients.groups.harness import GroupHarness, python_member
from tests.clients.groups.scenarios import GroupClient, committed, find_generation, partitions_of
from tests.clients.our_topics import ask, new_name, new_topic
from tests.clients.under_test import BrokerUnderTest

from penstock.client.call import Call
from penstock.client.cluster import ClusterClient
from penstock.client.metadata import read_error
from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicPartition
from penstock.protocol.api_keys import ApiKey

pytestmark = pytest.mark.xdist_group("groups-confluent-kafka")

NOBODY = "no-such-member"


@pytest.fixture(params=["classic", "consumer"])
def group_client(request: pytest.FixtureRequest, group_broker: BrokerUnderTest) -> GroupClient:
    command = python_member("confluent-kafka", group_broker.bootstrap_servers)
    return GroupClient(command, request.param)


def commit(
    broker: BrokerUnderTest, group: str, tp: TopicPartition, member: str, generation: int
) -> ErrorCode:
    """The error code for a commit of offset 7 by this member."""
    entry = {"partition_index": tp.partition, "committed_offset": 7}
    fields = {
        "group_id": group,
        "generation_id_or_member_epoch": generation,
        "member_id": member,
        "topics": [{"name": tp.topic, "partitions": [entry | {"committed_metadata": ""}]}],
    }

    async def send(client: ClusterClient) -> ErrorCode:
        node = await client.groups.find_coordinator(group)
        call = Call(ApiKey.OFFSET_COMMIT, range(8, 10), fields)
        router = client._router
        answer = await router.ask(node.address, call, router.deadline(None))
        return read_error(answer.topics[0].partitions[0].error_code)

    return ask(broker, send)


def test_only_members_of_the_current_generation_commit(
    group_broker: BrokerUnderTest, harness: GroupHarness
) -> None:
    group, topic = new_name(), new_topic(group_broker, partitions=1)
    (tp,) = partitions_of(topic, 1)
    member = harness.join(group, topic)
    harness.wait_settled([member], [tp])
    described = ask(group_broker, lambda client: client.groups.describe(group)).members[0]
    is_classic = harness.protocol == "classic"
    current = find_generation(group_broker, group) if is_classic else described.epoch
    assert current is not None
    stale = ErrorCode.ILLEGAL_GENERATION if is_classic else ErrorCode.STALE_MEMBER_EPOCH
    unknown = ErrorCode.UNKNOWN_MEMBER_ID
    expected_codes = {
        (NOBODY, current): unknown,
        ("", -1): unknown,
        (described.member, current - 1): stale,
        (described.member, current + 1): stale,
    }
    for (name, generation), expected in expected_codes.items():
        code = commit(group_broker, group, tp, name, generation)
        assert (name, generation, code) == (name, generation, expected)
    assert committed(group_broker, group) == {}
    assert commit(group_broker, group, tp, described.member, current) is ErrorCode.NONE
    assert committed(group_broker, group) == {tp: (7, "")}


def test_an_empty_group_accepts_commits_without_a_generation_only(
    group_broker: BrokerUnderTest, harness: GroupHarness
) -> None:
    group, topic = new_name(), new_topic(group_broker, partitions=1)
    (tp,) = partitions_of(topic, 1)
    member = harness.join(group, topic)
    harness.wait_settled([member], [tp])
    described = ask(group_broker, lambda client: client.groups.describe(group)).members[0]
    member.leave()
    code = commit(group_broker, group, tp, described.member, 1)
    assert code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION)
    assert committed(group_broker, group) == {}
    assert commit(group_broker, group, tp, "", -1) is ErrorCode.NONE
    assert committed(group_broker, group) == {tp: (7, "")}
