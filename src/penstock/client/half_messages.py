"""HalfMessages: records that consumers see if, and only if, the local work beside them is done.

Plain produce and consume on the half topics (docs/half_messages.md), so that any Kafka client can
do the same. Whatever is lost here, the brokers ask about later: a thread answers them by `check`.
"""

import logging
import threading
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from types import TracebackType
from typing import Any, Literal, NamedTuple, Self, get_args

from penstock.client.admin_values import ConfigResource
from penstock.client.blocking_admin import Admin
from penstock.client.consumer import Consumer
from penstock.client.errors import ClientError, InvalidConfig, RefusedByBroker
from penstock.client.message import Message
from penstock.client.producer import Producer
from penstock.client.record_delays import with_delay
from penstock.model.errors import ErrorCode
from penstock.protocol.half_headers import (
    CHECKS_SUFFIX,
    DECISIONS_SUFFIX,
    HALF_CHECK,
    HALF_GROUP,
    HALF_ID,
    HALF_RECORDS,
    HALF_SUFFIX,
    HALF_TOPIC,
    MAX_HALF_ID_BYTES,
    without_half_headers,
)

Decision = Literal["commit", "rollback", "unknown"]

_GROUPS = "penstock.half.groups"
_POLL_S = 0.2
_RETRY_S = 1.0
_log = logging.getLogger("penstock.half_messages")


class HalfRecord(NamedTuple):
    """One of the records that are committed together."""

    topic: str
    value: bytes | str | None
    key: bytes | str | None = None
    headers: Mapping[str, bytes | None] | Iterable[tuple[str, bytes | None]] | None = None


class HalfCheck(NamedTuple):
    """A half that nobody has decided about: was its local work done?"""

    half_id: str
    topic: str
    key: bytes | None  # always the half id; the record's own key is not told
    value: bytes | None  # of the first record of the id
    headers: tuple[tuple[str, bytes | None], ...]
    number: int  # of this check, from 1 on
    records: int  # of the id


