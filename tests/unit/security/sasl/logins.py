"""Listeners with SASL for tests: PLAIN and SCRAM users, and what a client of each would send."""

from collections.abc import Mapping
from functools import cache, partial

from penstock.protocol.scram import ScramMechanism, make_credential
from penstock.security.sasl.login import SaslListener, SaslMechanism
from penstock.security.sasl.plain import PlainExchange
from penstock.security.sasl.scram import ScramExchange
from penstock.security.sasl.scram_users import ScramUsers

PASSWORDS = {"alice": "secret-of-alice", "bob": "secret-of-bob"}
MAX_RECEIVE_BYTES = 524_288


def plain_token(user: str, password: str, authorization_id: str = "") -> bytes:
    return f"{authorization_id}\0{user}\0{password}".encode()


def make_scram_users(
    passwords: Mapping[str, str] = PASSWORDS,
    mechanisms: tuple[ScramMechanism, ...] = tuple(ScramMechanism),
) -> ScramUsers:
    users = ScramUsers()
    users.use_secret(b"of the cluster")
    for user, password in passwords.items():
        users.replace(user, {name: make_credential(name, password) for name in mechanisms})
    return users


@cache
def _default_users() -> ScramUsers:
    return make_scram_users()


def make_listener(
    *, session_ms: int = 0, failure_delay_ms: int = 100, users: ScramUsers | None = None
) -> SaslListener:
    scram_users = _default_users() if users is None else users
    mechanisms = {"PLAIN": SaslMechanism(partial(PlainExchange, PASSWORDS), session_ms)}
    for mechanism in ScramMechanism:
        begin = partial(ScramExchange, mechanism, scram_users)
        mechanisms[mechanism.value] = SaslMechanism(begin, session_ms)
    return SaslListener(
        listener="CLIENTS",
        mechanisms=mechanisms,
        max_receive_bytes=MAX_RECEIVE_BYTES,
        failure_delay_ms=failure_delay_ms,
    )
