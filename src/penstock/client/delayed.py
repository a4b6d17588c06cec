"""Requests that end a delayed message by its id.

Only Penstock's brokers answer the requests; others close the connection.
"""

from collections.abc import Mapping
from typing import Literal, get_args

from penstock.client.call import PrivateCall
from penstock.client.deadline import CHANCE, Deadline
from penstock.client.errors import ClientError, RefusedByBroker, UnsupportedByBroker
from penstock.client.router import Router
from penstock.model.errors import ErrorCode
from penstock.protocol.end_delayed import (
    END_DELAYED_VERSIONS,
    EndDelayedRequest,
    encode_end_delayed,
)
from penstock.protocol.private_keys import PrivateKey
from penstock.protocol.private_response import PrivateResponse

Ended = Literal["cancelled", "delivered", "unknown"]

_ANSWERS: Mapping[str, Ended] = {word: word for word in get_args(Ended)}


class DelayedClient:
    def __init__(self, router: Router) -> None:
        self._router = router

    async def cancel(self, topic: str, delay_id: str, *, timeout_ms: int | None = None) -> Ended:
        """What becomes of the message: `cancelled` is never delivered."""
        return await self._end(topic, delay_id, deliver_now=False, timeout_ms=timeout_ms)

    async def deliver_now(
        self, topic: str, delay_id: str, *, timeout_ms: int | None = None
    ) -> Ended:
        """`delivered`: it is on its way."""
        return await self._end(topic, delay_id, deliver_now=True, timeout_ms=timeout_ms)

    async def _end(
        self, topic: str, delay_id: str, *, deliver_now: bool, timeout_ms: int | None
    ) -> Ended:
        """Any broker finds the shard; one that does not answer is not the only one."""
        deadline = self._router.deadline(timeout_ms)
        metadata = await self._router.get_current((), deadline)
        brokers = sorted(metadata.brokers)
        CHANCE.shuffle(brokers)
        failure: ClientError | None = None
        for broker in brokers:
            request = EndDelayedRequest(topic, delay_id, deliver_now, _share(deadline))
            call = PrivateCall(
                PrivateKey.END_DELAYED, END_DELAYED_VERSIONS[-1], encode_end_delayed(request)
            )
            try:
                response = await self._router.ask_broker(broker, call, deadline)
            except ClientError as error:
                failure = error
                continue
            return _read(topic, response)
        raise failure or UnsupportedByBroker("no broker of the cluster is known")


def _share(deadline: Deadline) -> int:
    """The broker answers while there is time to read it."""
    return max(1, int(deadline.left_ms * 0.8))


def _read(topic: str, response: PrivateResponse) -> Ended:
    if response.code is not ErrorCode.NONE:
        raise RefusedByBroker(f"a delayed message of {topic!r}", response.code, response.message)
    return _ANSWERS[response.payload.decode()]