class HalfMessages:
    """Sends half messages, and answers the brokers' checks on those of its group.

    `check` gets a HalfCheck and says what became of the local work, "commit", "rollback" or
    "unknown" (ask again later). It runs on a thread of its own, in any process of the group: also
    for halves of processes that are gone. None: this process only sends.
    """

    def __init__(
        self,
        topic: str,
        *,
        bootstrap_servers: str,
        group: str,
        check: Callable[[HalfCheck], Decision] | None = None,
        timeout_s: float = 30.0,
        config: Mapping[str, Any] | None = None,
    ) -> None:
        """`timeout_s`: how long `send` waits for a half to be stored. `config`: librdkafka settings
        of the producer and the consumer."""
        self.topic = topic
        self.group = group
        self._timeout_s = timeout_s
        self._new_admin = partial(
            Admin, bootstrap_servers, timeout_s=timeout_s, config=config and dict(config)
        )
        self._checked: set[str] = set()  # topics that take halves of the group
        self._producer = Producer(
            bootstrap_servers, client_id="penstock-half-messages", config=config
        )
        self._checker: _Checker | None = None
        if check is not None:
            consumer = Consumer(
                group + CHECKS_SUFFIX,
                bootstrap_servers=bootstrap_servers,
                group=group,
                from_beginning=True,
                auto_commit=False,
                config=config,
            )
            self._checker = _Checker(consumer, self.decide, check)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def send(
        self,
        value: bytes | str | None,
        *,
        local: Callable[[], Decision],
        key: bytes | str | None = None,
        headers: Mapping[str, bytes | None] | Iterable[tuple[str, bytes | None]] | None = None,
        half_id: str | None = None,
        deliver_at: datetime | None = None,
        delay_s: float | None = None,
    ) -> Decision:
        """Store a half, do the local work, and decide as that says; returns the decision.

        If the half cannot be stored, the work is not done: SendFailed. If `local` raises, the half
        stays undecided until a check. A delay counts from the commit.
        """
        record = HalfRecord(self.topic, value, key, headers)
        return self.send_all(
            [record], local=local, half_id=half_id, deliver_at=deliver_at, delay_s=delay_s
        )

    def send_all(
        self,
        records: Sequence[HalfRecord],
        *,
        local: Callable[[], Decision],
        half_id: str | None = None,
        deliver_at: datetime | None = None,
        delay_s: float | None = None,
    ) -> Decision:
        """The same for several records, of one or several topics of the group: all or none."""
        if not records:
            raise ValueError("there are no records to send")
        for topic in {record.topic for record in records} - self._checked:
            self._check_topic(topic)
        half_id = half_id or str(uuid.uuid4())
        if not 0 < len(half_id.encode()) <= MAX_HALF_ID_BYTES:
            raise ValueError(f"a half id has 1 to {MAX_HALF_ID_BYTES} bytes")
        own = [(HALF_ID, half_id.encode()), (HALF_GROUP, self.group.encode())]
        futures = []
        for record in records:
            given = with_delay(
                record.headers, deliver_at=deliver_at, delay_s=delay_s, delay_id=None
            )
            futures.append(
                self._producer.send(
                    record.topic + HALF_SUFFIX,
                    record.value,
                    key=record.key,
                    headers=[*(given or ()), *own],
                )
            )
        for future in futures:
            future.result(self._timeout_s)
        decision = _checked(local())
        if decision != "unknown":
            self._decide_or_leave(records[0].topic, half_id, decision)
        return decision

    def _check_topic(self, topic: str) -> None:
        """Where topics are created by themselves, a wrong name would be an ordinary topic: the
        local work would be done, and its record never delivered."""
        name = topic + HALF_SUFFIX
        resource = ConfigResource.topic(name)
        with self._new_admin() as admin:
            try:
                entry = admin.describe_configs(resource, names=[_GROUPS])[resource][_GROUPS]
            except RefusedByBroker as error:
                if error.code is not ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                    raise
                _log.warning("the groups of topic %s may not be read, and are not checked", name)
            else:
                if self.group not in (part.strip() for part in (entry.value or "").split(",")):
                    raise InvalidConfig(
                        f"topic {name}",
                        ErrorCode.INVALID_CONFIG,
                        f"group {self.group!r} is not in its {_GROUPS}; "
                        f"see `penstock topic create {topic} --half --half-group {self.group}`",
                    )
        self._checked.add(topic)

    def decide(
        self, half_id: str, decision: Literal["commit", "rollback"], *, topic: str | None = None
    ) -> None:
        """Store a decision; the first one on an id counts."""
        self._producer.send_and_wait(
            (topic or self.topic) + DECISIONS_SUFFIX,
            decision,
            key=half_id,
            headers={HALF_GROUP: self.group.encode()},
            timeout_s=self._timeout_s,
        )

    def _decide_or_leave(
        self, topic: str, half_id: str, decision: Literal["commit", "rollback"]
    ) -> None:
        """The local work is done, so that a decision that is lost is no failure: a check asks."""
        try:
            self.decide(half_id, decision, topic=topic)
        except ClientError as error:
            _log.warning("half %s: %s is not stored, a check asks: %s", half_id, decision, error)

    def close(self) -> None:
        if self._checker is not None:
            self._checker.close()
        self._producer.close()


class _Checker:
    """Answers checks until it is closed. Owned by HalfMessages."""

    def __init__(
        self,
        consumer: Consumer,
        decide: Callable[..., None],
        check: Callable[[HalfCheck], Decision],
    ) -> None:
        self._consumer = consumer
        self._decide = decide
        self._check = check
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="penstock half checks", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._stopping.set()
        self._thread.join()
        self._consumer.close()

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                messages = self._consumer.poll_batch(100, _POLL_S)
                for message in messages:
                    self._answer(message)
                if messages:
                    self._consumer.commit()  # from now on these checks count
            except ClientError as error:
                _log.warning("checks are not answered, trying again: %s", error)
                self._stopping.wait(_RETRY_S)

    def _answer(self, message: Message) -> None:
        headers = dict(message.headers)
        half_id, topic = headers.get(HALF_ID), headers.get(HALF_TOPIC)
        if not half_id or not topic:
            _log.warning("offset %s of %s is no check", message.offset, message.topic)
            return
        check = HalfCheck(
            half_id.decode(),
            topic.decode(),
            message.key,
            message.value,
            without_half_headers(message.headers),
            int(headers.get(HALF_CHECK) or 0),
            int(headers.get(HALF_RECORDS) or 0),
        )
        try:
            decision = _checked(self._check(check))
        except Exception:
            _log.exception("the check of half %s failed; it is asked again", check.half_id)
            return
        if decision != "unknown":
            self._decide(check.half_id, decision, topic=check.topic)


def _checked(decision: Decision) -> Decision:
    if decision not in get_args(Decision):
        raise ValueError(f"{decision!r} is no decision; it is commit, rollback or unknown")
    return decision
