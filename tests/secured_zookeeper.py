"""A ZooKeeper with TLS, SASL and ACLs for tests: real servers, certificates made on the spot."""

import socket
import ssl
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from penstock.metadata_store.zookeeper.server import ZooKeeperEnsemble, find_free_ports
from penstock.testing.certificates import CertificateAuthority, CertificateFiles

USER, PASSWORD = "broker", 'of "brokers", and \\ more'
_WARM_UP_S = 120.0
_SERVER = "org.apache.zookeeper.server"


class SecuredZooKeeper(NamedTuple):
    ensemble: ZooKeeperEnsemble
    plaintext: str  # connect strings, of the same znodes
    tls: str
    authority: CertificateAuthority
    broker: CertificateFiles  # of clients that ZooKeeper knows

    def settings(self, *, tls: bool = True, sasl: bool = True) -> dict[str, str]:
        """Of a broker that may do everything."""
        settings = {"zookeeper.connect": self.tls if tls else self.plaintext}
        if tls:
            settings |= {
                "zookeeper.ssl.client.enable": "true",
                "zookeeper.clientCnxnSocket": "org.apache.zookeeper.ClientCnxnSocketNetty",
                "zookeeper.ssl.truststore.location": str(self.broker.authority),
                "zookeeper.ssl.truststore.type": "PEM",
                "zookeeper.ssl.keystore.location": str(self.broker.pem_keystore),
                "zookeeper.ssl.keystore.type": "PEM",
            }
        if sasl:
            settings["penstock.zookeeper.sasl.jaas.config"] = jaas_config(USER, PASSWORD)
        return settings


def jaas_config(user: str, password: str) -> str:
    escaped = password.replace("\\", "\\\\").replace('"', '\\"')
    return (
        "org.apache.zookeeper.server.auth.DigestLoginModule required "
        f'username="{user}" password="{escaped}";'
    )


@contextmanager
def secured_zookeeper(folder: Path) -> Iterator[SecuredZooKeeper]:
    """One server with two ports: plaintext, and TLS for which clients need a certificate. SASL is
    offered on both and asked for on none, so that anonymous clients can try what they may do."""
    authority = CertificateAuthority()
    server = authority.issue("zookeeper").write(folder / "keys")
    broker = authority.issue("broker").write(folder / "keys")
    (secure_port,) = find_free_ports(1)
    jaas = folder / "jaas.conf"
    escaped = PASSWORD.replace("\\", "\\\\").replace('"', '\\"')
    jaas.write_text(
        f'Server {{ {_SERVER}.auth.DigestLoginModule required user_{USER}="{escaped}"; }};'
    )
    with ZooKeeperEnsemble(
        folder,
        settings=_settings(secure_port, server),
        java_options=(
            f"-Dzookeeper.serverCnxnFactory={_SERVER}.NettyServerCnxnFactory",
            f"-Djava.security.auth.login.config={jaas}",
        ),
    ) as ensemble:
        _warm_up(secure_port, broker)
        yield SecuredZooKeeper(
            ensemble, ensemble.connect, f"127.0.0.1:{secure_port}", authority, broker
        )


def _warm_up(port: int, client: CertificateFiles) -> None:
    """Java's first handshake loads classes for seconds on a busy machine, and sessions give up. The
    port opens a moment after the plaintext one, for which the ensemble waits."""
    context = ssl.create_default_context(cafile=str(client.authority))
    context.load_cert_chain(client.pem_keystore)
    deadline = time.monotonic() + _WARM_UP_S
    while True:
        try:
            with (
                socket.create_connection(("127.0.0.1", port), timeout=_WARM_UP_S) as plain,
                context.wrap_socket(plain, server_hostname="127.0.0.1"),
            ):
                return
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def _settings(secure_port: int, server: CertificateFiles) -> Mapping[str, str]:
    return {
        "secureClientPort": str(secure_port),
        "secureClientPortAddress": "127.0.0.1",
        "authProvider.1": f"{_SERVER}.auth.SASLAuthenticationProvider",
        "ssl.clientAuth": "need",
        "ssl.keyStore.location": str(server.pem_keystore),
        "ssl.keyStore.type": "PEM",
        "ssl.trustStore.location": str(server.authority),
        "ssl.trustStore.type": "PEM",
    }
