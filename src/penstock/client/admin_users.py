"""The part of `AsyncAdmin` for users that log in by SCRAM."""

from collections.abc import Sequence

from penstock.client.admin_operations import AdminOperations
from penstock.client.scram_users import SCRAM_MECHANISMS, ScramUser
from penstock.protocol.scram import MIN_ITERATIONS


class UserOperations(AdminOperations):
    async def create_user(
        self,
        name: str,
        password: str,
        *,
        mechanisms: Sequence[str] = SCRAM_MECHANISMS,
        iterations: int = MIN_ITERATIONS,
        timeout_s: float | None = None,
    ) -> None:
        """Create a user, or give it another password. The password is not sent. The broker that is
        asked lets the user in at once, the others as soon as they hear of it."""
        await self._connected().scram_users.create(
            name,
            password,
            mechanisms=mechanisms,
            iterations=iterations,
            timeout_ms=self._ms(timeout_s),
        )

    async def list_users(self, *, timeout_s: float | None = None) -> list[ScramUser]:
        """All users that can log in by SCRAM, without their secrets."""
        return await self._connected().scram_users.describe(timeout_ms=self._ms(timeout_s))

    async def delete_user(
        self,
        name: str,
        *,
        mechanisms: Sequence[str] | None = None,
        timeout_s: float | None = None,
    ) -> None:
        """Delete the user's credentials, or those of some mechanisms. Open connections stay."""
        await self._connected().scram_users.delete(
            name, mechanisms=mechanisms, timeout_ms=self._ms(timeout_s)
        )
