"""The part of `AsyncAdmin` for access control lists."""

from collections.abc import Iterable
from typing import TypeVar, cast

from penstock.client.admin_operations import AdminOperations
from penstock.model.acls import AclBinding, AclFilter

_Item = TypeVar("_Item", AclBinding, AclFilter)


class AclOperations(AdminOperations):
    async def create_acls(
        self, bindings: AclBinding | Iterable[AclBinding], *, timeout_s: float | None = None
    ) -> None:
        """Add rules; those that exist stay. Rules of one resource are added together or not at all.
        The broker that is asked obeys them at once, the others as soon as they hear of them."""
        await self._connected().acls.create(
            _read(AclBinding, bindings), timeout_ms=self._ms(timeout_s)
        )

    async def describe_acls(
        self, wanted: AclFilter | None = None, *, timeout_s: float | None = None
    ) -> list[AclBinding]:
        """The rules that match, or all of them."""
        return await self._connected().acls.describe(
            wanted or AclFilter(), timeout_ms=self._ms(timeout_s)
        )

    async def delete_acls(
        self, filters: AclFilter | Iterable[AclFilter], *, timeout_s: float | None = None
    ) -> dict[AclFilter, list[AclBinding]]:
        """Remove the rules that match; what each filter has removed. `AclFilter()` matches all."""
        return await self._connected().acls.delete(
            _read(AclFilter, filters), timeout_ms=self._ms(timeout_s)
        )


def _read(kind: type[_Item], given: "_Item | Iterable[_Item]") -> list[_Item]:
    items = [given] if isinstance(given, kind) else list(cast("Iterable[_Item]", given))
    if not items:
        raise ValueError(f"no {kind.__name__} is given: give at least one")
    for item in items:
        if not isinstance(item, kind):
            raise TypeError(f"{item!r} is no {kind.__name__}")
    return items
