"""Znode formats: Kafka can read what we write, and we can read what it wrote."""

from __future__ import annotations

import json
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.controller.states import partition

from penstock.controller.znodes import (
    broker_config_path,
    decode_broker,
    decode_cluster_id,
    decode_configs,
    decode_controller,
    decode_last_producer_id,
    decode_state,
    decode_topic,
    encode_broker,
    encode_cluster_id,
    encode_configs,
    encode_controller,
    encode_producer_block,
    encode_state,
    encode_topic,
    format_uuid,
    parse_uuid,
)
from penstock.metadata_store.errors import DamagedZnode
from penstock.metadata_store.interface import NO_SESSION, Stat, Value
from penstock.model.cluster import (
    BrokerEpoch,
    BrokerId,
    BrokerNode,
    ControllerEpoch,
    Endpoint,
    PartitionState,
)
from penstock.model.ids import LeaderEpoch, TopicId


def value(data: bytes, *, czxid: int = 0, version: int = 0) -> Value:
    return Value(data, Stat(czxid, 0, 0, 0, 0, version, 0, NO_SESSION, len(data), 0))


def as_data(fields: object) -> bytes:
    return json.dumps(fields).encode()


class TestBrokerZnodes:
    NODE = BrokerNode(
        id=BrokerId(3),
        epoch=BrokerEpoch(77),
        endpoints=(
            Endpoint("CLIENT", "SASL_SSL", "::1", 9093),
            Endpoint("PLAINTEXT", "PLAINTEXT", "host-1.example", 9092),
        ),
        rack="dc1",
    )

    def test_round_trip_with_czxid_as_broker_epoch(self) -> None:
        data = encode_broker(self.NODE, now_ms=5)
        assert decode_broker(BrokerId(3), value(data, czxid=77)) == self.NODE

    def test_have_kafka_s_json_fields(self) -> None:
        assert json.loads(encode_broker(self.NODE, now_ms=5)) == {
            "version": 5,
            "host": "host-1.example",
            "port": 9092,
            "jmx_port": -1,
            "timestamp": "5",
            "endpoints": ["CLIENT://[::1]:9093", "PLAINTEXT://host-1.example:9092"],
            "listener_security_protocol_map": {"CLIENT": "SASL_SSL", "PLAINTEXT": "PLAINTEXT"},
            "features": {},
            "rack": "dc1",
        }

    def test_version_1_has_one_endpoint(self) -> None:
        data = as_data({"version": 1, "host": "h", "port": 9, "jmx_port": -1, "timestamp": "2"})
        broker = decode_broker(BrokerId(1), value(data))
        assert broker.endpoints == (Endpoint("PLAINTEXT", "PLAINTEXT", "h", 9),)
        assert broker.rack is None

    def test_without_a_protocol_map_use_the_listener_name(self) -> None:
        data = as_data({"version": 2, "endpoints": ["SSL://h:9"]})
        broker = decode_broker(BrokerId(1), value(data))
        assert broker.endpoints == (Endpoint("SSL", "SSL", "h", 9),)

    @pytest.mark.parametrize("text", ["", "h:9", "SSL://h", "SSL://h:port", 3])
    def test_with_an_invalid_endpoint_are_damaged(self, text: object) -> None:
        with pytest.raises(DamagedZnode, match="/brokers/ids/1 cannot be read"):
            decode_broker(BrokerId(1), value(as_data({"endpoints": [text]})))


