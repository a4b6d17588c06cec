"""Authorization: every handler calls the authorizer before it acts or reveals anything."""

from typing import Protocol

from penstock.model.acls import CLUSTER_NAME, AclOperation, ResourceType
from penstock.security.principal import Caller

__all__ = ["CLUSTER_NAME", "AclOperation", "AllowAll", "Authorizer", "ResourceType"]


class Authorizer(Protocol):
    def allows(
        self, caller: Caller, operation: AclOperation, resource: ResourceType, name: str
    ) -> bool: ...

    def allows_any(self, caller: Caller, operation: AclOperation, resource: ResourceType) -> bool:
        """Whether there may be a resource of this type on which the caller may do this."""

    def names_allowed(
        self, caller: Caller, operation: AclOperation, resource: ResourceType, name: str
    ) -> bool:
        """Whether the caller is allowed as somebody whom the configuration or a rule names, not as
        anybody for want of rules."""


class AllowAll:
    """The authorizer of a broker without ACLs: everything is allowed."""

    def allows(
        self, caller: Caller, operation: AclOperation, resource: ResourceType, name: str
    ) -> bool:
        return True

    def allows_any(self, caller: Caller, operation: AclOperation, resource: ResourceType) -> bool:
        return True

    def names_allowed(
        self, caller: Caller, operation: AclOperation, resource: ResourceType, name: str
    ) -> bool:
        return False
