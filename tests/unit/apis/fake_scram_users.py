"""SCRAM users in memory, in place of those in the metadata store."""

from penstock.controller.scram_store import CredentialChanges, NoSuchCredential
from penstock.controller.scram_znodes import Credentials


class FakeScramUsers:
    def __init__(self) -> None:
        self.users: dict[str, Credentials] = {}
        self.error: Exception | None = None  # of the metadata store

    async def read(self, user: str) -> Credentials:
        if self.error is not None:
            raise self.error
        return self.users.get(user, {})

    async def list_users(self) -> dict[str, Credentials]:
        return {user: credentials for user, credentials in self.users.items() if credentials}

    async def alter(self, user: str, changes: CredentialChanges) -> None:
        if self.error is not None:
            raise self.error
        credentials = dict(self.users.get(user, {}))
        for mechanism, credential in changes.items():
            if credential is not None:
                credentials[mechanism] = credential
            elif credentials.pop(mechanism, None) is None:
                raise NoSuchCredential(f"{user} has no {mechanism.value}")
        self.users[user] = credentials
