"""The TLS of a session's connections: the context, from files that are read for each of them."""

import asyncio
import ssl

from penstock.client.errors import InvalidClientConfig
from penstock.client.security.config import ClientTls, KeyStoreSource
from penstock.client.security.tls_context import TlsContexts
from penstock.config.zookeeper_security import StoreFile, ZooKeeperTls
from penstock.metadata_store.errors import ZooKeeperNotSecure


class ZooKeeperTlsContexts:
    """Owned by the event loop. Where new files cannot be used, the old ones stay in use."""

    def __init__(self, tls: ZooKeeperTls) -> None:
        self._contexts = TlsContexts(_client_tls(tls))

    async def get(self) -> ssl.SSLContext:
        """Reads the files in a thread, so that a mount that hangs stops no request. Raises
        ZooKeeperNotSecure, unless there was a context before."""
        try:
            return await asyncio.to_thread(self._contexts.get)
        except InvalidClientConfig as error:
            raise ZooKeeperNotSecure(f"the connection to ZooKeeper: {error}") from None


def _client_tls(tls: ZooKeeperTls) -> ClientTls:
    return ClientTls(
        trusted=_source(tls.trusted, "zookeeper.ssl.truststore.location"),
        certificate=None
        if tls.identity is None
        else _source(tls.identity, "zookeeper.ssl.keystore.location"),
        key_password=None if tls.identity is None else tls.identity.password,
        key_password_setting="zookeeper.ssl.keystore.password",  # noqa: S106 (a name)
        checks_hosts=tls.checks_hosts,
        versions=tls.versions,
    )


def _source(file: StoreFile, setting: str) -> KeyStoreSource:
    return KeyStoreSource(setting=setting, location=file.location, password=file.password)
