"""SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677): messages and math, for client and server.

Pure: no sockets, no storage of users. Invariants: a password, a key or a proof is in no repr and no
error; every secret is compared in constant time; iterations are bounded on both sides, because one
side chooses the work that the other does (CVE-2026-10143).
"""

import binascii
import hashlib
import hmac
import re
import secrets
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

MIN_ITERATIONS, MAX_ITERATIONS = 4096, 16384
MAX_MESSAGE_BYTES = 16_384
_NONCE_BYTES = 24
_SALT_BYTES = 24

_NAME = r"(?:[^\x00=,]|=2C|=3D)+"
_NONCE = r"[\x21-\x2b\x2d-\x7e]+"
_BASE64 = r"[A-Za-z0-9+/]+={0,2}"
_EXTENSIONS = r"(?P<extensions>(?:,[A-Za-z]+=[^\x00,]+)*)"
_CLIENT_FIRST = re.compile(
    rf"(?P<gs2>[ny],(?:a=(?P<authzid>{_NAME}))?,)"
    rf"(?P<bare>n=(?P<name>{_NAME}),r=(?P<nonce>{_NONCE}){_EXTENSIONS})"
)
_SERVER_FIRST = re.compile(
    rf"r=(?P<nonce>{_NONCE}),s=(?P<salt>{_BASE64}),i=(?P<iterations>[0-9]{{1,9}}){_EXTENSIONS}"
)
_CLIENT_FINAL = re.compile(
    rf"(?P<bare>c=(?P<binding>{_BASE64}),r=(?P<nonce>{_NONCE}){_EXTENSIONS}),p=(?P<proof>{_BASE64})"
)
_SERVER_FINAL = re.compile(rf"(?:v=(?P<signature>{_BASE64})|e=(?P<error>[^\x00,]+)){_EXTENSIONS}")


class ScramError(ValueError):
    """A malformed message, or one that may not come now. Holds no secret."""


class ScramRefused(ScramError):
    """The other side does not know the password."""


class ScramMechanism(Enum):
    SHA_256 = "SCRAM-SHA-256"
    SHA_512 = "SCRAM-SHA-512"

    @property
    def hash_name(self) -> str:
        return "sha256" if self is ScramMechanism.SHA_256 else "sha512"

    @property
    def code(self) -> int:
        """Kafka's number of it in DescribeUserScramCredentials and AlterUserScramCredentials."""
        return 1 if self is ScramMechanism.SHA_256 else 2

    @property
    def key_bytes(self) -> int:
        return hashlib.new(self.hash_name).digest_size


@dataclass(frozen=True, slots=True, kw_only=True)
class ScramCredential:
    """What a server keeps of a user: enough to check a password, not enough to log in."""

    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)
    iterations: int


class ClientFirst(NamedTuple):
    gs2_header: str  # client-final repeats it in base64
    bare: str
    authzid: str  # unescaped; empty if there is none
    name: str  # unescaped
    nonce: str
    extensions: Mapping[str, str]

    def encode(self) -> bytes:
        return (self.gs2_header + self.bare).encode()


@dataclass(frozen=True, slots=True)
class ServerFirst:
    text: str = field(repr=False)
    nonce: str
    salt: bytes = field(repr=False)
    iterations: int


@dataclass(frozen=True, slots=True)
class ClientFinal:
    bare: str  # without the proof
    binding: bytes
    nonce: str
    proof: bytes = field(repr=False)


# The math.


def salted_password(
    mechanism: ScramMechanism, password: str, *, salt: bytes, iterations: int
) -> bytes:
    """The costly step. As Kafka, without SASLprep: a password is its UTF-8 bytes."""
    check_iterations(iterations)
    return hashlib.pbkdf2_hmac(mechanism.hash_name, password.encode(), salt, iterations)


def make_credential(
    mechanism: ScramMechanism,
    password: str,
    *,
    iterations: int = MIN_ITERATIONS,
    salt: bytes | None = None,
) -> ScramCredential:
    """The credential of a new password, with a salt of its own."""
    salt = secrets.token_bytes(_SALT_BYTES) if salt is None else salt
    salted = salted_password(mechanism, password, salt=salt, iterations=iterations)
    return credential_of_salted(mechanism, salted, salt=salt, iterations=iterations)


def credential_of_salted(
    mechanism: ScramMechanism, salted: bytes, *, salt: bytes, iterations: int
) -> ScramCredential:
    """The credential of a salted password, as AlterUserScramCredentials sends it."""
    check_iterations(iterations)
    return ScramCredential(
        salt=salt,
        stored_key=_hash(mechanism, _hmac(mechanism, salted, b"Client Key")),
        server_key=_hmac(mechanism, salted, b"Server Key"),
        iterations=iterations,
    )


