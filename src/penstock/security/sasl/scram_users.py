"""The SCRAM credentials that a broker checks logins with: a copy of those in the metadata store.

Not their storage (`scram_store` in controller). Invariant: who asks for a user that does not exist
gets a credential of the same shape, with the same salt each time and on each broker.
"""

from collections.abc import Mapping

from penstock.protocol.scram import ScramCredential, ScramMechanism, fake_credential

ScramCredentials = Mapping[ScramMechanism, ScramCredential]


class ScramUsers:
    """Owned by the event loop."""

    __slots__ = ("_by_user", "_secret")

    def __init__(self) -> None:
        self._by_user: dict[str, ScramCredentials] = {}
        self._secret = b""

    def use_secret(self, secret: bytes) -> None:
        """The cluster's own, from which salts of users that do not exist are made."""
        self._secret = secret

    def replace(self, user: str, credentials: ScramCredentials) -> None:
        """Without credentials the user is forgotten."""
        if credentials:
            self._by_user[user] = credentials
        else:
            self._by_user.pop(user, None)

    def find(self, user: str) -> ScramCredentials | None:
        return self._by_user.get(user)

    def names(self) -> list[str]:
        return sorted(self._by_user)

    def get_credential(self, user: str, mechanism: ScramMechanism) -> ScramCredential:
        """The user's, or one that no password fits. A credential of another mechanism opens
        nothing."""
        credential = self._by_user.get(user, {}).get(mechanism)
        # Made in either case, so that time does not tell which names exist.
        fake = fake_credential(mechanism, user, secret=self._secret)
        return fake if credential is None else credential
