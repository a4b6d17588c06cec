"""The part of `AsyncAdmin` for client quotas."""

from collections.abc import Mapping

from penstock.client.admin_operations import AdminOperations
from penstock.model.quotas import (
    QuotaEntity,
    QuotaFilter,
    QuotaOperation,
    Quotas,
    find_key,
)


class QuotaOperations(AdminOperations):
    async def describe_client_quotas(
        self, wanted: QuotaFilter | None = None, *, timeout_s: float | None = None
    ) -> dict[QuotaEntity, Quotas]:
        """The quotas of the entities that match, or of all."""
        return await self._connected().quotas.describe(
            wanted or QuotaFilter(), timeout_ms=self._ms(timeout_s)
        )

    async def alter_client_quotas(
        self,
        alterations: Mapping[QuotaEntity, Mapping[str, float | None]],
        *,
        validate_only: bool = False,
        timeout_s: float | None = None,
    ) -> None:
        """Set quotas, as `{QuotaEntity("ada"): {"producer_byte_rate": 1_000_000}}`, or remove them
        with None; others of the entity stay. The broker that is asked enforces them at once, the
        others as soon as they hear of them."""
        operations = {
            entity: [
                QuotaOperation(find_key(entity, name), value) for name, value in values.items()
            ]
            for entity, values in alterations.items()
        }
        await self._connected().quotas.alter(
            operations, validate_only=validate_only, timeout_ms=self._ms(timeout_s)
        )
