"""Sessions on a ZooKeeper with TLS, SASL and ACLs: who gets in, and what strangers may do."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError
from tests.secured_zookeeper import (
    PASSWORD,
    USER,
    SecuredZooKeeper,
    jaas_config,
    secured_zookeeper,
)
from tests.unit.metadata_store.backends import States
from tests.unit.metadata_store.proxy import Proxy, serving
from tests.zookeeper import kazoo_client, skip_without_zookeeper

from penstock.config.zookeeper import ZooKeeperConfig
from penstock.config.zookeeper_settings import parse_zookeeper_security
from penstock.logs.event_logger import EventLogger
from penstock.metadata_store.errors import (
    ConnectionLoss,
    MetadataStoreError,
    NoNode,
    ZooKeeperLoginFailed,
    ZooKeeperNotSecure,
    ZooKeeperRefused,
)
from penstock.metadata_store.interface import SessionState
from penstock.metadata_store.zookeeper.acl_changes import change_acls
from penstock.metadata_store.zookeeper.session import ZooKeeperSession
from penstock.metadata_store.zookeeper.store import ZooKeeperMetadataStore
from penstock.testing.certificates import CertificateAuthority

pytestmark = pytest.mark.xdist_group("secured-zookeeper")

_JAAS = "penstock.zookeeper.sasl.jaas.config"
_SHORT_MS = 400  # for a start that nothing but the time ends


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredZooKeeper]:
    skip_without_zookeeper()
    with secured_zookeeper(tmp_path_factory.mktemp("secured")) as zookeeper:
        yield zookeeper


def config_of(
    settings: dict[str, str], *, chroot: str = "", wait_ms: int = 60_000
) -> ZooKeeperConfig:
    others = dict(settings)
    connect = others.pop("zookeeper.connect")
    return ZooKeeperConfig.parse(
        connect + chroot,
        session_timeout_ms=20_000,
        connection_timeout_ms=wait_ms,
        security=parse_zookeeper_security(others, connect=connect, where="test"),
    )


@asynccontextmanager
async def opened(config: ZooKeeperConfig) -> AsyncIterator[ZooKeeperSession]:
    store = await ZooKeeperMetadataStore.open(config)
    try:
        yield await store.open_session()
    finally:
        await store.close()


async def open_and_close(config: ZooKeeperConfig) -> None:
    async with opened(config):
        pass


def refusal(settings: dict[str, str], *, wait_ms: int = 60_000) -> MetadataStoreError:
    with pytest.raises(MetadataStoreError) as refused:
        asyncio.run(open_and_close(config_of(settings, wait_ms=wait_ms)))
    return refused.value


# Whom ZooKeeper takes the session for.


@pytest.mark.parametrize(
    ("tls", "sasl", "creators"),
    [
        (False, True, {("sasl", USER)}),
        (True, False, {("x509", "CN=broker")}),
        (True, True, {("sasl", USER), ("x509", "CN=broker")}),
    ],
)
def test_znodes_belong_to_their_creator(
    secured: SecuredZooKeeper, tls: bool, sasl: bool, creators: set[tuple[str, str]]
) -> None:
    settings = secured.settings(tls=tls, sasl=sasl) | {"zookeeper.set.acl": "true"}
    chroot = f"/creator-{tls}-{sasl}"

    async def create() -> None:
        async with opened(config_of(settings, chroot=chroot)) as session:
            for path in ("/config", "/config/users", "/config/users/ada", "/consumers/old"):
                await session.create(path)

    asyncio.run(create())
    with kazoo_client(secured.plaintext + chroot) as stranger:
        owned = {(*creator, "ALL") for creator in creators}
        for path in ("/", "/config"):
            assert acls_of(stranger, path) == owned | {("world", "anyone", "READ")}
        for path in ("/consumers", "/consumers/old"):
            assert acls_of(stranger, path) == {("world", "anyone", "ALL")}
        for path in ("/config/users", "/config/users/ada"):
            with pytest.raises(NoAuthError):
                acls_of(stranger, path)


def acls_of(client: KazooClient, path: str) -> set[tuple[str, ...]]:
    return {(acl.id.scheme, acl.id.id, *acl.acl_list) for acl in client.get_acls(path)[0]}


def test_strangers_read_what_is_not_secret_and_write_nothing(secured: SecuredZooKeeper) -> None:
    settings = secured.settings() | {"zookeeper.set.acl": "true"}

    async def create_and_try() -> None:
        async with opened(config_of(settings, chroot="/closed")) as session:
            for path in ("/brokers", "/config", "/config/users", "/config/penstock_login_secret"):
                await session.create(path, b"data")
            anonymous = config_of({"zookeeper.connect": secured.plaintext}, chroot="/closed")
            async with opened(anonymous) as stranger:
                assert (await stranger.get("/brokers")).data == b"data"
                for secret in ("/config/users", "/config/penstock_login_secret"):
                    with pytest.raises(ZooKeeperRefused, match="NoAuth"):
                        await stranger.get(secret)
                with pytest.raises(ZooKeeperRefused, match="NoAuth"):
                    await stranger.create("/brokers/forged")
                with pytest.raises(ZooKeeperRefused, match="NoAuth"):
                    await stranger.set("/brokers", b"forged")
                with pytest.raises(ZooKeeperRefused, match="NoAuth"):
                    await stranger.delete("/config/users")
                await stranger.create("/consumers/mine")  # members of older groups do

    asyncio.run(create_and_try())


def test_a_session_logs_in_again_on_every_connection(secured: SecuredZooKeeper) -> None:
    """Else a broker could not write after the first reconnect."""
    settings = secured.settings(tls=False) | {"zookeeper.set.acl": "true"}

    async def reconnect() -> None:
        async with Proxy(secured.plaintext) as proxy:
            through = config_of({**settings, "zookeeper.connect": proxy.address}, chroot="/again")
            async with opened(through) as session:
                await session.create("/config")
                await session.create("/config/users", b"1")
                number = session.id
                for _ in range(3):
                    states = States(session)
                    proxy.cut()
                    await states.wait_for(SessionState.SUSPENDED)
                    proxy.mend()
                    await states.wait_for(SessionState.CONNECTED)
                    await session.set("/config/users", b"2")
                assert session.id == number

    asyncio.run(reconnect())


def test_an_impostor_is_logged_once_and_the_session_goes_on(
    secured: SecuredZooKeeper, tmp_path: Path
) -> None:
    """Somebody else answers at ZooKeeper's address: nothing is sent to him."""
    impostor = CertificateAuthority().issue("impostor").write(tmp_path)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(impostor.pem_keystore)
    events: list[str] = []
    refused = asyncio.Event()

    def emit(level: int, event: str, message: str, fields: object) -> None:
        events.append(event)
        if event == "session_refused":
            refused.set()

    heard: list[bytes] = []

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(await reader.read())
        writer.close()

    async def meet_impostor() -> None:
        server = await asyncio.start_server(listen, "127.0.0.1", 0, ssl=context)
        async with Proxy(secured.tls) as proxy, server:
            through = config_of(secured.settings() | {"zookeeper.connect": proxy.address})
            store = await ZooKeeperMetadataStore.open(through, logger=EventLogger(emit))
            session = await store.open_session()
            states, number, target = States(session), session.id, proxy.target
            proxy.cut()
            await states.wait_for(SessionState.SUSPENDED)
            proxy.target = server.sockets[0].getsockname()[:2]
            proxy.mend()
            await refused.wait()
            proxy.target = target
            await states.wait_for(SessionState.CONNECTED)
            assert session.id == number
            await store.close()

    asyncio.run(asyncio.wait_for(meet_impostor(), 60))
    assert events == ["session_disconnected", "session_refused", "session_reconnected"]
    assert b"".join(heard) == b""


