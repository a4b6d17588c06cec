"""Until when a session cannot have expired: counted from what was sent, not from what was heard."""

import asyncio
import struct
from typing import Any

from penstock.metadata_store.interface import SessionId
from penstock.metadata_store.zookeeper.connection import ZooKeeperConnection
from penstock.metadata_store.zookeeper.messages import PING_XID, Hello

REPLY = struct.Struct("!iiqi")  # length, xid, zxid, error code


class TimedConnection(ZooKeeperConnection):
    """On a clock that the test sets."""

    now_ms = 0.0

    def _now_ms(self) -> float:
        return self.now_ms


class Transport(asyncio.Transport):
    def write(self, data: Any) -> None:
        pass


def reply_to(xid: int) -> bytes:
    return REPLY.pack(REPLY.size - 4, xid, 7, 0)


def test_an_answer_confirms_the_session_as_of_its_request() -> None:
    """A process that was stopped reads old answers when it wakes; they say nothing of now."""

    async def scenario() -> None:
        connection = TimedConnection(owner=None, hello=b"")  # type: ignore[arg-type]
        connection.connection_made(Transport())
        connection.established.set_result(Hello(SessionId(1), b"", 6000))
        connection.now_ms = 1000
        connection.ping()
        connection.now_ms = 2000
        connection.ping()
        connection.send(3, b"", lambda reply: None)
        assert connection.confirmed_ms == 0  # of the handshake
        connection.now_ms = 90_000  # it was stopped
        connection.data_received(reply_to(PING_XID))
        assert (connection.heard_ms, connection.confirmed_ms) == (90_000, 1000)
        connection.data_received(reply_to(PING_XID))
        connection.data_received(reply_to(1))
        assert connection.confirmed_ms == 2000

    asyncio.run(scenario())
