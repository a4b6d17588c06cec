"""The identity behind a connection. How it was authenticated (TLS, SASL) is not known here."""

from typing import NamedTuple


class Principal(NamedTuple):
    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


ANONYMOUS = Principal("User", "ANONYMOUS")


class Caller(NamedTuple):
    """The identity that every request carries."""

    principal: Principal
    host: str  # the client's address
    listener: str  # the name of the listener that accepted the connection
