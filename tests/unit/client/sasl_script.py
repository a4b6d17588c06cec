"""The broker's side of SASL for ScriptedBroker: PLAIN, OAUTHBEARER, and SCRAM by `scramp`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

import scramp
from tests.unit.client.scripted_broker import Answer, ReceivedRequest, ScriptedBroker

from penstock.model.errors import ErrorCode
from penstock.protocol.api_keys import ApiKey

USERS: Mapping[str, str] = {"alice": "alice, =secret", "jürgen": "pässword"}
_LOGIN_REFUSED = ErrorCode.SASL_AUTHENTICATION_FAILED


class SaslScript:
    """One login at a time. `logins` has the names of those that succeeded."""

    def __init__(self, broker: ScriptedBroker, *mechanisms: str, lifetime_ms: int = 0) -> None:
        self.mechanisms = mechanisms
        self.lifetime_ms = lifetime_ms
        self.logins: list[str] = []
        self.tokens: list[bytes] = []  # that the client sent
        self.passwords = dict(USERS)
        self._steps: Callable[[bytes], Answer] | None = None
        broker.served |= {ApiKey.SASL_HANDSHAKE: (0, 1), ApiKey.SASL_AUTHENTICATE: (0, 2)}
        broker.handlers[ApiKey.SASL_HANDSHAKE] = self._handshake
        broker.handlers[ApiKey.SASL_AUTHENTICATE] = self._authenticate

    def _handshake(self, request: ReceivedRequest) -> Answer:
        mechanism = request.message.mechanism
        if mechanism not in self.mechanisms:
            return {"error_code": 33, "mechanisms": self.mechanisms}
        makers: dict[str, Callable[[], Callable[[bytes], Answer]]] = {
            "PLAIN": lambda: self._plain,
            "OAUTHBEARER": lambda: self._bearer,
        }
        self._steps = makers.get(mechanism, lambda: self._scram(mechanism))()
        return {"error_code": 0, "mechanisms": self.mechanisms}

    def _authenticate(self, request: ReceivedRequest) -> Answer:
        assert self._steps is not None
        self.tokens.append(bytes(request.message.auth_bytes))
        return self._steps(self.tokens[-1])

    def _plain(self, token: bytes) -> Answer:
        _, name, password = token.decode().split("\0")
        return self._decide(name, self.passwords.get(name) == password)

    def _bearer(self, token: bytes) -> Answer:
        if token == b"\x01":
            return self._decide("", False)
        value = token.split(b"auth=Bearer ")[1].split(b"\x01")[0].decode()
        if value != "good":
            return self._answer(b'{"status":"invalid_token"}')
        return self._decide("bearer", True)

    def _scram(self, mechanism: str) -> Callable[[bytes], Answer]:
        chosen = scramp.ScramMechanism(mechanism)
        users = {name: chosen.make_auth_info(word) for name, word in self.passwords.items()}
        named: list[str] = []

        def find_user(name: str) -> Any:
            named.append(name)
            return users[name]

        server = chosen.make_server(find_user)

        def step(token: bytes) -> Answer:
            if server.stage is None:
                server.set_client_first(token.decode())
                return self._answer(server.get_server_first().encode())
            try:
                server.set_client_final(token.decode())
            except scramp.ScramException:
                return self._decide(named[0], False)
            return self._decide(named[0], True, server.get_server_final().encode())

        return step

    def _decide(self, name: str, is_right: bool, token: bytes = b"") -> Answer:
        if not is_right:
            refusal = {"error_code": int(_LOGIN_REFUSED), "error_message": "bad credentials"}
            return {**self._fields(b""), **refusal}
        self.logins.append(name)
        return self._answer(token, self.lifetime_ms)

    def _answer(self, token: bytes, lifetime_ms: int = 0) -> Answer:
        return self._fields(token) | {"session_lifetime": timedelta(milliseconds=lifetime_ms)}

    def _fields(self, token: bytes) -> dict[str, Any]:
        return {
            "error_code": 0,
            "error_message": None,
            "auth_bytes": token,
            "session_lifetime": timedelta(),
        }
