"""What a client says in a SASL login, as generators: they yield a token and are sent the answer.

Pure: no sockets. A login is over when its generator ends; only then is the broker trusted.
"""

from collections.abc import Generator, Iterable

from penstock.client.errors import AuthenticationFailed
from penstock.client.security.config import ClientSasl
from penstock.protocol.scram import ScramClient, ScramError, ScramMechanism

SaslTokens = Generator[bytes, bytes, None]
_SEPARATOR = "\x01"
_MAX_SHOWN = 200


def sasl_tokens(sasl: ClientSasl, bearer_token: str | None) -> SaslTokens:
    """Of a login with these credentials. `bearer_token` is needed for OAUTHBEARER alone."""
    if sasl.mechanism == "PLAIN":
        return _plain(sasl)
    if sasl.mechanism == "OAUTHBEARER":
        assert bearer_token is not None
        return _bearer(bearer_token, sasl.extensions)
    return _scram(sasl)


def _plain(sasl: ClientSasl) -> SaslTokens:
    yield f"\0{sasl.username}\0{sasl.password}".encode()


def _scram(sasl: ClientSasl) -> SaslTokens:
    try:
        client = ScramClient(ScramMechanism(sasl.mechanism), sasl.username, sasl.password)
        challenge = yield client.first()
        client.verify((yield client.final(challenge)))
    except ScramError as error:
        raise AuthenticationFailed(f"{sasl.mechanism}: {error}") from None


def _bearer(token: str, extensions: Iterable[tuple[str, str]]) -> SaslTokens:
    pairs = "".join(f"{name}={value}{_SEPARATOR}" for name, value in extensions)
    text = f"n,,{_SEPARATOR}auth=Bearer {token}{_SEPARATOR}{pairs}{_SEPARATOR}"
    challenge = yield text.encode()
    if challenge:  # RFC 7628: a refusal in JSON, which the client must acknowledge
        shown = challenge[:_MAX_SHOWN].decode("utf-8", "backslashreplace")
        yield _SEPARATOR.encode()
        raise AuthenticationFailed(f"OAUTHBEARER: the broker refuses the token: {shown}")
