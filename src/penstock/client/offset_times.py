"""Asks leaders when the records at some offsets were written: a private request to each
(docs/inter_broker.md).

Only Penstock's brokers answer it; others close the connection.
"""

import asyncio
from collections.abc import Mapping, Sequence

from penstock.client.call import PrivateCall
from penstock.client.errors import ClientError, RefusedByBroker
from penstock.client.router import Router
from penstock.model.cluster import BrokerId
from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicPartition
from penstock.protocol.describe_offset_times import (
    DESCRIBE_OFFSET_TIMES_VERSIONS,
    MAX_OFFSETS,
    OffsetTimes,
    WantedTime,
    decode_offset_times,
    encode_describe_offset_times,
)
from penstock.protocol.private_keys import PrivateKey
from penstock.protocol.private_response import PrivateResponse


class OffsetTimesClient:
    def __init__(self, router: Router) -> None:
        self._router = router

    async def find_ages(
        self,
        wanted: Mapping[BrokerId, Sequence[WantedTime]],
        *,
        timeout_ms: int | None = None,
    ) -> dict[TopicPartition, int]:
        """How many milliseconds ago the record at each offset was written, by the clock of the
        leader that is asked. Without those that it cannot tell; one attempt for each leader."""
        ages: dict[TopicPartition, int] = {}
        for some_ages in await asyncio.gather(
            *(self._find_ages(broker, some, timeout_ms) for broker, some in wanted.items())
        ):
            ages.update(some_ages)
        return ages

    async def _find_ages(
        self, broker: BrokerId, wanted: Sequence[WantedTime], timeout_ms: int | None
    ) -> dict[TopicPartition, int]:
        ages: dict[TopicPartition, int] = {}
        try:
            for start in range(0, len(wanted), MAX_OFFSETS):
                some = wanted[start : start + MAX_OFFSETS]
                now_ms, times = await self._ask(broker, some, timeout_ms)
                ages.update((time.tp, max(0, now_ms - time.timestamp_ms)) for time in times)
        except ClientError:
            pass  # no longer there, frozen, or not one of Penstock's
        return ages

    async def _ask(
        self, broker: BrokerId, wanted: Sequence[WantedTime], timeout_ms: int | None
    ) -> OffsetTimes:
        body = encode_describe_offset_times(wanted)
        version = DESCRIBE_OFFSET_TIMES_VERSIONS[-1]
        call = PrivateCall(PrivateKey.DESCRIBE_OFFSET_TIMES, version, body)
        response = await self._router.ask_broker(broker, call, self._router.deadline(timeout_ms))
        assert isinstance(response, PrivateResponse)
        if response.code is not ErrorCode.NONE:
            what = f"times of offsets on broker {broker}"
            raise RefusedByBroker(what, response.code, response.message)
        return decode_offset_times(response.payload)
