"""Fetch's hand-written response: the bytes of the generic encoder, in every version."""

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from tests.unit.apis.harness import ME, OTHER, topic_id_of

from penstock.apis.data.fetch_response import FetchPartitionData, encode_fetch_response
from penstock.apis.data.leader_hints import HintedBroker, LeaderHint
from penstock.apis.fetch_sessions import RequestedPartition
from penstock.apis.registry import APIS
from penstock.apis.response_shapes import response_shape
from penstock.model.errors import ErrorCode
from penstock.model.ids import LeaderEpoch, Offset, ProducerId
from penstock.model.slices import FileRun, FileSlice
from penstock.protocol.api_keys import ApiKey
from penstock.protocol.messages import encode_parts
from penstock.storage.leader_epoch_cache import OffsetAndEpoch
from penstock.storage.transaction_index import AbortedTxn

KEY = ApiKey.FETCH
VERSIONS = APIS[KEY].versions
HINT = LeaderHint(OTHER, LeaderEpoch(3))
RUN = FileRun((FileSlice(7, 0, 100), FileSlice(8, 10, 200)))
LONG = FileRun((FileSlice(7, 0, 3_000_000),))
ABORTED = [
    AbortedTxn(ProducerId(5), Offset(2**40), Offset(2**40 + 5), Offset(2**40 + 6)),
    AbortedTxn(ProducerId(6), Offset(1), Offset(9), Offset(10)),
]


def fetched(
    topic: str | UUID, index: int, code: ErrorCode = ErrorCode.NONE, **more: Any
) -> FetchPartitionData:
    request_entry = RequestedPartition(topic, index, offset=0, max_bytes=0)
    return FetchPartitionData(request_entry, code, Offset(2**33), Offset(7), Offset(5), **more)


def cases(version: int) -> list[list[FetchPartitionData]]:
    a, b = (topic_id_of(name) if version >= 13 else name for name in ("a", "ü"))
    result = [
        [],
        [fetched(a, 0, records=RUN), fetched(a, 1), fetched(b, 0, records=LONG), fetched(a, 2)],
        [fetched(a, 0, records=RUN, aborted=ABORTED), fetched(b, 3, aborted=())],
        [fetched(a, 0, ErrorCode.OFFSET_OUT_OF_RANGE)],
    ]
    if version >= 12:
        diverging = OffsetAndEpoch(LeaderEpoch(2), Offset(77))
        result.append([fetched(a, 0, diverging=diverging), fetched(a, 1)])
    if version >= 16:
        result.append([fetched(a, 0, ErrorCode.NOT_LEADER_OR_FOLLOWER, hint=HINT), fetched(b, 0)])
    return result


@pytest.mark.parametrize("version", VERSIONS)
def test_the_bytes_are_those_of_the_generic_encoder(version: int) -> None:
    nodes = [HintedBroker(OTHER, "hôst", 9093, "rack-2"), HintedBroker(ME, "::1", 1, None)]
    for given in cases(version):
        written = encode_fetch_response(
            version, error=ErrorCode.NONE, session_id=9, partitions=given, nodes=nodes
        )
        assert flat(written) == flat(encode_parts(generic(version, given, nodes)))


def flat(parts: list[Any]) -> list[Any]:
    """Join adjacent bytes; keep runs of files as they are."""
    result: list[Any] = [b""]
    for part in parts:
        if isinstance(part, FileRun):
            result += [part, b""]
        else:
            result[-1] += bytes(part)
    return result


def generic(version: int, given: list[FetchPartitionData], nodes: list[HintedBroker]) -> Any:
    shape = response_shape(KEY, version)
    topics: list[tuple[Any, list[Any]]] = []
    for data in given:
        if not topics or topics[-1][0] != data.requested.topic:
            topics.append((data.requested.topic, []))
        topics[-1][1].append(generic_partition(version, data))
    responses = tuple(
        shape["responses"](topic=topic, topic_id=topic, partitions=tuple(partitions))
        for topic, partitions in topics
    )
    endpoints: tuple[Any, ...] = ()
    if version >= 16:
        endpoints = tuple(
            shape["node_endpoints"](node_id=node.id, host=node.host, port=node.port, rack=node.rack)
            for node in nodes
        )
    return shape(
        throttle_time=timedelta(),
        error_code=ErrorCode.NONE,
        session_id=9,
        responses=responses,
        node_endpoints=endpoints,
    )


def generic_partition(version: int, item: FetchPartitionData) -> Any:
    shape = response_shape(KEY, version)["responses"]["partitions"]
    aborted = None
    if item.aborted is not None:
        aborted = tuple(
            shape["aborted_transactions"](
                producer_id=one.producer_id, first_offset=one.first_offset
            )
            for one in item.aborted
        )
    values: dict[str, Any] = {}
    if item.diverging is not None:
        epoch, end_offset = item.diverging
        values["diverging_epoch"] = shape["diverging_epoch"](epoch=epoch, end_offset=end_offset)
    if item.hint == HINT:
        values["current_leader"] = shape["current_leader"](leader_id=OTHER, leader_epoch=3)
    return shape(
        partition_index=item.requested.index,
        error_code=item.code,
        high_watermark=item.high_watermark,
        last_stable_offset=item.last_stable_offset,
        log_start_offset=item.log_start_offset,
        aborted_transactions=aborted,
        records=b"" if item.records is None else item.records,
        **values,
    )
