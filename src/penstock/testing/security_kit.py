"""What a secured broker or cluster for tests needs: certificates and a user, made on the spot.

"tls": clients and brokers show certificates to each other. "sasl_ssl": TLS, and a login with a
password that nobody has seen before; users of SCRAM may be added (`Admin.create_user`). Its files
are deleted with their owner.
"""

import secrets
import shutil
import tempfile
import weakref
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Literal

from penstock.config.properties import write_properties
from penstock.testing.certificates import LOOPBACK_HOSTS, CertificateAuthority

Security = Literal["tls", "sasl_ssl"]
USER = "penstock"
_BROKER_USER = "broker"
_MECHANISM = "PLAIN"
_PROTOCOLS: Mapping[str, str] = {"tls": "SSL", "sasl_ssl": "SASL_SSL"}
_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"


class SecurityKit:
    def __init__(self, security: str, *, hosts: Iterable[str] = ()) -> None:
        """`hosts`: of the brokers, besides this machine's."""
        if security not in _PROTOCOLS:
            raise ValueError(f"security {security!r} does not exist: use 'tls' or 'sasl_ssl'")
        self.protocol = _PROTOCOLS[security]
        self.directory = Path(tempfile.mkdtemp(prefix="penstock-security-"))
        self.remove = weakref.finalize(self, shutil.rmtree, self.directory, ignore_errors=True)
        self.authority = CertificateAuthority()
        names = tuple(dict.fromkeys((*LOOPBACK_HOSTS, *hosts)))
        self._broker = self.authority.issue(_BROKER_USER, hosts=names).write(self.directory)
        self._client = self.authority.issue(USER, hosts=[], for_servers=False).write(self.directory)
        self._password = secrets.token_urlsafe(18)
        self._broker_password = secrets.token_urlsafe(18)

    @property
    def broker_config(self) -> dict[str, str]:
        """Without the listeners themselves."""
        config = {
            "security.inter.broker.protocol": self.protocol,
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self._broker.pem_keystore),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self._broker.authority),
        }
        if self.protocol == "SSL":
            return {**config, "ssl.client.auth": "required"}
        users = {_BROKER_USER: self._broker_password, USER: self._password}
        options = "".join(f' user_{name}="{password}"' for name, password in users.items())
        own = f'username="{_BROKER_USER}" password="{self._broker_password}"'
        return {
            **config,
            "sasl.enabled.mechanisms": f"{_MECHANISM},SCRAM-SHA-256,SCRAM-SHA-512",
            "sasl.mechanism.inter.broker.protocol": _MECHANISM,
            "listener.name.sasl_ssl.plain.sasl.jaas.config": f"{_MODULE} required {own}{options};",
        }

    def client_config(self, bootstrap_servers: str) -> dict[str, str]:
        """By librdkafka's names."""
        config = {
            "bootstrap.servers": bootstrap_servers,
            "security.protocol": self.protocol.lower(),
            "ssl.ca.location": str(self._broker.authority),
        }
        if self.protocol == "SSL":
            return config | {
                "ssl.certificate.location": str(self._client.certificate),
                "ssl.key.location": str(self._client.key),
            }
        return config | {
            "sasl.mechanism": _MECHANISM,
            "sasl.username": USER,
            "sasl.password": self._password,
        }

    def write_client_config(self, bootstrap_servers: str) -> Path:
        """For `--client-config`."""
        path = self.directory / "client.properties"
        path.touch(mode=0o600)
        path.write_text(write_properties(self.client_config(bootstrap_servers)))
        return path
