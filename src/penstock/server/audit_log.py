"""Writes the audit trail to its topic, and builds the trail from the broker's settings.

Events stay in the trail's buffer until every in-sync replica has them, so one may be written twice
after a lost response; its number tells. Invariant: no event keeps those behind it from being
written: one that the topic is not configured to take is dropped.
"""

import asyncio
from collections.abc import Sequence

from penstock.config.broker_authorization import parse_super_users
from penstock.config.effective_config import EffectiveConfig
from penstock.inter_broker.audit_appends import AuditAppends
from penstock.model.cluster import AUDIT_TOPIC, BrokerId
from penstock.model.errors import ErrorCode
from penstock.protocol.records import Record, build_batch
from penstock.security.audit.events import AuditSource
from penstock.security.audit.trail import (
    AuditConfig,
    AuditEventType,
    AuditTrail,
)
from penstock.server.broker_parts import BrokerParts
from penstock.server.broker_statistics import find_version
from penstock.server.context import BrokerContext
from penstock.server.coordinator_log import ReplicatedCoordinatorLog

BATCH_BYTES = 256 * 1024  # of events; a batch has them within every topic's max.message.bytes
RETRY_S = 0.5
CLOSE_TIMEOUT_S = 2.0  # of a stopping broker for events that are not written yet


def build_trail(config: EffectiveConfig, cluster_id: str, broker_id: BrokerId) -> AuditTrail:
    return AuditTrail(
        AuditConfig(
            events=frozenset(map(AuditEventType, config.get_list("penstock.audit.events"))),
            excluded_principals=parse_super_users(
                config.find_str("penstock.audit.excluded.principals")
            ),
            excluded_topics=frozenset(config.get_list("penstock.audit.excluded.topics")),
            buffer_bytes=config.get_int("penstock.audit.buffer.bytes"),
        ),
        AuditSource(find_version(), cluster_id, broker_id),
    )


class AuditLog:
    """Owned by the event loop; `run` is its task, and `close` ends it."""

    def __init__(self, trail: AuditTrail, context: BrokerContext, parts: BrokerParts) -> None:
        self._trail = trail
        self._wall_ms = context.wall_ms
        self._logs_ready = context.logs_ready
        self._logger = context.get_logger("security")
        self._topic = ReplicatedCoordinatorLog(
            AUDIT_TOPIC,
            replication_factor="penstock.audit.topic.replication.factor",
            administration=parts.links.administration,
            context=context,
        )
        self._appends = AuditAppends(
            context.broker_id,
            metadata=context.metadata,
            replicas=context.replicas,
            brokers=parts.links.open_connections(),
        )
        self._batch_bytes = BATCH_BYTES
        self._task: asyncio.Task[None] | None = None
        self._dropped = 0  # as the log has said last
        self._failure: ErrorCode = ErrorCode.NONE  # likewise

    def start(self, tasks: asyncio.TaskGroup) -> None:
        self._task = tasks.create_task(self._run(), name="audit")

    async def close(self) -> None:
        """Write what there is, within a limit of time."""
        if self._task is None:
            return
        self._task.cancel()
        await asyncio.wait((self._task,))
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                while self._trail.statistics().pending and await self._try_write():
                    pass
        except TimeoutError:
            pass
        left = self._trail.statistics().pending
        if left:
            self._trail.remove(left, are_written=False)
        self._report_dropped()

    async def _run(self) -> None:
        await self._logs_ready.wait()
        while True:
            await self._trail.wait()
            if not await self._try_write():
                await asyncio.sleep(RETRY_S)
            self._report_dropped()

    async def _try_write(self) -> bool:
        """One batch. False: nothing has come of it, or it is not known."""
        code = await self._topic.ensure_topic()
        if code is ErrorCode.NONE:
            events = self._trail.peek(self._batch_bytes)
            now_ms = self._wall_ms()
            records = [Record(number, now_ms, None, event) for number, event in enumerate(events)]
            code = await self._appends.append(build_batch(records))
            if code is ErrorCode.NONE:
                self._trail.remove(len(events))
                self._batch_bytes = min(2 * self._batch_bytes, BATCH_BYTES)
            elif code is ErrorCode.MESSAGE_TOO_LARGE:
                self._shrink(events)
                return True
        self._report_failure(code)
        return code is ErrorCode.NONE

    def _shrink(self, events: Sequence[bytes]) -> None:
        """Somebody has lowered max.message.bytes of the topic."""
        if len(events) == 1:
            self._trail.remove(1, are_written=False)
        else:
            self._batch_bytes = sum(map(len, events)) // 2

    def _report_failure(self, code: ErrorCode) -> None:
        """Once, until it has changed."""
        if code is not self._failure and code is not ErrorCode.NONE:
            self._logger.warning(
                "audit_not_written",
                f"audit events cannot be written to {AUDIT_TOPIC}: {code.name}; they wait in "
                "memory, and are dropped above penstock.audit.buffer.bytes",
                error=code.name,
            )
        self._failure = code

    def _report_dropped(self) -> None:
        dropped = self._trail.statistics().dropped
        if dropped > self._dropped:
            self._logger.error(
                "audit_dropped",
                f"{dropped - self._dropped} audit events were dropped, because they could not be "
                "written in time",
                count=dropped - self._dropped,
            )
            self._dropped = dropped
