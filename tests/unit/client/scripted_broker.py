"""A fake broker that speaks Kafka's protocol over a real socket, with responses that a test sets.

It stores nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from types import TracebackType
from typing import Any, NamedTuple, Self

from penstock.client.address import Address
from penstock.client.call import compose
from penstock.protocol.api_keys import ApiKey, find_api_key
from penstock.protocol.frames import encode_response_frame
from penstock.protocol.headers import read_request_header
from penstock.protocol.messages import decode_request, get_response_schema

ZERO = timedelta()

SERVED = {
    ApiKey.API_VERSIONS: (0, 4),
    ApiKey.DESCRIBE_CONFIGS: (1, 4),
    ApiKey.DESCRIBE_LOG_DIRS: (1, 4),
    ApiKey.METADATA: (0, 12),
    ApiKey.PRODUCE: (3, 11),
    ApiKey.FETCH: (4, 12),
    ApiKey.LIST_OFFSETS: (1, 8),
    ApiKey.CREATE_TOPICS: (2, 7),
    ApiKey.DELETE_TOPICS: (1, 6),
    ApiKey.CREATE_PARTITIONS: (0, 3),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: (2, 4),
}


class ReceivedRequest(NamedTuple):
    """A request as the broker received it."""

    api_key: ApiKey
    version: int
    message: Any
    client_id: str | None = None


class Hang(Exception):
    """Raised by a handler to send no response and keep the connection open."""


class HangUp(Exception):
    """Raised by a handler to close the connection instead of responding."""


# The response's fields, or raw bytes to send in place of a frame, or None for no response.
Answer = Mapping[str, Any] | bytes | None
Handler = Callable[[ReceivedRequest], Answer | Awaitable[Answer]]


class ScriptedBroker:
    """Sends the response of each request's handler; closes the connection if there is none."""

    def __init__(self, broker_id: int = 1, *, tls: ssl.SSLContext | None = None) -> None:
        self.id = broker_id
        self._tls = tls
        self.handlers: dict[ApiKey, Handler] = {ApiKey.API_VERSIONS: self._api_versions}
        self.served = dict(SERVED)
        self.requests: list[ReceivedRequest] = []
        self.connections = 0
        self._server: asyncio.Server | None = None
        self._writers: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        self._address: Address | None = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()

    async def start(self, port: int = 0) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", port, ssl=self._tls)
        host, port = self._server.sockets[0].getsockname()[:2]
        self._address = Address(host, port)

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        for writer in self._writers.values():
            writer.transport.abort()
        for task in self._writers:
            task.cancel()
        await asyncio.gather(*self._writers, return_exceptions=True)
        await self._server.wait_closed()

    @property
    def address(self) -> Address:
        assert self._address is not None
        return self._address

    def count(self, api_key: ApiKey) -> int:
        return sum(request.api_key is api_key for request in self.requests)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.current_task()
        assert task is not None
        self._writers[task] = writer
        try:
            while True:
                size = int.from_bytes(await reader.readexactly(4), "big")
                await self._answer(await reader.readexactly(size), writer)
        except (
            asyncio.IncompleteReadError,
            ConnectionError,
            HangUp,
            asyncio.CancelledError,
            ssl.SSLError,
        ):
            pass  # `stop` cancels; asyncio's streams would log a cancelled handler as an error
        except Hang:
            with contextlib.suppress(ConnectionError, asyncio.CancelledError):
                await reader.read()  # until the client closes the connection
        finally:
            del self._writers[task]
            writer.close()

    async def _answer(self, frame: bytes, writer: asyncio.StreamWriter) -> None:
        header = read_request_header(frame)
        api_key = find_api_key(header.api_key)
        assert api_key is not None
        request = ReceivedRequest(
            api_key,
            header.api_version,
            decode_request(api_key, header.api_version, bytes(header.body)),
            header.client_id,
        )
        self.requests.append(request)
        handler = self.handlers.get(api_key)
        if handler is None:
            raise HangUp
        answer = handler(request)
        if isinstance(answer, Awaitable):
            answer = await answer
        if answer is None:
            return  # a request without response
        if isinstance(answer, bytes):
            writer.write(answer)
            return
        message = compose(get_response_schema(api_key, request.version), answer)
        writer.write(encode_response_frame(message, correlation_id=header.correlation_id))

    def _api_versions(self, request: ReceivedRequest) -> Answer:
        return {
            "error_code": 0,
            "api_keys": [
                {"api_key": int(key), "min_version": lowest, "max_version": highest}
                for key, (lowest, highest) in self.served.items()
            ],
            "throttle_time": ZERO,
        }


class Cluster:
    """Scripted brokers with shared metadata, which a test may change."""

    def __init__(self, *brokers: ScriptedBroker) -> None:
        self.brokers = {broker.id: broker for broker in brokers}
        self.controller_id = brokers[0].id
        self.leaders: dict[str, list[int]] = {}  # topic to the leader of each partition
        self.epoch = 0
        for broker in brokers:
            broker.handlers[ApiKey.METADATA] = self._metadata

    def _metadata(self, request: ReceivedRequest) -> Answer:
        wanted = request.message.topics
        names = list(self.leaders) if wanted is None else [topic.name for topic in wanted]
        return {
            "throttle_time": ZERO,
            "brokers": [
                {"node_id": broker.id, "host": broker.address.host, "port": broker.address.port}
                for broker in self.brokers.values()
                if broker._server is not None and broker._server.is_serving()
            ],
            "cluster_id": "scripted",
            "controller_id": self.controller_id,
            "topics": [self._topic(name) for name in names],
        }

    def _topic(self, name: str) -> Mapping[str, Any]:
        leaders = self.leaders.get(name)
        return {
            "error_code": 3 if leaders is None else 0,
            "name": name,
            "topic_id": None,
            "is_internal": False,
            "partitions": [
                {
                    "error_code": 0,
                    "partition_index": number,
                    "leader_id": leader,
                    "leader_epoch": self.epoch,
                    "replica_nodes": tuple(self.brokers),
                    "isr_nodes": tuple(self.brokers),
                    "offline_replicas": (),
                }
                for number, leader in enumerate(leaders or [])
            ],
        }


def produced(request: ReceivedRequest, *, code: int = 0, base_offset: int = 7) -> Answer:
    """Build the response to a Produce of one partition."""
    (topic,) = request.message.topic_data
    (partition,) = topic.partition_data
    data = {
        "index": partition.index,
        "error_code": code,
        "base_offset": base_offset,
        "log_append_time": None,
    }
    return {
        "responses": [{"name": topic.name, "partition_responses": [data]}],
        "throttle_time": ZERO,
    }


def fetched(request: ReceivedRequest, *, code: int = 0, records: bytes = b"batch") -> Answer:
    """Build the response to a Fetch, the same for every partition."""
    return {
        "throttle_time": ZERO,
        "error_code": 0,
        "session_id": 0,
        "responses": [
            {
                "topic": topic.topic,
                "partitions": [
                    {
                        "partition_index": partition.partition,
                        "error_code": code,
                        "high_watermark": 9,
                        "last_stable_offset": 9,
                        "log_start_offset": 0,
                        "aborted_transactions": None,
                        "preferred_read_replica": -1,
                        "records": records,
                    }
                    for partition in topic.partitions
                ],
            }
            for topic in request.message.topics
        ],
    }
