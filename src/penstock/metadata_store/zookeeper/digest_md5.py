"""SASL DIGEST-MD5 (RFC 2831) as ZooKeeper's servers ask for it: the client's two steps.

Nothing is sent here. The password is never sent, but whoever listens can try passwords against what
is: use it behind TLS. Invariant: the server proves that it knows the password, too.
"""

import hashlib
import hmac
import re
import secrets
from typing import NamedTuple

from penstock.metadata_store.errors import ZooKeeperLoginFailed

_SERVICE = "zookeeper/zk-sasl-md5"  # the name and the host of every ZooKeeper
_NONCE_COUNT = "00000001"
_DIRECTIVE = re.compile(r'\s*([A-Za-z-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s",]+))\s*(?:,|$)')
_ESCAPE = re.compile(r"\\(.)")


class DigestExchange(NamedTuple):
    response: bytes  # to the challenge
    proof: str  # that the server sends back if it knows the password


def respond(
    challenge: bytes,
    *,
    username: str,
    password: str,
    client_nonce: str | None = None,
    service: str = _SERVICE,
) -> DigestExchange:
    """Raises ZooKeeperLoginFailed for a challenge that asks for something else."""
    fields = _parse(challenge)
    nonce, realm = fields.get("nonce", ""), fields.get("realm", "")
    if not nonce or fields.get("algorithm") != "md5-sess":
        raise ZooKeeperLoginFailed("ZooKeeper's challenge is none of DIGEST-MD5")
    if "auth" not in fields.get("qop", "auth").split(","):
        raise ZooKeeperLoginFailed("ZooKeeper asks for encryption by SASL; use TLS in its place")
    client_nonce = client_nonce or secrets.token_urlsafe(24)
    key = _key(username, password, realm, nonce, client_nonce)

    def digest(method: str) -> str:
        request = _md5(f"{method}:{service}".encode()).hexdigest()
        text = f"{key}:{nonce}:{_NONCE_COUNT}:{client_nonce}:auth:{request}"
        return _md5(text.encode()).hexdigest()

    directives = {
        "charset": "utf-8",
        "username": _quote(username),
        "realm": _quote(realm),
        "nonce": _quote(nonce),
        "nc": _NONCE_COUNT,
        "cnonce": _quote(client_nonce),
        "digest-uri": _quote(service),
        "maxbuf": "65536",
        "response": digest("AUTHENTICATE"),
        "qop": "auth",
    }
    text = ",".join(f"{name}={value}" for name, value in directives.items())
    return DigestExchange(text.encode(), digest(""))


def check_proof(exchange: DigestExchange, answer: bytes) -> None:
    """Raises ZooKeeperLoginFailed unless the server knows the password."""
    proof = _parse(answer).get("rspauth", "")
    if not hmac.compare_digest(proof.encode(), exchange.proof.encode()):
        raise ZooKeeperLoginFailed(
            "ZooKeeper does not prove that it knows the password: this may not be your ZooKeeper"
        )


def _key(username: str, password: str, realm: str, nonce: str, client_nonce: str) -> str:
    secret = _md5(b":".join(map(_encode, (username, realm, password)))).digest()
    return _md5(secret + f":{nonce}:{client_nonce}".encode()).hexdigest()


def _encode(text: str) -> bytes:
    """ISO 8859-1 where that has all characters, as the RFC says, UTF-8 else."""
    try:
        return text.encode("latin-1")
    except UnicodeEncodeError:
        return text.encode()


def _md5(data: bytes) -> "hashlib._Hash":
    return hashlib.md5(data)  # noqa: S324 (ZooKeeper has no other SASL mechanism without Kerberos)


def _parse(text: bytes) -> dict[str, str]:
    """Directives; empty if it is not a list of them."""
    decoded = text.decode("utf-8", "replace")
    directives: dict[str, str] = {}
    position = 0
    while position < len(decoded):
        match = _DIRECTIVE.match(decoded, position)
        if match is None:
            return {}
        name, quoted, token = match.groups()
        directives[name.lower()] = token if quoted is None else _ESCAPE.sub(r"\1", quoted)
        position = match.end()
    return directives


def _quote(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