def fake_credential(
    mechanism: ScramMechanism, name: str, *, secret: bytes, iterations: int = MIN_ITERATIONS
) -> ScramCredential:
    """A credential that no password fits, for users that do not exist: a client that tries a name
    twice sees the same salt twice, as with a real one. `secret` is the server's own and stays the
    same."""
    salt = _hmac(mechanism, secret, name.encode())[:_SALT_BYTES]
    size = mechanism.key_bytes
    return ScramCredential(
        salt=salt,
        stored_key=secrets.token_bytes(size),
        server_key=secrets.token_bytes(size),
        iterations=iterations,
    )


def check_iterations(iterations: int) -> None:
    if not MIN_ITERATIONS <= iterations <= MAX_ITERATIONS:
        raise ScramError(
            f"{iterations} iterations of SCRAM; allowed are {MIN_ITERATIONS} to {MAX_ITERATIONS}"
        )


# Names and messages.


def escape_name(name: str) -> str:
    if not name or "\0" in name:
        raise ScramError("a user name is empty or contains a NUL character")
    return name.replace("=", "=3D").replace(",", "=2C")


def unescape_name(text: str) -> str:
    return text.replace("=2C", ",").replace("=3D", "=")


def make_client_first(
    name: str, *, nonce: str, authzid: str = "", extensions: Mapping[str, str] | None = None
) -> ClientFirst:
    extensions = extensions or {}
    header = f"n,a={escape_name(authzid)}," if authzid else "n,,"
    more = "".join(f",{key}={value}" for key, value in extensions.items())
    bare = f"n={escape_name(name)},r={nonce}{more}"
    return parse_client_first((header + bare).encode())


def parse_client_first(message: bytes) -> ClientFirst:
    match = _match(_CLIENT_FIRST, message, "client-first")
    authzid = match["authzid"]
    return ClientFirst(
        gs2_header=match["gs2"],
        bare=match["bare"],
        authzid="" if authzid is None else unescape_name(authzid),
        name=unescape_name(match["name"]),
        nonce=match["nonce"],
        extensions=_read_extensions(match["extensions"]),
    )


def parse_server_first(message: bytes) -> ServerFirst:
    match = _match(_SERVER_FIRST, message, "server-first")
    _read_extensions(match["extensions"])
    iterations = int(match["iterations"])
    check_iterations(iterations)
    return ServerFirst(match[0], match["nonce"], _decode(match["salt"], "server-first"), iterations)


def parse_client_final(message: bytes) -> ClientFinal:
    match = _match(_CLIENT_FINAL, message, "client-final")
    _read_extensions(match["extensions"])
    return ClientFinal(
        match["bare"],
        _decode(match["binding"], "client-final"),
        match["nonce"],
        _decode(match["proof"], "client-final"),
    )


# The two sides of a login.


class ScramClient:
    """The client's side: `first`, then `final` with server-first, then `verify` with
    server-final."""

    __slots__ = ("_first", "_mechanism", "_password", "_server_signature")

    def __init__(
        self, mechanism: ScramMechanism, name: str, password: str, *, nonce: str | None = None
    ) -> None:
        self._mechanism = mechanism
        self._password = password
        self._first = make_client_first(name, nonce=nonce or make_nonce())
        self._server_signature: bytes | None = None

    def first(self) -> bytes:
        return self._first.encode()

    def final(self, server_first: bytes) -> bytes:
        challenge = parse_server_first(server_first)
        ours = self._first.nonce
        if not challenge.nonce.startswith(ours) or challenge.nonce == ours:
            raise ScramError("the server's nonce does not extend the client's")
        salted = salted_password(
            self._mechanism, self._password, salt=challenge.salt, iterations=challenge.iterations
        )
        bare = f"c={_encode(self._first.gs2_header.encode())},r={challenge.nonce}"
        signed = _auth_message(self._first, challenge.text, bare)
        client_key = _hmac(self._mechanism, salted, b"Client Key")
        stored_key = _hash(self._mechanism, client_key)
        server_key = _hmac(self._mechanism, salted, b"Server Key")
        self._server_signature = _hmac(self._mechanism, server_key, signed)
        proof = _xor(client_key, _hmac(self._mechanism, stored_key, signed))
        return f"{bare},p={_encode(proof)}".encode()

    def verify(self, server_final: bytes) -> None:
        """ScramRefused if the server refuses, or does not know the password itself."""
        if self._server_signature is None:
            raise ScramError("server-final came before the client's proof")
        match = _match(_SERVER_FINAL, server_final, "server-final")
        if match["error"] is not None:
            raise ScramRefused(f"the server refuses: {match['error'][:200]}")
        signature = _decode(match["signature"], "server-final")
        if not hmac.compare_digest(signature, self._server_signature):
            raise ScramRefused("the server did not prove that it knows the password")


