"""Who is at the other end of a connection. How that was shown (TLS, SASL) is not known here."""

from typing import NamedTuple


class Principal(NamedTuple):
    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


ANONYMOUS = Principal("User", "ANONYMOUS")


class Caller(NamedTuple):
    """What every request carries."""

    principal: Principal
    host: str  # the peer's address
    listener: str  # the name of the listener it came through
