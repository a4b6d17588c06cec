"""The broker settings that request handlers read, typed. No topic settings here."""

from typing import NamedTuple, Self

from penstock.config.effective_config import EffectiveConfig
from penstock.replication.replica_selector import is_rack_aware


class ApiConfig(NamedTuple):
    fetch_max_bytes: int
    is_rack_aware: bool  # consumers may fetch from a follower in their rack (KIP-392)
    num_partitions: int
    default_replication_factor: int
    request_timeout_ms: int
    auto_creates_topics: bool
    deletes_topics: bool
    max_described_partitions: int  # of one DescribeTopicPartitions response
    verifies_transactions: bool
    log_dirs: tuple[str, ...]
    max_group_protocols: int  # of one JoinGroup
    max_group_entries: int  # topics of one heartbeat, assignments of one SyncGroup
    max_owned_partitions: int  # of one heartbeat
    max_request_bytes: int  # of one request other than Produce
    max_frame_bytes: int  # of any request
    slow_request_ms: int
    max_request_elements: int  # of one request: entries of its arrays, at any depth

    @classmethod
    def from_broker(cls, config: EffectiveConfig) -> Self:
        return cls(
            fetch_max_bytes=config.get_int("fetch.max.bytes"),
            is_rack_aware=is_rack_aware(config.find_str("replica.selector.class")),
            num_partitions=config.get_int("num.partitions"),
            default_replication_factor=config.get_int("default.replication.factor"),
            request_timeout_ms=config.get_int("request.timeout.ms"),
            auto_creates_topics=config.get_bool("auto.create.topics.enable"),
            deletes_topics=config.get_bool("delete.topic.enable"),
            max_described_partitions=config.get_int("max.request.partition.size.limit"),
            verifies_transactions=config.get_bool("transaction.partition.verification.enable"),
            log_dirs=config.get_list("log.dirs"),
            max_group_protocols=config.get_int("group.member.max.protocols"),
            max_group_entries=config.get_int("group.request.max.entries"),
            max_owned_partitions=config.get_int("group.member.max.partitions"),
            max_request_bytes=config.get_int("penstock.request.max.bytes"),
            max_frame_bytes=config.get_int("socket.request.max.bytes"),
            slow_request_ms=config.get_int("logging.slow.request.ms"),
            max_request_elements=config.get_int("penstock.request.max.elements"),
        )
