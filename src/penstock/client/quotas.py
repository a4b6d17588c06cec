"""Describes and alters client quotas. Any broker does it, and repeating is safe."""

from collections.abc import Mapping, Sequence
from typing import Any

from penstock.client.call import Call
from penstock.client.errors import RefusedByBroker
from penstock.client.item_results import settle
from penstock.client.metadata import read_error
from penstock.client.router import Router
from penstock.model.quotas import (
    DEFAULT_ENTITY,
    QuotaEntity,
    QuotaFilter,
    QuotaKey,
    QuotaMatch,
    QuotaOperation,
    Quotas,
    check_entity,
    check_value,
    find_key,
)
from penstock.protocol.api_keys import ApiKey

_EXACT, _DEFAULT, _ANY = range(3)
_VERSIONS = range(2)


class QuotaClient:
    def __init__(self, router: Router) -> None:
        self._router = router

    async def describe(
        self, wanted: QuotaFilter, *, timeout_ms: int | None = None
    ) -> dict[QuotaEntity, Quotas]:
        fields = {"components": list(map(_component, wanted.matches)), "strict": wanted.is_strict}
        call = Call(ApiKey.DESCRIBE_CLIENT_QUOTAS, _VERSIONS, fields)
        answer = await self._ask("describe quotas", call, timeout_ms)
        error = _find_error("describe quotas", answer)
        if error is not None:
            raise error
        return {_entity(entry.entity): _quotas(entry.values) for entry in answer.entries or ()}

    async def alter(
        self,
        alterations: Mapping[QuotaEntity, Sequence[QuotaOperation]],
        *,
        validate_only: bool = False,
        timeout_ms: int | None = None,
    ) -> None:
        """Or InvalidQuota, before anything is sent."""
        checked = {check_entity(entity): operations for entity, operations in alterations.items()}
        entries = [_entry(entity, operations) for entity, operations in checked.items()]
        fields = {"entries": entries, "validate_only": validate_only}
        call = Call(ApiKey.ALTER_CLIENT_QUOTAS, _VERSIONS, fields)
        answer = await self._ask("alter quotas", call, timeout_ms)
        settle(
            {
                entity: _find_error(f"alter the quotas of {entity}", result)
                for entity, result in zip(checked, answer.entries, strict=True)
            }
        )

    async def _ask(self, what: str, call: Call, timeout_ms: int | None) -> Any:
        deadline = self._router.deadline(timeout_ms)
        return await self._router.persist(
            what, deadline, lambda: self._router.ask_any(call, deadline)
        )


def _find_error(what: str, result: Any) -> RefusedByBroker | None:
    code = read_error(result.error_code)
    return RefusedByBroker(what, code, result.error_message) if code else None


def _entry(entity: QuotaEntity, operations: Sequence[QuotaOperation]) -> dict[str, Any]:
    return {
        "entity": [
            {"entity_type": kind, "entity_name": name or None}
            for kind, name in entity.parts().items()
        ],
        "ops": [_operation(entity, *operation) for operation in operations],
    }


def _operation(entity: QuotaEntity, key: QuotaKey, value: float | None) -> dict[str, Any]:
    find_key(entity, key)
    if value is None:
        return {"key": key.value, "value": 0.0, "remove": True}
    return {"key": key.value, "value": check_value(key, value), "remove": False}


def _component(match: QuotaMatch) -> dict[str, Any]:
    if match.name is None:
        return {"entity_type": match.entity_type, "match_type": _ANY, "match": None}
    kind = _DEFAULT if match.name == DEFAULT_ENTITY else _EXACT
    return {"entity_type": match.entity_type, "match_type": kind, "match": match.name or None}


def _entity(parts: Sequence[Any]) -> QuotaEntity:
    names = {part.entity_type: part.entity_name or DEFAULT_ENTITY for part in parts}
    return QuotaEntity(names.get("user"), names.get("client-id"), names.get("ip"))


def _quotas(values: Sequence[Any]) -> Quotas:
    """Without those that this client does not know."""
    our_keys = frozenset(QuotaKey)
    return {QuotaKey(entry.key): entry.value for entry in values if entry.key in our_keys}
