"""What a login needs of a SASL mechanism: tokens of the client in, tokens of the server out.

No sockets, and no state of a connection (`login`).
"""

from typing import NamedTuple, Protocol


class LoginRefused(Exception):
    """The login has failed. The reason is for the log: it holds no secret, and is never sent,
    because it may tell whether a user exists."""


class LoginStep(NamedTuple):
    token: bytes  # to be sent to the client
    user: str | None = None  # None: the client has to send another token
    left_ms: int | None = None  # until what the user showed expires; None: never


class MechanismExchange(Protocol):
    """One login by one mechanism."""

    def evaluate(self, token: bytes) -> LoginStep:
        """The next step; LoginRefused ends the exchange."""
