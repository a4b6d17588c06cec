"""Encoding gives the bytes of kio's encoder, for every message of every version."""

import io
import random
from dataclasses import asdict
from datetime import timedelta
from typing import Any

import pytest
from kio.schema.errors import ErrorCode as KioErrorCode
from kio.schema.metadata.v12.response import MetadataResponsePartition
from kio.serial import entity_writer
from tests.profile import scaled
from tests.unit.protocol.message_samples import all_schemas, kio_class, ours, samples, title

from penstock.client.call import compose
from penstock.model.errors import ErrorCode
from penstock.protocol.encoder import encode, encode_parts
from penstock.protocol.malformed import UnencodableMessage
from penstock.protocol.schemas import get_request_schema, get_response_schema
from penstock.protocol.wire_runs import MAX_SHAPES


def written_by_kio(message: Any) -> bytes:
    buffer = io.BytesIO()
    entity_writer(type(message))(buffer, message)
    return buffer.getvalue()


def test_every_message_is_encoded_as_by_kio() -> None:
    assert len(all_schemas()) > 600
    source = random.Random(1)
    for schema in all_schemas():
        for message in samples(schema, source, scaled(test=4, verify=30, release=200)):
            assert encode(ours(message)) == written_by_kio(message), title(schema)


def partition(replicas: int, in_sync: int) -> MetadataResponsePartition:
    return MetadataResponsePartition(
        error_code=KioErrorCode.none,
        partition_index=1,  # type: ignore[arg-type]
        leader_id=2,  # type: ignore[arg-type]
        replica_nodes=tuple(range(replicas)),  # type: ignore[arg-type]
        isr_nodes=tuple(range(in_sync)),  # type: ignore[arg-type]
    )


def our_partition(message: MetadataResponsePartition) -> Any:
    (topics,) = (f for f in get_response_schema(3, 12).__fields__ if f.name == "topics")
    assert topics.entity is not None
    (partitions,) = (f for f in topics.entity.__fields__ if f.name == "partitions")
    assert partitions.entity is not None
    return compose(partitions.entity, asdict(message))


@pytest.mark.parametrize("length", [0, 1, 126, 127, 128, 20_000])
def test_lengths_of_several_bytes_are_encoded_as_by_kio(length: int) -> None:
    for message in (partition(length, 3), partition(3, length), partition(length, length)):
        assert encode(our_partition(message)) == written_by_kio(message)


def test_more_array_shapes_than_the_cache_holds_are_encoded_correctly() -> None:
    shapes = [(replicas, in_sync) for replicas in range(40) for in_sync in range(40)]
    assert len(shapes) > MAX_SHAPES
    for replicas, in_sync in shapes:
        message = partition(replicas, in_sync)
        assert encode(our_partition(message)) == written_by_kio(message)


class FileSlice:
    """Bytes in a file, of which only the length is known."""

    def __len__(self) -> int:
        return 1000


def test_file_slices_keep_their_position_among_the_parts() -> None:
    first, second = FileSlice(), FileSlice()
    schema = get_response_schema(1, 12)
    made = samples(kio_class(schema), random.Random(3), 100)
    fetched = next(m for m in made if [len(t.partitions) for t in m.responses] == [1])

    def holding(*records: object) -> Any:
        plain = asdict(fetched)
        (topic,) = plain["responses"]
        (data,) = topic["partitions"]
        topic["partitions"] = [{**data, "records": record} for record in records]
        return compose(schema, plain)

    parts = encode_parts(holding(first, second))
    assert [part for part in parts if not isinstance(part, bytes)] == [first, second]
    filled = [part if isinstance(part, bytes) else bytes(1000) for part in parts]
    assert b"".join(filled) == encode(holding(bytes(1000), bytes(1000)))


def test_our_error_codes_are_encoded_as_kios() -> None:
    for error in ErrorCode:
        message = get_response_schema(12, 0)(error_code=error)
        assert encode(message) == error.to_bytes(2, "big", signed=True)


def test_a_timedelta_is_encoded_in_whole_milliseconds() -> None:
    schema = get_response_schema(12, 1)
    message = schema(throttle_time=timedelta(microseconds=2999), error_code=ErrorCode.NONE)
    assert encode(message) == b"\0\0\0\x02\0\0"


HEARTBEAT: dict[str, Any] = {"group_id": "g", "generation_id": 1, "member_id": "m"}


@pytest.mark.parametrize(
    "wrong",
    [{"generation_id": 2**31}, {"member_id": None}, {"member_id": "x" * 40_000}, {"group_id": 7}],
)
def test_an_invalid_value_is_reported_with_its_message(wrong: dict[str, Any]) -> None:
    with pytest.raises(UnencodableMessage, match="HeartbeatRequest v0"):
        encode(get_request_schema(12, 0)(**{**HEARTBEAT, **wrong}))
