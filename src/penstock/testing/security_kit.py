"""What a secured broker or cluster for tests needs: certificates and a user, made on the spot.

"tls": clients and brokers show certificates to each other. "sasl_ssl": TLS, and a login with a
password that nobody has seen before; users of SCRAM may be added (`Admin.create_user`).
"mtls_scram": two listeners, one on which brokers show certificates to each other, and one on which
clients log in by SCRAM over TLS; with an authorizer. Its files are deleted with their owner.
"""

import secrets
import shutil
import tempfile
import weakref
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Literal

from penstock.config.properties import write_properties
from penstock.testing.certificates import (
    LOOPBACK_HOSTS,
    CertificateAuthority,
    CertificateFiles,
)

Security = Literal["tls", "sasl_ssl"]
ClusterSecurity = Literal["tls", "sasl_ssl", "mtls_scram"]
USER = "penstock"
_BROKER_USER = "broker"
_MECHANISM = "PLAIN"
_SCRAM = "SCRAM-SHA-512"
_PROTOCOLS: Mapping[str, str] = {"tls": "SSL", "sasl_ssl": "SASL_SSL", "mtls_scram": "SASL_SSL"}
_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"


class SecurityKit:
    def __init__(self, security: str, *, hosts: Iterable[str] = ()) -> None:
        """`hosts`: of the brokers, besides this machine's."""
        if security not in _PROTOCOLS:
            raise ValueError(f"security {security!r} does not exist: use 'tls' or 'sasl_ssl'")
        self._is_divided = security == "mtls_scram"
        # By name, the clients' first.
        self.listeners: Mapping[str, str] = (
            {"CLIENTS": "SASL_SSL", "BROKERS": "SSL"}
            if self._is_divided
            else {_PROTOCOLS[security]: _PROTOCOLS[security]}
        )
        self.protocol = _PROTOCOLS[security]
        self.directory = Path(tempfile.mkdtemp(prefix="penstock-security-"))
        self.remove = weakref.finalize(self, shutil.rmtree, self.directory, ignore_errors=True)
        self.authority = CertificateAuthority()
        self._names = tuple(dict.fromkeys((*LOOPBACK_HOSTS, *hosts)))
        self._broker = self.renew()
        self._client = self.authority.issue(USER, hosts=[], for_servers=False).write(self.directory)
        self._password = secrets.token_urlsafe(18)
        self._broker_password = secrets.token_urlsafe(18)

    def renew(self) -> CertificateFiles:
        """Replace the brokers' key and certificate by others of the same name; running brokers
        read them within `penstock.ssl.reload.interval.ms`."""
        return self.authority.issue(_BROKER_USER, hosts=self._names).write(self.directory)

    @property
    def broker_config(self) -> dict[str, str]:
        """Without the listeners themselves."""
        config = {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self._broker.pem_keystore),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self._broker.authority),
        }
        if self._is_divided:
            return config | self._divided_config()
        config["security.inter.broker.protocol"] = self.protocol
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

    def _divided_config(self) -> dict[str, str]:
        """The user is created by the first broker that starts."""
        password_file = self.directory / "password"
        password_file.touch(mode=0o600)
        password_file.write_text(self._password)
        return {
            "listener.security.protocol.map": "CLIENTS:SASL_SSL,BROKERS:SSL",
            "inter.broker.listener.name": "BROKERS",
            "listener.name.brokers.ssl.client.auth": "required",
            "sasl.enabled.mechanisms": _SCRAM,
            "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
            "super.users": f"User:CN={_BROKER_USER};User:{USER}",
            "penstock.admin.user": USER,
            "penstock.admin.password.file": str(password_file),
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
            "sasl.mechanism": _SCRAM if self._is_divided else _MECHANISM,
            "sasl.username": USER,
            "sasl.password": self._password,
        }

    def write_client_config(self, bootstrap_servers: str) -> Path:
        """For `--client-config`."""
        path = self.directory / "client.properties"
        path.touch(mode=0o600)
        path.write_text(write_properties(self.client_config(bootstrap_servers)))
        return path
