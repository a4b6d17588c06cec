"""Creates, describes and deletes access control lists. Any broker does it, and repeating is safe:
a rule that exists is not created again."""

from collections.abc import Sequence
from typing import Any

from penstock.client.call import Call
from penstock.client.errors import ClientError, RefusedByBroker
from penstock.client.item_results import settle
from penstock.client.metadata import read_error
from penstock.client.router import Router
from penstock.model.acls import (
    AccessControlEntry,
    AclBinding,
    AclFilter,
    AclOperation,
    AclPermission,
    PatternType,
    ResourcePattern,
    ResourceType,
    check_binding,
    check_operation,
)
from penstock.protocol.api_keys import ApiKey

_ANY = 1
_VERSIONS = range(1, 4)


class AclClient:
    def __init__(self, router: Router) -> None:
        self._router = router

    async def create(
        self, bindings: Sequence[AclBinding], *, timeout_ms: int | None = None
    ) -> None:
        for binding in bindings:
            check_operation(check_binding(binding))
        call = Call(ApiKey.CREATE_ACLS, _VERSIONS, {"creations": list(map(_creation, bindings))})
        answer = await self._ask("create ACLs", call, timeout_ms)
        settle(
            {
                binding: _find_error(f"create: {binding}", result)
                for binding, result in zip(bindings, answer.results, strict=True)
            }
        )

    async def describe(
        self, wanted: AclFilter, *, timeout_ms: int | None = None
    ) -> list[AclBinding]:
        call = Call(ApiKey.DESCRIBE_ACLS, _VERSIONS, _filter(wanted))
        answer = await self._ask("describe ACLs", call, timeout_ms)
        error = _find_error("describe ACLs", answer)
        if error is not None:
            raise error
        return [_binding(resource, acl) for resource in answer.resources for acl in resource.acls]

    async def delete(
        self, filters: Sequence[AclFilter], *, timeout_ms: int | None = None
    ) -> dict[AclFilter, list[AclBinding]]:
        """What each filter has removed; after a lost response, without what it had removed then."""
        call = Call(ApiKey.DELETE_ACLS, _VERSIONS, {"filters": list(map(_filter, filters))})
        answer = await self._ask("delete ACLs", call, timeout_ms)
        results: dict[AclFilter, list[AclBinding] | ClientError] = {
            wanted: _find_error("delete ACLs", result)
            or [_binding(acl, acl) for acl in result.matching_acls]
            for wanted, result in zip(filters, answer.filter_results, strict=True)
        }
        return settle(results)

    async def _ask(self, what: str, call: Call, timeout_ms: int | None) -> Any:
        deadline = self._router.deadline(timeout_ms)
        return await self._router.persist(
            what, deadline, lambda: self._router.ask_any(call, deadline)
        )


def _find_error(what: str, result: Any) -> RefusedByBroker | None:
    code = read_error(result.error_code)
    return RefusedByBroker(what, code, result.error_message) if code else None


def _creation(binding: AclBinding) -> dict[str, Any]:
    (resource, name, kind), (principal, host, operation, permission) = binding
    return {
        "resource_type": resource.value,
        "resource_name": name,
        "resource_pattern_type": kind.value,
        "principal": principal,
        "host": host,
        "operation": operation.value,
        "permission_type": permission.value,
    }


def _filter(wanted: AclFilter) -> dict[str, Any]:
    return {
        "resource_type_filter": wanted.resource_type or _ANY,
        "resource_name_filter": wanted.name,
        "pattern_type_filter": wanted.pattern_type.value,
        "principal_filter": wanted.principal,
        "host_filter": wanted.host,
        "operation": wanted.operation or _ANY,
        "permission_type": wanted.permission or _ANY,
    }


def _binding(resource: Any, acl: Any) -> AclBinding:
    return AclBinding(
        ResourcePattern(
            ResourceType(resource.resource_type),
            resource.resource_name,
            PatternType(resource.pattern_type),
        ),
        AccessControlEntry(
            acl.principal,
            acl.host,
            AclOperation(acl.operation),
            AclPermission(acl.permission_type),
        ),
    )