# Who does not get in.


def test_a_wrong_password_is_refused_at_once(secured: SecuredZooKeeper) -> None:
    error = refusal(secured.settings(tls=False) | {_JAAS: jaas_config(USER, PASSWORD + "x")})
    assert isinstance(error, ZooKeeperLoginFailed)
    assert "the password is wrong, or there is no such user" in str(error)
    assert PASSWORD not in str(error)


def test_a_user_that_does_not_exist_is_refused(secured: SecuredZooKeeper) -> None:
    error = refusal(secured.settings(tls=False) | {_JAAS: jaas_config("nobody", PASSWORD)})
    assert isinstance(error, ZooKeeperLoginFailed)


def test_a_zookeeper_without_logins_is_refused(zookeeper_connect: str) -> None:
    error = refusal({"zookeeper.connect": zookeeper_connect, _JAAS: jaas_config("b", "p")})
    assert isinstance(error, ZooKeeperLoginFailed)
    assert "SASLAuthenticationProvider" in str(error)


def test_a_zookeeper_of_another_authority_is_refused_at_once(
    secured: SecuredZooKeeper, tmp_path: Path
) -> None:
    other = CertificateAuthority().issue("other").write(tmp_path)
    changed = {"zookeeper.ssl.truststore.location": str(other.authority)}
    error = refusal(secured.settings() | changed)
    assert isinstance(error, ZooKeeperNotSecure)
    assert "zookeeper.ssl.truststore.location" in str(error)


