"""What we write is what kio writes, for every message of every version."""

import io
import random
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from kio.schema.errors import ErrorCode as KioErrorCode
from kio.schema.fetch.v12.response import FetchableTopicResponse, FetchResponse, PartitionData
from kio.schema.heartbeat.v0.request import HeartbeatRequest
from kio.schema.heartbeat.v0.response import HeartbeatResponse
from kio.schema.metadata.v12.response import MetadataResponsePartition
from kio.serial import entity_writer
from tests.profile import scaled
from tests.unit.protocol.message_samples import all_schemas, sample, samples, title

from penstock.model.errors import ErrorCode
from penstock.protocol.encoder import encode, encode_parts
from penstock.protocol.malformed import UnencodableMessage
from penstock.protocol.messages import wire_error
from penstock.protocol.wire_runs import MAX_SHAPES


def written_by_kio(message: Any) -> bytes:
    buffer = io.BytesIO()
    entity_writer(type(message))(buffer, message)
    return buffer.getvalue()


def test_every_message_is_written_as_kio_writes_it() -> None:
    assert len(all_schemas()) > 600
    source = random.Random(1)
    for schema in all_schemas():
        for message in samples(schema, source, scaled(test=4, verify=30, release=200)):
            assert encode(message) == written_by_kio(message), title(schema)


def partition(replicas: int, in_sync: int) -> MetadataResponsePartition:
    return MetadataResponsePartition(
        error_code=KioErrorCode.none,
        partition_index=1,  # type: ignore[arg-type]
        leader_id=2,  # type: ignore[arg-type]
        replica_nodes=tuple(range(replicas)),  # type: ignore[arg-type]
        isr_nodes=tuple(range(in_sync)),  # type: ignore[arg-type]
    )


@pytest.mark.parametrize("length", [0, 1, 126, 127, 128, 20_000])
def test_lengths_of_several_bytes_are_written_as_kio_writes_them(length: int) -> None:
    for message in (partition(length, 3), partition(3, length), partition(length, length)):
        assert encode(message) == written_by_kio(message)


def test_more_shapes_of_arrays_than_are_remembered_are_written_right() -> None:
    shapes = [(replicas, in_sync) for replicas in range(40) for in_sync in range(40)]
    assert len(shapes) > MAX_SHAPES
    for replicas, in_sync in shapes:
        message = partition(replicas, in_sync)
        assert encode(message) == written_by_kio(message)


class FileSlice:
    """Stands for bytes in a file: all that is known is how many."""

    def __len__(self) -> int:
        return 1000


def test_records_that_are_no_bytes_keep_their_place_among_the_parts() -> None:
    first, second = FileSlice(), FileSlice()
    response = sample(FetchResponse, random.Random(3), width=0)
    data = sample(PartitionData, random.Random(4))
    partitions = tuple(replace(data, records=records) for records in (first, second))
    response = replace(
        response,
        responses=(FetchableTopicResponse(topic="t", partitions=partitions),),  # type: ignore[arg-type]
    )
    parts = encode_parts(response)
    assert [part for part in parts if not isinstance(part, bytes)] == [first, second]
    filled = [part if isinstance(part, bytes) else bytes(1000) for part in parts]
    same = tuple(replace(data, records=bytes(1000)) for _ in range(2))
    topic = replace(response.responses[0], partitions=same)
    assert b"".join(filled) == written_by_kio(replace(response, responses=(topic,)))


def test_our_errors_are_written_as_kios() -> None:
    for error in ErrorCode:
        message = HeartbeatResponse(error_code=wire_error(error))
        assert encode(message) == error.to_bytes(2, "big", signed=True)


def test_a_delta_is_written_in_whole_milliseconds() -> None:
    schema = next(s for s in all_schemas() if title(s) == "HeartbeatResponse v1")
    message = schema(throttle_time=timedelta(microseconds=2999), error_code=KioErrorCode.none)
    assert encode(message) == b"\0\0\0\x02\0\0"


HEARTBEAT: dict[str, Any] = {"group_id": "g", "generation_id": 1, "member_id": "m"}


@pytest.mark.parametrize(
    "wrong",
    [{"generation_id": 2**31}, {"member_id": None}, {"member_id": "x" * 40_000}, {"group_id": 7}],
)
def test_a_value_that_does_not_fit_names_its_message(wrong: dict[str, Any]) -> None:
    with pytest.raises(UnencodableMessage, match="HeartbeatRequest v0"):
        encode(HeartbeatRequest(**{**HEARTBEAT, **wrong}))
