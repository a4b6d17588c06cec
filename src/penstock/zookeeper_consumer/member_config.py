"""What a member is told once: its group, subscription, intervals and where offsets are kept."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.config.zookeeper import ZooKeeperConfig
from penstock.zookeeper_consumer.assignment import RegisteredMember
from penstock.zookeeper_consumer.group_znodes import AssignmentRule, Registration


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberConfig:
    zookeeper: ZooKeeperConfig
    group: str
    consumer_id: str
    registration: Registration
    auto_commit_interval_s: float | None  # None: only when the program asks
    from_beginning: bool
    keeps_in_zookeeper: bool  # offsets; in both: dual commit
    keeps_in_kafka: bool
    max_retries: int
    backoff_s: float
    drain_s: float  # how long a rebalance waits for the message in process
    connect_timeout_s: float
    client_id: str
    bootstrap_servers: str | None = None  # None: as the brokers are registered
    forgets_group: bool = False  # deletes the group's znodes at the end
    config: Mapping[str, Any] = field(default_factory=dict)

    @property
    def rule(self) -> AssignmentRule:
        return self.registration.rule

    @property
    def protocol(self) -> str:
        return str(self.config.get("security.protocol", "plaintext")).upper()

    @property
    def own_member(self) -> RegisteredMember:
        return RegisteredMember(self.consumer_id, self.registration)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberStatistics:
    """Counted since the member was created, over all its sessions."""

    consumer_id: str
    sessions: int  # opened; each after the first follows an expiry
    rebalances: int  # that ended with every claim made
    conflicts: int  # attempts in which another member still owned a partition
    watch_events: int
    zookeeper_requests: int
    commits: int  # of offsets, of one partition each
    owned: frozenset[str]  # the partitions, as topic-partition
