"""`penstock.ZooKeeperConsumer`: reads like `penstock.Consumer`, in a group in ZooKeeper.

Not a client of the group coordinator: no broker knows the group. Two threads: the program's reads,
the membership's keeps the session, rebalances and commits.
"""

import socket
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Literal, Self

from penstock.client.errors import ClientClosed, ZooKeeperUnavailable
from penstock.client.message import Message
from penstock.config.zookeeper import ZooKeeperConfig
from penstock.config.zookeeper_security import OPEN, ZooKeeperSecurity
from penstock.metadata_store.errors import InvalidPath, ZooKeeperMissing
from penstock.metadata_store.paths import check_path
from penstock.model.ids import TopicPartition, check_topic_name
from penstock.zookeeper_consumer.group_znodes import (
    AssignmentRule,
    Registration,
    SubscriptionPattern,
    member_path,
)
from penstock.zookeeper_consumer.member_config import MemberConfig, MemberStatistics
from penstock.zookeeper_consumer.silence import ZooKeeperSilence
from penstock.zookeeper_consumer.topic_filter import parse_list, white_list_of

_SLICE_S = 0.5  # between looks at what the membership does
_DRAIN_S = 1.0


class ZooKeeperConsumer:
    """Reads the partitions that it owns in ZooKeeper; iterate it, or call `poll_batch`. One thread
    reads; any thread may `close` it."""

    def __init__(
        self,
        topics: str | Sequence[str] | None = None,
        *,
        zookeeper: str,
        group: str,
        white_list: str | None = None,
        black_list: str | None = None,
        exclude_internal_topics: bool = True,
        assignment: Literal["range", "ceil-range"] = "range",
        from_beginning: bool = False,
        auto_commit: bool = True,
        auto_commit_interval_s: float = 60.0,
        offsets_storage: Literal["zookeeper", "kafka"] = "zookeeper",
        dual_commit: bool | None = None,
        rebalance_max_retries: int = 4,
        rebalance_backoff_s: float = 2.0,
        session_timeout_s: float = 6.0,
        connect_timeout_s: float = 10.0,
        isolation: Literal["read_uncommitted", "read_committed"] = "read_uncommitted",
        timeout_s: float | None = None,
        consumer_id: str | None = None,
        bootstrap_servers: str | None = None,
        client_id: str = "penstock-zookeeper-consumer",
        config: Mapping[str, Any] | None = None,
        zookeeper_config: Mapping[str, Any] | None = None,
        delete_group: bool = False,
    ) -> None:
        """Joins the group, and returns when it is registered.

        `topics` and `white_list` add up; a comma in a list means "or", and a list matches whole
        names. `black_list`: every topic that it does not match. `assignment`: "range" is Kafka
        0.8.2's; "ceil-range" rounds every share up; all members use the same. `from_beginning`:
        applies where the group has no offset. `dual_commit`: also to ZooKeeper when
        `offsets_storage` is "kafka", as is the default then. `timeout_s`: iteration ends after this
        long without a message, rebalances not counted. `consumer_id`: instead of one made of host,
        time and a random part. `bootstrap_servers`: instead of the brokers' addresses in ZooKeeper.
        `config`: librdkafka settings under their own names. `zookeeper_config`: TLS and login at
        ZooKeeper, by the brokers' names (`zookeeper.ssl.…`). `delete_group`: its znodes go when
        this member does, if it is the last."""
        registration = _registration(
            [topics] if isinstance(topics, str) else list(topics or []),
            white_list,
            black_list,
            AssignmentRule(assignment),
            with_internal=not exclude_internal_topics,
        )
        in_kafka = offsets_storage == "kafka"
        _check_offsets(offsets_storage, dual_commit)
        if rebalance_max_retries < 0:
            raise ValueError(f"rebalance_max_retries is {rebalance_max_retries}; 0 or more")
        self.group = group
        self._timeout_s = timeout_s
        self._connect_timeout_s = connect_timeout_s
        self._silence = ZooKeeperSilence(connect_timeout_s)
        self._auto_commits = auto_commit
        self._is_closed = False
        member = MemberConfig(
            zookeeper=ZooKeeperConfig.parse(
                zookeeper,
                session_timeout_ms=_milliseconds("session_timeout_s", session_timeout_s),
                connection_timeout_ms=_milliseconds("connect_timeout_s", connect_timeout_s),
                security=_security(zookeeper, zookeeper_config),
            ),
            group=group,
            consumer_id=_consumer_id(group, consumer_id),
            registration=registration,
            auto_commit_interval_s=_positive("auto_commit_interval_s", auto_commit_interval_s)
            if auto_commit
            else None,
            from_beginning=from_beginning,
            keeps_in_kafka=in_kafka,
            keeps_in_zookeeper=not in_kafka or dual_commit is not False,
            max_retries=rebalance_max_retries,
            backoff_s=_positive("rebalance_backoff_s", rebalance_backoff_s),
            drain_s=min(_DRAIN_S, rebalance_backoff_s),
            connect_timeout_s=connect_timeout_s,
            client_id=client_id,
            bootstrap_servers=bootstrap_servers,
            forgets_group=delete_group,
            config={"isolation.level": isolation, **(config or {})},
        )
        try:
            from penstock.zookeeper_consumer.membership import GroupMembership
        except ZooKeeperMissing as missing:
            raise ZooKeeperUnavailable(
                f"ZooKeeperConsumer needs kazoo ({missing.__cause__}); pip install "
                f"'penstock[cluster]'"
            ) from missing
        self._membership = GroupMembership(member)
        self._membership.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        reader = self._membership.reader
        if error is not None and reader is not None:
            reader.drop_current()  # its processing failed, so it must be read again
        self.close()

    def __iter__(self) -> Iterator[Message]:
        return self

    def __next__(self) -> Message:
        messages = self._read(1, self._timeout_s)
        if messages:
            return messages[0]
        with suppress(ClientClosed):  # by another thread: the iteration ends
            self.check_reachable()
        raise StopIteration

    def poll_batch(self, max_messages: int, timeout_s: float | None = None) -> list[Message]:
        """Return up to `max_messages`; waits only for the first one. Empty after the timeout, in
        which rebalances do not count, or when the consumer was closed meanwhile."""
        return self._read(max_messages, timeout_s)

    def wait_for_assignment(self) -> None:
        """Wait until the first rebalance has ended, at most `connect_timeout_s`."""
        deadline = time.monotonic() + self._connect_timeout_s
        while not self.statistics().rebalances and not self._is_closed:
            self._membership.raise_failure()
            if time.monotonic() > deadline:
                return
            time.sleep(0.01)

    def commit(self) -> None:
        """Commit every message returned so far, and wait for the response. Partitions that another
        member has taken over are left to it."""
        self._check_open()
        if self._membership.reader is not None:
            self._membership.reader.finish_current()
        self._membership.commit()

    def assignment(self) -> set[TopicPartition]:
        """The partitions that this member owns at the moment."""
        self._check_open()
        return self._membership.owned()

    def statistics(self) -> MemberStatistics:
        return self._membership.statistics()

    def check_reachable(self) -> None:
        """Raise ConsumeFailed unless ZooKeeper and a broker answer, and if a damaged batch is the
        reason why nothing comes."""
        self._check_open()
        self._membership.raise_failure()
        self._check_zookeeper()
        reader = self._membership.reader
        topic = min((tp.topic for tp in self._membership.owned()), default=None)
        if reader is not None and topic is not None:
            reader.check_reachable(topic, self._connect_timeout_s)

    def close(self) -> None:
        """Leave the group. With auto_commit, returned messages are committed."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._membership.reader is not None:
            self._membership.reader.finish_current()
        self._membership.close()

    # Reading.

    def _read(self, max_messages: int, timeout_s: float | None) -> list[Message]:
        self._check_open()
        idle_s = 0.0
        while not self._is_closed:
            self._membership.raise_failure()
            left_s = _SLICE_S if timeout_s is None else min(_SLICE_S, timeout_s - idle_s)
            began_s = time.monotonic()
            messages, was_active = self._read_for(max_messages, max(0.0, left_s))
            if messages:
                self._silence.end()
                return messages
            waited_s = time.monotonic() - began_s
            if was_active:
                self._silence.end()
                idle_s += waited_s
            elif timeout_s is not None:
                self._check_silence(waited_s)
            if timeout_s is not None and was_active and idle_s >= timeout_s:
                return []
        return []

    def _read_for(self, max_messages: int, wait_s: float) -> tuple[list[Message], bool]:
        reader = self._membership.reader
        if reader is None:
            time.sleep(min(wait_s, 0.01))
            return [], False
        return reader.read(max_messages, wait_s)

    def _check_silence(self, waited_s: float) -> None:
        if self._membership.unconfirmed_s() <= 0:
            self._silence.end()
        elif self._silence.is_over_limit(waited_s):
            self._check_zookeeper()

    def _check_zookeeper(self) -> None:
        if self._membership.unconfirmed_s() > self._connect_timeout_s:
            raise ZooKeeperUnavailable(
                f"group {self.group!r}: ZooKeeper has not answered for the session timeout and "
                f"{self._connect_timeout_s:g} s more, so that nothing can be read; start it again"
            )

    def _check_open(self) -> None:
        if self._is_closed:
            raise ClientClosed("the consumer is closed; create a new one to read more")


def _registration(
    topics: list[str],
    white_list: str | None,
    black_list: str | None,
    rule: AssignmentRule,
    *,
    with_internal: bool,
) -> Registration:
    """One subscription, because a member registers only one; ValueError."""
    for topic in topics:
        check_topic_name(topic)
    if black_list is not None and (topics or white_list is not None):
        raise ValueError(
            "a black list reads every topic that it does not match; leave out topics and white_list"
        )
    if black_list is not None:
        pattern = SubscriptionPattern.BLACK_LIST
        names = [parse_list(black_list, "black_list")]
    elif white_list is not None:
        pattern = SubscriptionPattern.WHITE_LIST
        names = [white_list_of(topics, parse_list(white_list, "white_list"))]
    elif topics:
        pattern, names = SubscriptionPattern.STATIC, topics
    else:
        raise ValueError("a consumer needs a topic to read; name one, or a white or black list")
    return Registration(
        pattern=pattern,
        subscription=dict.fromkeys(names, 1),
        rule=rule,
        with_internal=with_internal,
        timestamp_ms=time.time_ns() // 1_000_000,
    )


def _check_offsets(storage: str, dual_commit: bool | None) -> None:
    if storage not in ("zookeeper", "kafka"):
        raise ValueError(f"offsets_storage is {storage!r}; it is 'zookeeper' or 'kafka'")
    if dual_commit and storage != "kafka":
        raise ValueError("dual_commit goes with offsets_storage='kafka': it commits to both")


def _security(connect: str, settings: Mapping[str, Any] | None) -> ZooKeeperSecurity:
    if not settings:
        return OPEN
    from penstock.config.zookeeper_settings import parse_zookeeper_security

    return parse_zookeeper_security(settings, connect=connect, where="zookeeper_config")


def _consumer_id(group: str, given: str | None) -> str:
    """Kafka's form; ValueError if group or id cannot be names of znodes."""
    if not group:
        raise ValueError("group is empty; name the group that this consumer joins")
    random_part = uuid.uuid4().hex[:8]
    own = given or f"{socket.gethostname()}-{time.time_ns() // 1_000_000}-{random_part}"
    for what, text in (("group", group), ("consumer_id", own)):
        try:
            check_path(f"/{text}")
        except InvalidPath as error:
            raise ValueError(f"{what} {text!r} cannot be the name of a znode: {error}") from error
        if "/" in text:
            raise ValueError(f"{what} {text!r} has a slash, which a znode's name cannot have")
    check_path(member_path(group, f"{group}_{own}"))
    return f"{group}_{own}"


def _milliseconds(name: str, seconds: float) -> int:
    return max(1, round(_positive(name, seconds) * 1000))


def _positive(name: str, seconds: float) -> float:
    if not seconds > 0:
        raise ValueError(f"{name} is {seconds}; it must be more than 0")
    return seconds
