"""Who may commit for a group, by the codes of the broker itself: a live group and raw requests."""

from __future__ import annotations

import pytest
from tests.clients.groups.stage import Stage, python_member
from tests.clients.groups.story import GroupClient, committed, find_generation, partitions_of
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
    broker: BrokerUnderTest, group: str, partition: TopicPartition, member: str, generation: int
) -> ErrorCode:
    """What the coordinator says to this member's commit of offset 7."""
    place = {"partition_index": partition.partition, "committed_offset": 7}
    fields = {
        "group_id": group,
        "generation_id_or_member_epoch": generation,
        "member_id": member,
        "topics": [{"name": partition.topic, "partitions": [place | {"committed_metadata": ""}]}],
    }

    async def tell(client: ClusterClient) -> ErrorCode:
        node = await client.groups.find_coordinator(group)
        call = Call(ApiKey.OFFSET_COMMIT, range(8, 10), fields)
        router = client._router
        answer = await router.ask(node.address, call, router.deadline(None))
        return read_error(answer.topics[0].partitions[0].error_code)

    return ask(broker, tell)


def test_only_members_of_the_current_generation_commit(
    group_broker: BrokerUnderTest, stage: Stage
) -> None:
    group, topic = new_name(), new_topic(group_broker, partitions=1)
    (partition,) = partitions_of(topic, 1)
    member = stage.join(group, topic)
    stage.wait_settled([member], [partition])
    known = ask(group_broker, lambda client: client.groups.describe(group)).members[0]
    is_classic = stage.protocol == "classic"
    current = find_generation(group_broker, group) if is_classic else known.epoch
    assert current is not None
    stale = ErrorCode.ILLEGAL_GENERATION if is_classic else ErrorCode.STALE_MEMBER_EPOCH
    unknown = ErrorCode.UNKNOWN_MEMBER_ID
    answers = {
        (NOBODY, current): unknown,
        ("", -1): unknown,
        (known.member, current - 1): stale,
        (known.member, current + 1): stale,
    }
    for (name, generation), expected in answers.items():
        found = commit(group_broker, group, partition, name, generation)
        assert (name, generation, found) == (name, generation, expected)
    assert committed(group_broker, group) == {}
    assert commit(group_broker, group, partition, known.member, current) is ErrorCode.NONE
    assert committed(group_broker, group) == {partition: (7, "")}


def test_an_empty_group_accepts_commits_without_a_generation_only(
    group_broker: BrokerUnderTest, stage: Stage
) -> None:
    group, topic = new_name(), new_topic(group_broker, partitions=1)
    (partition,) = partitions_of(topic, 1)
    member = stage.join(group, topic)
    stage.wait_settled([member], [partition])
    known = ask(group_broker, lambda client: client.groups.describe(group)).members[0]
    member.leave()
    found = commit(group_broker, group, partition, known.member, 1)
    assert found in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION)
    assert committed(group_broker, group) == {}
    assert commit(group_broker, group, partition, "", -1) is ErrorCode.NONE
    assert committed(group_broker, group) == {partition: (7, "")}
