"""Stands before the dispatcher on listeners with SASL: serves only what a login allows.

Tokens without a header, after SaslHandshake version 0, are answered here. Invariant: no request of
a connection that is not logged in, or whose session has ended, reaches a handler, besides those of
the login itself.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from penstock.protocol.frames import frame_parts, peek_api_key
from penstock.protocol.malformed import MalformedRequest
from penstock.security.sasl.mechanism import LoginRefused

if TYPE_CHECKING:
    from penstock.network.in_flight_request import InFlightRequest
    from penstock.security.sasl.login import SaslLogin

_LEAST_BYTES = 2  # of a request: its API key


class DelayTimers(Protocol):
    def now_ms(self) -> int: ...

    def add(self, deadline_ms: int, value: Callable[[], None], /) -> object: ...


class SaslGate:
    def __init__(
        self, on_request: "Callable[[InFlightRequest], None]", timers: DelayTimers
    ) -> None:
        self._on_request = on_request
        self._timers = timers

    def on_request(self, in_flight: "InFlightRequest") -> None:
        """Raises MalformedRequest for a request that may not come now."""
        login = in_flight.login
        assert login is not None, "the listener has no SASL"
        if login.takes_raw_tokens:
            self._answer_token(in_flight, login)
            return
        if len(in_flight.frame) < _LEAST_BYTES:
            raise MalformedRequest("a frame of 1 byte is too short for a header")
        now_ms = self._timers.now_ms()
        objection = login.find_objection(peek_api_key(in_flight.frame), now_ms)
        if objection is not None:
            if login.is_expired(now_ms):
                in_flight.note_expired_session()
            raise MalformedRequest(objection)
        self._on_request(in_flight)

    def _answer_token(self, in_flight: "InFlightRequest", login: "SaslLogin") -> None:
        try:
            result = login.evaluate(bytes(in_flight.frame), self._timers.now_ms())
        except LoginRefused as refused:
            # There is no response for a failure in this version.
            refuse_login(in_flight, str(refused), self._timers, in_flight.reply_nothing)
            return
        if result.principal is not None:
            in_flight.complete_login(result.principal)
        in_flight.reply([b"".join(frame_parts([result.token]))])


def refuse_login(
    in_flight: "InFlightRequest",
    reason: str,
    timers: DelayTimers,
    answer: Callable[[], None],
) -> None:
    """Answer after a delay, which slows down guessing, and close the connection."""
    login = in_flight.login
    assert login is not None, "the listener has no SASL"
    login.fail()
    in_flight.note_failed_login(reason)

    def end() -> None:
        if not in_flight.is_closed:
            answer()
            in_flight.close_once_answered()

    timers.add(timers.now_ms() + login.listener.failure_delay_ms, end)
