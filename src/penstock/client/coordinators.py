"""Finds the coordinator of a group or of a transactional id, and retries requests to it.

Coordinators are cached, and dropped from the cache as soon as a request fails.
"""

import enum
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from penstock.client.address import Address
from penstock.client.call import Call
from penstock.client.deadline import Deadline
from penstock.client.errors import ClientError, RefusedByBroker
from penstock.client.metadata import BrokerMetadata, read_error
from penstock.client.router import Router
from penstock.model.cluster import BrokerId
from penstock.protocol.api_keys import ApiKey

_Answer = TypeVar("_Answer")


class CoordinatorKind(enum.IntEnum):
    """The key types of FindCoordinator, with its numbers."""

    GROUP = 0
    TRANSACTION = 1


class Coordinators:
    """Finds coordinators of one kind."""

    def __init__(self, router: Router, kind: CoordinatorKind) -> None:
        self._router = router
        self._kind = kind
        self._cached: dict[str, BrokerMetadata] = {}

    async def find(self, name: str, *, timeout_ms: int | None) -> BrokerMetadata:
        """Look the coordinator up now, bypassing the cache."""
        deadline = self._router.deadline(timeout_ms)
        return await self._router.persist(
            self._what(name), deadline, lambda: self._find(name, deadline)
        )

    async def persist(
        self,
        what: str,
        name: str,
        ask: Callable[[BrokerMetadata, Deadline], Awaitable[_Answer]],
        timeout_ms: int | None,
    ) -> _Answer:
        """Look the coordinator up again after every failure, until `ask` succeeds, fails for good,
        or the deadline passes."""
        deadline = self._router.deadline(timeout_ms)

        async def attempt() -> _Answer:
            node = self._cached.get(name) or await self._find(name, deadline)
            try:
                return await ask(node, deadline)
            except ClientError:
                self._cached.pop(name, None)
                raise

        return await self._router.persist(what, deadline, attempt)

    async def _find(self, name: str, deadline: Deadline) -> BrokerMetadata:
        answer = await self._router.ask_any(find_coordinator_call(self._kind, name), deadline)
        node = read_coordinator(self._what(name), answer)
        self._cached[name] = node
        return node

    def _what(self, name: str) -> str:
        kind = "group" if self._kind is CoordinatorKind.GROUP else "transactional id"
        return f"find the coordinator of {kind} {name!r}"


def find_coordinator_call(kind: CoordinatorKind, name: str) -> Call:
    fields = {"key": name, "key_type": kind, "coordinator_keys": [name]}
    lowest = 0 if kind is CoordinatorKind.GROUP else 1  # version 0 supports only groups
    return Call(ApiKey.FIND_COORDINATOR, range(lowest, 5), fields)


def read_coordinator(what: str, answer: Any) -> BrokerMetadata:
    coordinator = answer.coordinators[0] if hasattr(answer, "coordinators") else answer
    code = read_error(coordinator.error_code)
    if code:
        raise RefusedByBroker(what, code, getattr(coordinator, "error_message", None))
    return BrokerMetadata(
        BrokerId(coordinator.node_id), Address(coordinator.host, coordinator.port)
    )