class TestTopicZnodes:
    ID = TopicId(UUID(int=2**90))

    def test_round_trip(self) -> None:
        moving = partition(0, (0,), (0, 1))._replace(adding=(BrokerId(1),), removing=(BrokerId(0),))
        topic = decode_topic("t", encode_topic(self.ID, [partition(1, (1,), (1,)), moving]))
        assert topic.topic_id == self.ID
        assert topic.replicas == {0: (1,), 1: (0, 1)}
        assert topic.adding == {1: (1,)}
        assert topic.removing == {1: (0,)}

    def test_have_kafka_s_fields(self) -> None:
        data = encode_topic(self.ID, [partition(1, (1,), (1, 2))])
        assert json.loads(data) == {
            "version": 3,
            "topic_id": format_uuid(self.ID),
            "partitions": {"0": [1, 2]},
            "adding_replicas": {},
            "removing_replicas": {},
        }

    def test_version_1_has_no_topic_id(self) -> None:
        topic = decode_topic("t", as_data({"version": 1, "partitions": {"1": [2], "0": [1]}}))
        assert topic.topic_id is None
        assert topic.replicas == {0: (1,), 1: (2,)}

    @pytest.mark.parametrize(
        "data",
        [
            b"",
            b"{",
            b"[]",
            b"\xff",
            as_data({"partitions": {"1": [1]}}),
            as_data({"partitions": {"x": [1]}}),
            as_data({"partitions": {"0": 1}}),
            as_data({"partitions": {"0": ["x"]}}),
            as_data({"partitions": [1]}),
            as_data({"partitions": {}}),
            as_data({"partitions": {"0": []}}),
            as_data({"partitions": {"0": [1]}, "topic_id": "short"}),
            as_data({"partitions": {"0": [1]}, "topic_id": 5}),
        ],
    )
    def test_with_invalid_partitions_are_damaged(self, data: bytes) -> None:
        with pytest.raises(DamagedZnode, match="/brokers/topics/t cannot be read"):
            decode_topic("t", data)


ids = st.integers(0, 2**31 - 1)


class TestPartitionStateZnodes:
    @given(
        leader=st.integers(-1, 2**31 - 1),
        epoch=ids,
        version=ids,
        in_sync=st.lists(ids, max_size=4),
        controller=ids,
    )
    def test_round_trip(
        self, leader: int, epoch: int, version: int, in_sync: list[int], controller: int
    ) -> None:
        state = PartitionState(
            leader=BrokerId(leader),
            leader_epoch=LeaderEpoch(epoch),
            replicas=(BrokerId(5),),
            in_sync=tuple(map(BrokerId, in_sync)),
            partition_epoch=version,
            controller_epoch=ControllerEpoch(controller),
        )
        data = encode_state(state)
        assert decode_state("/p", value(data, version=version), replicas=(BrokerId(5),)) == state
        assert json.loads(data) == {
            "controller_epoch": controller,
            "leader": leader,
            "version": 1,
            "leader_epoch": epoch,
            "isr": in_sync,
        }

    @pytest.mark.parametrize("field", ["leader", "leader_epoch", "isr", "controller_epoch"])
    @pytest.mark.parametrize("bad", [None, "x", True, [None]])
    def test_with_a_missing_field_are_damaged(self, field: str, bad: object) -> None:
        fields = {"controller_epoch": 1, "leader": 1, "leader_epoch": 1, "isr": [1], field: bad}
        with pytest.raises(DamagedZnode, match=field):
            decode_state("/p", value(as_data(fields)), replicas=())

    def test_unknown_fields_are_ignored(self) -> None:
        fields = {"controller_epoch": 1, "leader": 2, "leader_epoch": 3, "isr": [2]}
        data = as_data({**fields, "leader_recovery_state": 1})
        assert decode_state("/p", value(data), replicas=()).leader == 2


def test_configs_round_trip() -> None:
    data = encode_configs({"a": "1", "b": 'é"'})
    assert decode_configs("/config/topics/t", data) == {"a": "1", "b": 'é"'}
    assert json.loads(data)["version"] == 1
    assert decode_configs("/config/topics/t", b"") == {}
    with pytest.raises(DamagedZnode, match="/config/topics/t"):
        decode_configs("/config/topics/t", b"nonsense")


def test_configs_of_all_brokers_have_kafka_s_znode_name() -> None:
    assert broker_config_path("") == "/config/brokers/<default>"
    assert broker_config_path("3") == "/config/brokers/3"


def test_other_znodes_round_trip() -> None:
    assert decode_controller(encode_controller(BrokerId(4), now_ms=9)) == 4
    assert decode_cluster_id(encode_cluster_id("abc")) == "abc"
    block = encode_producer_block(BrokerId(1), first=2**62, last=2**62 + 999)
    assert decode_last_producer_id(block) == 2**62 + 999
    assert json.loads(block)["block_start"] == str(2**62)
    assert decode_last_producer_id(b"") == -1
    with pytest.raises(DamagedZnode, match="block_end"):
        decode_last_producer_id(as_data({"block_end": "x"}))


def test_uuids_have_kafka_s_text() -> None:
    one = uuid4()
    assert len(format_uuid(one)) == 22
    assert parse_uuid(format_uuid(one)) == one
    assert format_uuid(UUID(int=0)) == "A" * 22
