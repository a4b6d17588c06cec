"""The SASL login of one connection, and its renewal (KIP-368): which request may come next.

Decides; the connection and the handlers act. Invariants: before the login only ApiVersions,
SaslHandshake and SaslAuthenticate are admitted, during a renewal only SaslAuthenticate; a renewal
changes neither the principal nor the mechanism.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from penstock.protocol.api_keys import ApiKey, find_api_key
from penstock.security.principal import Principal
from penstock.security.sasl.mechanism import LoginRefused, LoginStep, MechanismExchange

MIN_RENEWAL_MS = 1_000  # between two logins of a connection
_MAX_VERSION_REQUESTS = 3  # before the login: clients ask once, or again in an older version
_MAX_TOKENS = 8  # of one login; no mechanism needs more than 3


class SaslMechanism(NamedTuple):
    """One that is enabled on a listener."""

    begin: Callable[[], MechanismExchange]
    max_session_ms: int  # 0: a session never ends

    def __repr__(self) -> str:
        """Without the function, which may hold the passwords of users."""
        return f"SaslMechanism(max_session_ms={self.max_session_ms})"


@dataclass(frozen=True, slots=True, kw_only=True)
class SaslListener:
    """What the logins of a listener have in common."""

    listener: str
    mechanisms: Mapping[str, SaslMechanism]  # by name
    max_receive_bytes: int  # of a request before the login
    failure_delay_ms: int


class HandshakeResult(Enum):
    BEGUN = "begun"
    UNSUPPORTED = "unsupported"  # the client may choose from `offered`, on a new connection
    ILLEGAL = "illegal"  # not now


class LoginResult(NamedTuple):
    token: bytes
    principal: Principal | None  # None: the client has to send another token
    session_ms: int = 0  # 0: without an end


class SaslLogin:
    """Owned by its connection."""

    __slots__ = (
        "_begun_ms",
        "_exchange",
        "_mechanism",
        "_tokens",
        "_version_requests",
        "expires_ms",
        "is_failed",
        "listener",
        "principal",
        "takes_raw_tokens",
    )

    def __init__(self, listener: SaslListener) -> None:
        self.listener = listener
        self.principal: Principal | None = None  # None: not logged in
        self.expires_ms: int | None = None  # of the session; None: it has no end
        self.is_failed = False  # the connection is about to close
        self.takes_raw_tokens = False  # the next frames are tokens without a header
        self._exchange: MechanismExchange | None = None  # None: no login is under way
        self._mechanism = ""  # that of the handshake
        self._begun_ms: int | None = None  # when the last login began
        self._tokens = 0  # of the login under way
        self._version_requests = 0

    @property
    def is_exchanging(self) -> bool:
        return self._exchange is not None

    @property
    def mechanism(self) -> str:
        """That of the handshake; "SASL" before it."""
        return self._mechanism or "SASL"

    @property
    def offered(self) -> tuple[str, ...]:
        """The mechanisms that the client may choose from: for a renewal only its own."""
        return tuple(self.listener.mechanisms) if self.principal is None else (self._mechanism,)

    def find_objection(self, api_key: int, now_ms: int) -> str | None:
        """Why a request must not be served now: its connection is to be closed."""
        if self.is_failed:
            return "its login has failed"
        if self.is_exchanging:
            if api_key == ApiKey.SASL_AUTHENTICATE:
                return None
            return f"{_describe(api_key)} came in the middle of a login"
        if self.principal is None:
            return self._object_before_login(api_key)
        if self.is_expired(now_ms) and api_key != ApiKey.SASL_HANDSHAKE:
            return (
                "its session has ended, and the client did not authenticate again "
                "(connections.max.reauth.ms)"
            )
        return None

    def is_expired(self, now_ms: int) -> bool:
        return self.expires_ms is not None and now_ms > self.expires_ms

    def _object_before_login(self, api_key: int) -> str | None:
        if api_key == ApiKey.SASL_HANDSHAKE:
            return None
        if api_key != ApiKey.API_VERSIONS:
            return (
                f"{_describe(api_key)} came before a login, which listener "
                f"{self.listener.listener} asks for: the client needs security.protocol=SASL_..."
            )
        self._version_requests += 1
        if self._version_requests > _MAX_VERSION_REQUESTS:
            return "the client asks for API versions again and again, and does not log in"
        return None

    def begin(self, mechanism: str, *, is_raw: bool, now_ms: int) -> HandshakeResult:
        """SaslHandshake. `is_raw`: version 0, after which tokens come without a header."""
        if self._begun_ms is not None and now_ms - self._begun_ms < MIN_RENEWAL_MS:
            return HandshakeResult.ILLEGAL
        if mechanism not in self.offered:
            return HandshakeResult.UNSUPPORTED
        self._begun_ms = now_ms
        self._mechanism = mechanism
        self._tokens = 0
        self.takes_raw_tokens = is_raw
        self._exchange = self.listener.mechanisms[mechanism].begin()
        return HandshakeResult.BEGUN

    def evaluate(self, token: bytes, now_ms: int) -> LoginResult:
        """A token of the client. LoginRefused: the connection is to be closed."""
        assert self._exchange is not None, "there was no handshake"
        self._tokens += 1
        if self._tokens > _MAX_TOKENS:
            raise LoginRefused(f"the login takes more than {_MAX_TOKENS} tokens")
        step = self._exchange.evaluate(token)
        if step.user is None:
            return LoginResult(step.token, None)
        principal = Principal("User", step.user)
        if self.principal is not None and principal != self.principal:
            raise LoginRefused(f"{self.principal} cannot become {principal} on its connection")
        return self._complete(principal, step, now_ms)

    def _complete(self, principal: Principal, step: LoginStep, now_ms: int) -> LoginResult:
        self.principal = principal
        self._exchange = None
        self.takes_raw_tokens = False
        limits = (self.listener.mechanisms[self._mechanism].max_session_ms, step.left_ms)
        session_ms = min(filter(None, limits), default=0)
        self.expires_ms = now_ms + session_ms if session_ms else None
        return LoginResult(step.token, principal, session_ms)

    def fail(self) -> None:
        """Nothing is admitted any more."""
        self.is_failed = True
        self.takes_raw_tokens = False
        self._exchange = None


def _describe(api_key: int) -> str:
    key = find_api_key(api_key)
    return f"a request of API key {api_key}" if key is None else key.title
