"""The authorizer of a broker with access control lists: Kafka's rules, for every request.

It neither stores rules nor logs. Invariant: without a rule, a super user or a setting that says so,
nothing is allowed.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, Self

from penstock.config.broker_authorization import parse_super_users
from penstock.model.acls import AccessControlEntry, ResourcePattern
from penstock.security.acl_index import Access, AclIndex, Decision, Reason
from penstock.security.authorizer import AclOperation, ResourceType
from penstock.security.principal import Caller, Principal

MAX_REMEMBERED = 50_000  # decisions, of some 200 bytes each and a name
MAX_REMEMBERED_NAME = 249  # as long as a topic's; that of a group may have 32,767 characters

_Question = tuple[Principal, str, AclOperation, ResourceType, str]
_AnyQuestion = tuple[Principal, str, AclOperation, ResourceType]


class AuthorizerConfig(NamedTuple):
    super_users: frozenset[str] = frozenset()  # as User:name
    allows_everyone_without_rules: bool = False

    @classmethod
    def from_broker(cls, config: Mapping[str, Any]) -> Self:
        return cls(
            parse_super_users(config["super.users"]), config["allow.everyone.if.no.acl.found"]
        )


class AclAuthorizer:
    """Implements Authorizer. Owned by the event loop's thread."""

    def __init__(self, config: AuthorizerConfig) -> None:
        self._config = config
        self.index = AclIndex()
        self._remembered: dict[_Question, bool] = {}
        # Whether something of a type may be allowed: looking at all rules takes long.
        self._remembered_any: dict[_AnyQuestion, bool] = {}

    def replace(self, pattern: ResourcePattern, entries: Iterable[AccessControlEntry]) -> None:
        """Take these as all rules of the pattern; the next request is decided by them."""
        self.index.replace(pattern, entries)
        self._remembered.clear()
        self._remembered_any.clear()

    def allows(
        self, caller: Caller, operation: AclOperation, resource: ResourceType, name: str
    ) -> bool:
        question = (caller[0], caller[1], operation, resource, name)
        remembered = self._remembered.get(question)
        if remembered is not None:
            return remembered
        if len(self._remembered) >= MAX_REMEMBERED:
            self._remembered.clear()
        is_allowed = self.decide(caller.principal, caller.host, operation, resource, name)[0]
        if len(name) <= MAX_REMEMBERED_NAME:  # clients choose names, and must not fill the memory
            self._remembered[question] = is_allowed
        return is_allowed

    def decide(
        self,
        principal: Principal,
        host: str,
        operation: AclOperation,
        resource: ResourceType,
        name: str,
    ) -> Decision:
        if str(principal) in self._config.super_users:
            return Decision(True, Reason.SUPER_USER)
        return self.index.decide(
            Access(principal, host, operation),
            resource,
            name,
            open_without_rules=self._config.allows_everyone_without_rules,
        )

    def allows_any(self, caller: Caller, operation: AclOperation, resource: ResourceType) -> bool:
        if str(caller.principal) in self._config.super_users:
            return True
        question = (caller.principal, caller.host, operation, resource)
        remembered = self._remembered_any.get(question)
        if remembered is not None:
            return remembered
        if len(self._remembered_any) >= MAX_REMEMBERED:
            self._remembered_any.clear()
        is_allowed = self._remembered_any[question] = self.index.may_be_allowed(
            Access(caller.principal, caller.host, operation),
            resource,
            open_without_rules=self._config.allows_everyone_without_rules,
        )
        return is_allowed

    def names_allowed(
        self, caller: Caller, operation: AclOperation, resource: ResourceType, name: str
    ) -> bool:
        if not self.allows(caller, operation, resource, name):
            return False
        if not self._config.allows_everyone_without_rules:
            return True
        decision = self.decide(caller.principal, caller.host, operation, resource, name)
        return decision.reason is not Reason.NO_RULES_OPEN
