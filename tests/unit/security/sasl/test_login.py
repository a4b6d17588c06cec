"""The login of a connection: which request may come next, and when a session ends."""

import pytest
from tests.unit.security.sasl.logins import PASSWORDS, make_listener, plain_token

from penstock.protocol.api_keys import ApiKey
from penstock.security.principal import Principal
from penstock.security.sasl.login import MIN_RENEWAL_MS, HandshakeResult, SaslLogin
from penstock.security.sasl.mechanism import LoginRefused

_ALICE = plain_token("alice", PASSWORDS["alice"])
_BOB = plain_token("bob", PASSWORDS["bob"])
_OTHERS = [key for key in ApiKey if key not in (ApiKey.SASL_HANDSHAKE, ApiKey.API_VERSIONS)]


def logged_in(*, session_ms: int = 0, now_ms: int = 0) -> SaslLogin:
    login = SaslLogin(make_listener(session_ms=session_ms))
    assert login.begin("PLAIN", is_raw=False, now_ms=now_ms) is HandshakeResult.BEGUN
    login.evaluate(_ALICE, now_ms)
    return login


@pytest.mark.parametrize("key", _OTHERS)
def test_nothing_but_a_login_is_admitted_before_it(key: ApiKey) -> None:
    objection = SaslLogin(make_listener()).find_objection(key, 0)
    assert objection is not None
    assert "before a login, which listener CLIENTS asks for" in objection


def test_versions_may_be_asked_for_before_the_login_but_not_for_ever() -> None:
    login = SaslLogin(make_listener())
    objections = [login.find_objection(ApiKey.API_VERSIONS, 0) for _ in range(4)]
    assert objections[:3] == [None] * 3
    assert objections[3] is not None


@pytest.mark.parametrize("key", [key for key in ApiKey if key is not ApiKey.SASL_AUTHENTICATE])
@pytest.mark.parametrize("is_renewal", [False, True])
def test_nothing_but_a_token_is_admitted_after_the_handshake(key: ApiKey, is_renewal: bool) -> None:
    login = logged_in() if is_renewal else SaslLogin(make_listener())
    login.begin("PLAIN", is_raw=False, now_ms=MIN_RENEWAL_MS)
    objection = login.find_objection(key, MIN_RENEWAL_MS)
    assert objection is not None
    assert "in the middle of a login" in objection
    assert login.find_objection(ApiKey.SASL_AUTHENTICATE, MIN_RENEWAL_MS) is None


def test_everything_is_admitted_after_the_login() -> None:
    login = logged_in()
    assert login.principal == Principal("User", "alice")
    assert [login.find_objection(key, 10**9) for key in ApiKey] == [None] * len(ApiKey)


def test_nothing_is_admitted_after_a_failure() -> None:
    login = SaslLogin(make_listener())
    login.fail()
    assert all(login.find_objection(key, 0) is not None for key in ApiKey)


def test_a_mechanism_that_is_not_enabled_is_refused_with_those_that_are() -> None:
    login = SaslLogin(make_listener())
    assert login.begin("GSSAPI", is_raw=False, now_ms=0) is HandshakeResult.UNSUPPORTED
    assert login.offered == ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


def test_a_session_that_has_ended_admits_only_its_renewal() -> None:
    login = logged_in(session_ms=60_000)
    assert login.find_objection(ApiKey.FETCH, 60_000) is None
    assert "its session has ended" in str(login.find_objection(ApiKey.FETCH, 60_001))
    assert login.find_objection(ApiKey.SASL_HANDSHAKE, 60_001) is None
    assert login.begin("PLAIN", is_raw=False, now_ms=60_001) is HandshakeResult.BEGUN
    assert login.evaluate(_ALICE, 60_001).session_ms == 60_000
    assert login.find_objection(ApiKey.FETCH, 120_000) is None


def test_a_renewal_keeps_the_principal() -> None:
    login = logged_in()
    login.begin("PLAIN", is_raw=False, now_ms=MIN_RENEWAL_MS)
    with pytest.raises(LoginRefused, match="User:alice cannot become User:bob"):
        login.evaluate(_BOB, MIN_RENEWAL_MS)
    assert login.principal == Principal("User", "alice")


def test_a_renewal_keeps_the_mechanism() -> None:
    login = logged_in()
    result = login.begin("SCRAM-SHA-256", is_raw=False, now_ms=MIN_RENEWAL_MS)
    assert result is HandshakeResult.UNSUPPORTED
    assert login.offered == ("PLAIN",)


def test_a_session_is_renewed_at_most_once_a_second() -> None:
    login = logged_in(now_ms=5_000)
    assert login.begin("PLAIN", is_raw=False, now_ms=5_999) is HandshakeResult.ILLEGAL
    assert login.begin("PLAIN", is_raw=False, now_ms=6_000) is HandshakeResult.BEGUN


def test_a_listener_shows_no_password() -> None:
    shown = repr(make_listener())
    assert "PLAIN" in shown
    assert not any(password in shown for password in PASSWORDS.values())
