"""A login by SCRAM-SHA-256 or SCRAM-SHA-512. The messages and the math are in `protocol.scram`."""

from penstock.protocol.scram import ScramError, ScramMechanism, ScramServer
from penstock.security.sasl.mechanism import LoginRefused, LoginStep
from penstock.security.sasl.scram_users import ScramUsers

_BY_TOKEN = "tokenauth"  # noqa: S105 (the name of Kafka's extension for delegation tokens)


class ScramExchange:
    __slots__ = ("_mechanism", "_server", "_user", "_users")

    def __init__(self, mechanism: ScramMechanism, users: ScramUsers) -> None:
        self._mechanism = mechanism
        self._users = users
        self._server = ScramServer(mechanism)
        self._user: str | None = None  # None: client-first has not come yet

    def evaluate(self, token: bytes) -> LoginStep:
        try:
            if self._user is None:
                return self._challenge(token)
            return LoginStep(self._server.verify(token), self._user)
        except ScramError as error:
            raise LoginRefused(str(error)) from None

    def _challenge(self, token: bytes) -> LoginStep:
        first = self._server.receive(token)
        if first.extensions.get(_BY_TOKEN, "").lower() == "true":
            raise LoginRefused("delegation tokens are not supported")
        self._user = first.name
        credential = self._users.get_credential(first.name, self._mechanism)
        return LoginStep(self._server.challenge(credential))
