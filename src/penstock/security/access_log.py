"""The log of the authorizer's decisions, with Kafka's fields: denied ones INFO, allowed ones DEBUG.

Not of decisions that only say what is shown: a client that lists topics is refused nothing.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from penstock.logs.event_logger import NO_LOGGER, EventLogger
from penstock.logs.levels import DEBUG
from penstock.logs.rate_limit import RateLimitedLogger
from penstock.model.acls import kafka_word
from penstock.security.audit.events import AuditedResource
from penstock.security.audit.trail import NO_AUDIT, AuditTrail
from penstock.security.authorizer import AclOperation, ResourceType
from penstock.security.principal import Caller, Principal

if TYPE_CHECKING:
    from penstock.security.acl_index import Decision

Decide = Callable[[Principal, str, AclOperation, ResourceType, str], "Decision"]


class AccessLog:
    """One broker's. A principal that is refused over and over is logged now and then."""

    def __init__(
        self,
        logger: EventLogger = NO_LOGGER,
        limited: RateLimitedLogger | None = None,
        decide: Decide | None = None,
        audit: AuditTrail = NO_AUDIT,
    ) -> None:
        self._audit = audit
        self._logger = logger
        self._limited = limited  # None: nothing is logged
        self._decide = decide  # for the rule behind a decision
        self.denied = 0  # since the start

    @property
    def shows_allowed(self) -> bool:
        return self._limited is not None and self._logger.is_enabled(DEBUG)

    def note_denied(
        self,
        caller: Caller,
        operation: AclOperation,
        resource: ResourceType,
        name: str,
        request: str,
    ) -> None:
        self.denied += 1
        if self._audit.audits_denied:
            rule = self._find_rule(caller, operation, resource, name) or "authorizer"
            audited = AuditedResource(kafka_word(resource).lower(), name)
            self._audit.note_denied(caller, request, kafka_word(operation), audited, rule)
        if self._limited is not None:
            fields = self._fields(caller, operation, resource, name, request)
            peer = f"{caller.principal} {caller.host}"
            message = _describe("denied", fields)
            self._limited.info("access_denied", peer, message, **fields)

    def note_allowed(
        self,
        caller: Caller,
        operation: AclOperation,
        resource: ResourceType,
        name: str,
        request: str,
    ) -> None:
        fields = self._fields(caller, operation, resource, name, request)
        self._logger.debug("access_allowed", _describe("allowed", fields), **fields)

    def _fields(
        self,
        caller: Caller,
        operation: AclOperation,
        resource: ResourceType,
        name: str,
        request: str,
    ) -> dict[str, object]:
        fields: dict[str, object] = {
            "principal": str(caller.principal),
            "operation": kafka_word(operation),
            "host": caller.host,
            "listener": caller.listener,
            "resource": f"{kafka_word(resource)}:LITERAL:{name}",
            "request": request,
        }
        rule = self._find_rule(caller, operation, resource, name)
        if rule is not None:
            fields["rule"] = rule
        return fields

    def _find_rule(
        self, caller: Caller, operation: AclOperation, resource: ResourceType, name: str
    ) -> str | None:
        if self._decide is None:
            return None
        decision = self._decide(caller.principal, caller.host, operation, resource, name)
        return str(decision.rule or decision.reason.value)


def _describe(outcome: str, fields: dict[str, object]) -> str:
    rule = f" ({fields['rule']})" if "rule" in fields else ""
    return (
        f"{fields['principal']} from {fields['host']} is {outcome} {fields['operation']} on "
        f"{fields['resource']} for {fields['request']}{rule}"
    )