def test_a_zookeeper_by_another_name_is_refused(secured: SecuredZooKeeper) -> None:
    """0.0.0.0 reaches this machine, and is no name in the certificate."""
    address = secured.tls.replace("127.0.0.1", "0.0.0.0")
    error = refusal(secured.settings() | {"zookeeper.connect": address})
    assert isinstance(error, ZooKeeperNotSecure)
    without_check = {"zookeeper.ssl.endpoint.identification.algorithm": ""}
    asyncio.run(
        open_and_close(
            config_of(secured.settings() | {"zookeeper.connect": address} | without_check)
        )
    )


def test_a_client_without_a_certificate_is_refused(secured: SecuredZooKeeper) -> None:
    settings = secured.settings()
    del settings["zookeeper.ssl.keystore.location"]
    assert isinstance(refusal(settings, wait_ms=_SHORT_MS), ConnectionLoss)


def test_plaintext_to_a_port_with_tls_says_what_to_set(secured: SecuredZooKeeper) -> None:
    error = refusal({"zookeeper.connect": secured.tls}, wait_ms=5 * _SHORT_MS)
    assert isinstance(error, ConnectionLoss)
    assert "set zookeeper.ssl.client.enable" in str(error)


# Its files.


@pytest.mark.parametrize("kind", ["PKCS12", "encrypted PEM"])
def test_key_files_of_other_formats_are_read(
    secured: SecuredZooKeeper, tmp_path: Path, kind: str
) -> None:
    files = secured.authority.issue("broker").write(tmp_path, password="of-the-key")
    location = files.pkcs12 if kind == "PKCS12" else files.pem_keystore
    changed = {
        "zookeeper.ssl.keystore.location": str(location),
        "zookeeper.ssl.keystore.password": "of-the-key",
        "zookeeper.ssl.keystore.type": "PKCS12" if kind == "PKCS12" else "PEM",
    }
    asyncio.run(open_and_close(config_of(secured.settings(sasl=False) | changed)))


def test_jks_is_refused_with_the_command_that_converts_it(
    secured: SecuredZooKeeper, tmp_path: Path
) -> None:
    store = tmp_path / "trust.jks"
    store.write_bytes(b"\xfe\xed\xfe\xed rest")
    changed = {"zookeeper.ssl.truststore.location": str(store)}
    error = refusal(secured.settings() | changed)
    assert isinstance(error, ZooKeeperNotSecure)
    assert f"keytool -importkeystore -srckeystore {store}" in str(error)
    assert "zookeeper.ssl.truststore.location" in str(error)


def test_an_encrypted_key_without_its_password_names_zookeepers_setting(
    secured: SecuredZooKeeper, tmp_path: Path
) -> None:
    files = secured.authority.issue("broker").write(tmp_path, password="of-the-key")
    changed = {"zookeeper.ssl.keystore.location": str(files.pem_keystore)}
    assert "zookeeper.ssl.keystore.password is not set" in str(
        refusal(secured.settings() | changed)
    )


# Znodes that exist already.


def test_znodes_of_a_cluster_are_secured_and_opened_again(secured: SecuredZooKeeper) -> None:
    config = config_of(secured.settings(), chroot="/before")

    async def change() -> None:
        async with opened(config) as session:
            for path in ("/brokers", "/brokers/ids", "/config", "/config/users", "/consumers"):
                await session.create(path)
            await session.create("/brokers/ids/1", ephemeral=True)
            with kazoo_client(secured.plaintext + "/before") as stranger:
                assert await change_acls(session, is_secure=True) == 6  # with the root
                with pytest.raises(NoAuthError):
                    await asyncio.to_thread(stranger.set, "/brokers/ids/1", b"forged")
                with pytest.raises(NoAuthError):
                    await asyncio.to_thread(stranger.get, "/config/users")
                with pytest.raises(NoAuthError):
                    await asyncio.to_thread(stranger.create, "/more")
                await asyncio.to_thread(stranger.create, "/consumers/old")
                assert await change_acls(session, is_secure=False) == 6
                await asyncio.to_thread(stranger.set, "/config/users", b"as before")
            with pytest.raises(NoNode):
                await session.get("/controller")  # nothing is created

    asyncio.run(change())


def test_a_server_that_says_nothing_is_named_with_why() -> None:
    async def open_on_silence() -> str:
        async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read()

        async with serving(say_nothing) as address:
            silent = config_of({"zookeeper.connect": address}, wait_ms=5 * _SHORT_MS)
            with pytest.raises(ConnectionLoss) as refused:
                await open_and_close(silent._replace(session_timeout_ms=_SHORT_MS))
            return str(refused.value)

    assert "no answer in time" in asyncio.run(open_on_silence())
