"""Logs in on a new connection to ZooKeeper by SASL DIGEST-MD5, before any request of the session.

Invariant: a login that is configured and does not succeed raises, and the connection is not used.
"""

import asyncio
import struct

from penstock.config.zookeeper_security import ZooKeeperLogin
from penstock.metadata_store.errors import ZooKeeperLoginFailed
from penstock.metadata_store.zookeeper.connection import ZooKeeperConnection
from penstock.metadata_store.zookeeper.digest_md5 import check_proof, respond
from penstock.metadata_store.zookeeper.messages import (
    OK,
    SASL,
    ZooKeeperReply,
    decode_sasl,
    encode_sasl,
)


async def log_in(connection: ZooKeeperConnection, login: ZooKeeperLogin) -> None:
    """Raises ZooKeeperLoginFailed, or ConnectionError if the connection is lost meanwhile."""
    challenge = await _exchange(connection, b"", login.username)
    if not challenge:
        raise ZooKeeperLoginFailed(
            "ZooKeeper takes no login by SASL: start it with "
            "authProvider.1=org.apache.zookeeper.server.auth.SASLAuthenticationProvider and a "
            "Server section in its JAAS file"
        )
    exchange = respond(challenge, username=login.username, password=login.password)
    check_proof(exchange, await _exchange(connection, exchange.response, login.username))


async def _exchange(connection: ZooKeeperConnection, token: bytes, username: str) -> bytes:
    answered: asyncio.Future[ZooKeeperReply | None] = asyncio.get_running_loop().create_future()

    def complete(reply: ZooKeeperReply | None) -> None:
        if not answered.done():
            answered.set_result(reply)

    connection.send(SASL, encode_sasl(token), complete)
    reply = await answered
    if reply is None:
        raise ConnectionError("ZooKeeper closed the connection during the login")
    if reply.code != OK:
        raise ZooKeeperLoginFailed(
            f"ZooKeeper refuses the login of {username}: the password is wrong, or there is no "
            "such user in the Server section of its JAAS file"
        )
    try:
        return decode_sasl(reply.body)
    except struct.error:
        raise ZooKeeperLoginFailed("ZooKeeper's answer to the login cannot be read") from None
