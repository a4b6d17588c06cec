"""TLS, login and ACLs of the connection to ZooKeeper: the settings as one value, what they lack.

No file is read here. Invariant: a broker whose settings ask for a secure connection has one, or it
does not start.
"""

from collections.abc import Iterator, Mapping, Set
from typing import Any, NamedTuple

from penstock.config.cross_checks import ConfigFinding, Values
from penstock.config.jaas import DIGEST_LOGIN, JaasError, parse_jaas

TLS_ENABLED = "zookeeper.ssl.client.enable"
SET_ACL = "zookeeper.set.acl"
JAAS = "penstock.zookeeper.sasl.jaas.config"
_CONNECT = "zookeeper.connect"
_SOCKET = "zookeeper.clientCnxnSocket"
_NETTY = "org.apache.zookeeper.ClientCnxnSocketNetty"
_KEYSTORE, _TRUSTSTORE = "zookeeper.ssl.keystore", "zookeeper.ssl.truststore"
_STORE_PARTS = ("location", "password", "type")
_VERSIONS = "zookeeper.ssl.enabled.protocols"
_HOST_CHECK = "zookeeper.ssl.endpoint.identification.algorithm"
SOURCE_NAMES = (
    *(TLS_ENABLED, SET_ACL, JAAS, _SOCKET, _VERSIONS, _HOST_CHECK),
    *(f"{store}.{part}" for store in (_KEYSTORE, _TRUSTSTORE) for part in _STORE_PARTS),
)
_KNOWN_VERSIONS = ("TLSv1.2", "TLSv1.3")
_KNOWN_TYPES = ("PEM", "PKCS12", "JKS")  # the content says which; Java writes PKCS12 as JKS
_NOT_BUILT = (
    "zookeeper.ssl.crl.enable",
    "zookeeper.ssl.ocsp.enable",
    "zookeeper.ssl.cipher.suites",
)


class StoreFile(NamedTuple):
    location: str
    password: str | None

    def __repr__(self) -> str:
        return f"StoreFile({self.location!r})"


class ZooKeeperTls(NamedTuple):
    trusted: StoreFile
    identity: StoreFile | None  # None: no certificate is shown
    versions: tuple[str, ...]
    checks_hosts: bool


class ZooKeeperLogin(NamedTuple):
    """A user and password for DIGEST-MD5."""

    username: str
    password: str

    def __repr__(self) -> str:
        return f"ZooKeeperLogin({self.username!r})"


class ZooKeeperSecurity(NamedTuple):
    tls: ZooKeeperTls | None = None  # None: plaintext
    login: ZooKeeperLogin | None = None
    sets_acls: bool = False  # on znodes that are created

    @classmethod
    def from_settings(cls, values: Mapping[str, Any]) -> "ZooKeeperSecurity":
        """Of values without findings."""
        return cls(
            tls=_tls(values) if values[TLS_ENABLED] else None,
            login=_login(values[JAAS]) if values[JAAS] else None,
            sets_acls=bool(values[SET_ACL]),
        )


OPEN = ZooKeeperSecurity()


def zookeeper_findings(values: Values, explicit: Set[str]) -> list[ConfigFinding]:
    """Why the connection would not be as secure as the settings ask for. `explicit` are the names
    that the user set."""
    return [
        *_use_findings(values),
        *_plaintext_findings(values, explicit),
        *_login_findings(values),
        *_acl_findings(values),
        *(_tls_findings(values) if values[TLS_ENABLED] else ()),
    ]


def _use_findings(values: Values) -> Iterator[ConfigFinding]:
    if values[_CONNECT]:
        return
    for name in (TLS_ENABLED, SET_ACL, JAAS):
        if values[name]:
            yield ConfigFinding(
                name, f"is not in effect without {_CONNECT}: name a ZooKeeper, or remove it"
            )


def _plaintext_findings(values: Values, explicit: Set[str]) -> Iterator[ConfigFinding]:
    """Files for TLS without a word on TLS itself: who wrote them does not expect plaintext."""
    if values[TLS_ENABLED] or TLS_ENABLED in explicit or not values[_CONNECT]:
        return
    for name in (f"{_KEYSTORE}.location", f"{_TRUSTSTORE}.location"):
        if values[name] is not None:
            yield ConfigFinding(
                name,
                f"is not in effect, because the connection to ZooKeeper is plaintext: set "
                f"{TLS_ENABLED}=true, or false if that is meant",
            )


def _login_findings(values: Values) -> Iterator[ConfigFinding]:
    try:
        if values[JAAS]:
            _login(values[JAAS])
    except JaasError as error:
        yield ConfigFinding(JAAS, str(error).removeprefix("sasl.jaas.config: "))


def _acl_findings(values: Values) -> Iterator[ConfigFinding]:
    if not values[_CONNECT]:
        return
    shows_certificate = values[TLS_ENABLED] and values[f"{_KEYSTORE}.location"]
    if values[SET_ACL] and not (values[JAAS] or shows_certificate):
        yield ConfigFinding(
            SET_ACL,
            "is not in effect, because ZooKeeper would not know who creates a znode: set "
            f"{TLS_ENABLED} with {_KEYSTORE}.location, or {JAAS}; or remove it",
        )


def _tls_findings(values: Values) -> Iterator[ConfigFinding]:
    socket = values[_SOCKET]
    if socket not in (None, _NETTY):
        yield ConfigFinding(_SOCKET, f"{socket} has no TLS in ZooKeeper; set {_NETTY}")
    if values[f"{_TRUSTSTORE}.location"] is None:
        yield ConfigFinding(
            TLS_ENABLED,
            f"needs {_TRUSTSTORE}.location: the authorities that sign ZooKeeper's certificates",
        )
    for name in _NOT_BUILT:
        if values[name]:
            yield ConfigFinding(
                name, f"is not in effect, and {TLS_ENABLED} depends on it; remove it"
            )
    for name in (f"{_KEYSTORE}.type", f"{_TRUSTSTORE}.type"):
        if values[name] is not None and values[name].upper() not in _KNOWN_TYPES:
            yield ConfigFinding(name, f"{values[name][:40]} is not read here; use PEM or PKCS12")
    strangers = set(values[_VERSIONS] or ()) - set(_KNOWN_VERSIONS)
    if strangers:
        yield ConfigFinding(
            _VERSIONS,
            f"{', '.join(sorted(strangers))}: there are {' and '.join(_KNOWN_VERSIONS)}, and older "
            "ones are not secure",
        )
    if (values[_HOST_CHECK] or "").lower() not in ("", "https"):
        yield ConfigFinding(_HOST_CHECK, "is HTTPS, or empty for no check of host names")


def _tls(values: Mapping[str, Any]) -> ZooKeeperTls:
    trusted = _store(values, _TRUSTSTORE)
    assert trusted is not None, "settings with findings"
    return ZooKeeperTls(
        trusted=trusted,
        identity=_store(values, _KEYSTORE),
        versions=tuple(values[_VERSIONS] or _KNOWN_VERSIONS),
        checks_hosts=bool(values[_HOST_CHECK]),
    )


def _store(values: Mapping[str, Any], name: str) -> StoreFile | None:
    location = values[f"{name}.location"]
    return None if location is None else StoreFile(location, values[f"{name}.password"])


def _login(text: str) -> ZooKeeperLogin:
    """JaasError."""
    entry = parse_jaas(text, modules=(DIGEST_LOGIN,))
    username, password = entry.options.get("username"), entry.options.get("password")
    if not username or not password:
        raise JaasError('sasl.jaas.config: lacks username="NAME" or password="PASSWORD"')
    return ZooKeeperLogin(username, password)
