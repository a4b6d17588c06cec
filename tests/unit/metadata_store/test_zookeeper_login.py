"""Servers that are asked for a login and give no proof: nothing that they say is believed."""

from __future__ import annotations

import asyncio
import struct

import pytest

from penstock.config.zookeeper import ZooKeeperConfig
from penstock.config.zookeeper_security import ZooKeeperLogin, ZooKeeperSecurity
from penstock.logs.event_logger import NO_LOGGER
from penstock.metadata_store.errors import ZooKeeperLoginFailed
from penstock.metadata_store.zookeeper.session_link import SessionLink

HELLO = struct.pack("!iiqi16sb", 0, 20_000, 7, 16, bytes(16), 0)
EVENT = struct.pack("!iqi", -1, 0, 0) + struct.pack("!iii", 3, 3, 2) + b"/a"
UNREADABLE = b""
NO_CHALLENGE = struct.pack("!i", 1) + b"x"
NO_PROOF = b'nonce="n",realm="r",qop="auth",algorithm=md5-sess'


class Owner:
    def __init__(self) -> None:
        self.calls: list[str] = []

    def on_connected(self) -> None:
        self.calls.append("connected")

    def on_suspended(self, reason: str) -> None:
        self.calls.append("suspended")

    def on_expired(self) -> None:
        self.calls.append("expired")

    def on_failed(self, error: Exception) -> None:
        self.calls.append("failed")

    def on_event(self, body: bytes) -> None:
        self.calls.append("event")


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (UNREADABLE, "ZooKeeper's answer to the login cannot be read"),
        (NO_CHALLENGE, "ZooKeeper's challenge is none of DIGEST-MD5"),
        (struct.pack("!i", len(NO_PROOF)) + NO_PROOF, "does not prove that it knows the password"),
    ],
)
def test_a_server_without_proof_fires_no_watch(answer: bytes, message: str) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await receive(reader)
        send(writer, HELLO)
        send(writer, EVENT)
        for number in (1, 2):
            if await receive(reader):
                send(writer, struct.pack("!iqi", number, 0, 0) + answer)
        writer.close()

    async def meet() -> list[str]:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()[:2]
        security = ZooKeeperSecurity(login=ZooKeeperLogin("broker", "hidden"))
        config = ZooKeeperConfig.parse(
            f"{host}:{port}",
            session_timeout_ms=20_000,
            connection_timeout_ms=60_000,
            security=security,
        )
        owner = Owner()
        async with server:
            with pytest.raises(ZooKeeperLoginFailed, match=message) as refused:
                await SessionLink(config, owner, logger=NO_LOGGER).open()
        assert "hidden" not in str(refused.value)
        return owner.calls

    assert asyncio.run(asyncio.wait_for(meet(), 60)) == []


async def receive(reader: asyncio.StreamReader) -> bytes:
    try:
        (length,) = struct.unpack("!i", await reader.readexactly(4))
        return await reader.readexactly(length)
    except (asyncio.IncompleteReadError, ConnectionError):
        return b""


def send(writer: asyncio.StreamWriter, frame: bytes) -> None:
    writer.write(struct.pack("!i", len(frame)) + frame)
