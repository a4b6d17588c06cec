"""What becomes an audit event, and the bounded buffer of those that are not written yet.

Not the topic: `server.audit_log` writes there. Invariant: nobody waits for the trail. What does not
fit into the buffer is dropped and counted.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Any, NamedTuple

from penstock.security.audit.events import (
    MAX_EVENT_BYTES,
    AuditedResource,
    AuditSource,
    AuditStatus,
    authentication,
    change,
    denial,
    encode_event,
    without_details,
)
from penstock.security.principal import Caller

_OVERHEAD_BYTES = 100  # of an event in the buffer, besides its text


class AuditEventType(StrEnum):
    AUTHENTICATION = "authentication"
    DENIED = "denied"
    ADMIN = "admin"


class AuditConfig(NamedTuple):
    events: frozenset[AuditEventType] = frozenset()  # empty: the trail is off
    excluded_principals: frozenset[str] = frozenset()  # as User:name
    excluded_topics: frozenset[str] = frozenset()
    buffer_bytes: int = 0


class AuditStatistics(NamedTuple):
    written: int = 0
    dropped: int = 0  # the buffer was full
    pending: int = 0
    pending_bytes: int = 0


class AuditTrail:
    """Owned by the event loop's thread. `source` and `number_prefix` are set once they are known;
    events before that wait for them in nobody's way: none is taken earlier."""

    def __init__(
        self,
        config: AuditConfig,
        source: AuditSource,
        *,
        wall_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._config = config
        self._source = source
        self._wall_ms = wall_ms
        self._prefix = f"{source.broker_id}-{wall_ms()}"  # of the numbers of this start's events
        self._count = 0
        self._pending: deque[bytes] = deque()
        self._pending_bytes = 0
        self._dropped = self._written = 0
        self._filled = asyncio.Event()
        self.audits_authentication = AuditEventType.AUTHENTICATION in config.events
        self.audits_denied = AuditEventType.DENIED in config.events
        self.audits_changes = AuditEventType.ADMIN in config.events

    # -- what is noted -----------------------------------------------------------------------

    def note_authentication(self, caller: Caller, mechanism: str, error: str | None = None) -> None:
        """`mechanism`: TLS, or one of SASL. `error`: why it failed, in words that name no secret;
        the caller's principal then counts for nothing."""
        if self.audits_authentication and (error is not None or self._includes(caller)):
            self._add(authentication(caller, mechanism, error), is_strangers=error is not None)

    def note_denied(
        self, caller: Caller, request: str, operation: str, resource: AuditedResource, rule: str
    ) -> None:
        if self.audits_denied and self._includes(caller) and self._includes_any((resource,)):
            self._add(denial(caller, request, operation, resource, rule))

    def note_change(
        self,
        caller: Caller,
        request: str,
        activity: str,
        resources: Sequence[AuditedResource],
        status: AuditStatus,
    ) -> None:
        if self.audits_changes and self._includes(caller) and self._includes_any(resources):
            self._add(change(caller, request, activity, resources, status))

    def _includes(self, caller: Caller) -> bool:
        excluded = self._config.excluded_principals
        return not excluded or str(caller.principal) not in excluded

    def _includes_any(self, resources: Sequence[AuditedResource]) -> bool:
        """Whether there is a resource that is no excluded topic, or none at all."""
        excluded = self._config.excluded_topics
        if not excluded or not resources:
            return True
        return any(
            resource.type != "topic" or resource.name not in excluded for resource in resources
        )

    def _add(self, event: Mapping[str, Any], *, is_strangers: bool = False) -> None:
        self._count += 1
        number = f"{self._prefix}-{self._count}"
        encoded = encode_event(event, self._source, number, self._wall_ms())
        if len(encoded) > MAX_EVENT_BYTES:
            event = without_details(event)
            encoded = encode_event(event, self._source, number, self._wall_ms())
        size = len(encoded) + _OVERHEAD_BYTES
        # Whoever has no account must not crowd out what is audited of those who have one.
        limit = self._config.buffer_bytes // 2 if is_strangers else self._config.buffer_bytes
        if self._pending_bytes + size > limit:
            self._dropped += 1
            return
        self._pending.append(encoded)
        self._pending_bytes += size
        self._filled.set()

    # -- what is written ---------------------------------------------------------------------

    async def wait(self) -> None:
        """Until there is an event."""
        await self._filled.wait()

    def peek(self, max_bytes: int) -> list[bytes]:
        """The oldest events, one at least; they stay until `remove`."""
        events: list[bytes] = []
        for event in self._pending:
            max_bytes -= len(event)
            if events and max_bytes < 0:
                break
            events.append(event)
        return events

    def remove(self, count: int, *, are_written: bool = True) -> None:
        """The oldest events: they are written, or never can be."""
        for _ in range(count):
            self._pending_bytes -= len(self._pending.popleft()) + _OVERHEAD_BYTES
        if are_written:
            self._written += count
        else:
            self._dropped += count
        if not self._pending:
            self._filled.clear()

    def statistics(self) -> AuditStatistics:
        return AuditStatistics(
            self._written, self._dropped, len(self._pending), self._pending_bytes
        )


NO_AUDIT = AuditTrail(AuditConfig(), AuditSource("", "", -1))