class ScramServer:
    """The server's side: `receive` client-first, `challenge` with the credential of its user, then
    `verify` client-final."""

    __slots__ = ("_challenge", "_credential", "_first", "_mechanism", "_nonce")

    def __init__(self, mechanism: ScramMechanism, *, nonce: str | None = None) -> None:
        self._mechanism = mechanism
        self._nonce = nonce or make_nonce()
        self._first: ClientFirst | None = None
        self._challenge = ""
        self._credential: ScramCredential | None = None

    def receive(self, client_first: bytes) -> ClientFirst:
        """The message, whose `name` is the user's; a name to act as must be the same."""
        if self._first is not None:
            raise ScramError("client-first came twice")
        first = parse_client_first(client_first)
        if first.authzid and first.authzid != first.name:
            raise ScramError("the authorization id is not the user name")
        self._first = first
        return first

    def challenge(self, credential: ScramCredential) -> bytes:
        """server-first; of a user that does not exist, take `fake_credential`."""
        if self._first is None or self._credential is not None:
            raise ScramError("there is no client-first to answer")
        check_iterations(credential.iterations)
        self._credential = credential
        nonce = self._first.nonce + self._nonce
        self._challenge = f"r={nonce},s={_encode(credential.salt)},i={credential.iterations}"
        return self._challenge.encode()

    def verify(self, client_final: bytes) -> bytes:
        """server-final for the right password; ScramRefused for another. Works once."""
        first, credential = self._first, self._credential
        if first is None or credential is None:
            raise ScramError("client-final came before server-first")
        self._first = None
        final = parse_client_final(client_final)
        # Equal, not only ending in ours (CVE-2024-56128). Older versions of librdkafka repeat the
        # client's nonce in front; that is no less determined.
        nonce = first.nonce + self._nonce
        if not (_are_equal(final.nonce, nonce) or _are_equal(final.nonce, first.nonce + nonce)):
            raise ScramError("the nonce is not that of this login")
        if not _are_equal(final.binding, first.gs2_header.encode()):
            raise ScramError("the channel binding is not that of client-first")
        signed = _auth_message(first, self._challenge, final.bare)
        self._check_proof(credential, final.proof, signed)
        return b"v=" + b64encode(_hmac(self._mechanism, credential.server_key, signed))

    def _check_proof(self, credential: ScramCredential, proof: bytes, signed: bytes) -> None:
        signature = _hmac(self._mechanism, credential.stored_key, signed)
        if len(proof) != len(signature):
            raise ScramError("the proof has the wrong length")
        stored_key = _hash(self._mechanism, _xor(proof, signature))
        if not hmac.compare_digest(stored_key, credential.stored_key):
            raise ScramRefused("the password is wrong, or there is no such user")


def make_nonce() -> str:
    return secrets.token_urlsafe(_NONCE_BYTES)


def _auth_message(first: ClientFirst, server_first: str, client_final_bare: str) -> bytes:
    return f"{first.bare},{server_first},{client_final_bare}".encode()


def _match(pattern: re.Pattern[str], message: bytes, what: str) -> re.Match[str]:
    if len(message) > MAX_MESSAGE_BYTES:
        raise ScramError(f"a {what} message of {len(message)} bytes; at most {MAX_MESSAGE_BYTES}")
    try:
        match = pattern.fullmatch(message.decode())
    except UnicodeDecodeError:
        match = None
    if match is None:
        raise ScramError(f"not a {what} message of SCRAM")
    return match


def _read_extensions(text: str) -> dict[str, str]:
    extensions: dict[str, str] = {}
    for part in text.split(",")[1:]:
        key, _, value = part.partition("=")
        if key == "m":
            raise ScramError("a mandatory extension of SCRAM that is not supported")
        if key in extensions:
            raise ScramError("an extension of SCRAM occurs twice")
        extensions[key] = value
    return extensions


def _decode(text: str, what: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except binascii.Error:
        raise ScramError(f"not base64 in a {what} message of SCRAM") from None


def _encode(value: bytes) -> str:
    return b64encode(value).decode()


def _are_equal(one: str | bytes, other: str | bytes) -> bool:
    return hmac.compare_digest(_as_bytes(one), _as_bytes(other))


def _as_bytes(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else value


def _hash(mechanism: ScramMechanism, value: bytes) -> bytes:
    return hashlib.new(mechanism.hash_name, value).digest()


def _hmac(mechanism: ScramMechanism, key: bytes, value: bytes) -> bytes:
    return hmac.digest(key, value, mechanism.hash_name)


def _xor(one: bytes, other: bytes) -> bytes:
    return bytes(left ^ right for left, right in zip(one, other, strict=True))
