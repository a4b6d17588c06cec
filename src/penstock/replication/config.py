"""The broker settings that replication reads, typed: fetching as a follower, lag limits, quotas."""

from typing import NamedTuple, Self

from penstock.config.effective_config import EffectiveConfig
from penstock.replication.follower_progress import LagLimits


class FollowerConfig(NamedTuple):
    partition_max_bytes: int
    response_max_bytes: int
    min_bytes: int
    max_wait_ms: int  # how long the leader may hold a fetch while there is nothing new
    timeout_ms: int  # of a request
    backoff_ms: int  # the longest pause after an error

    @classmethod
    def from_broker(cls, config: EffectiveConfig) -> Self:
        return cls(
            partition_max_bytes=config.get_int("replica.fetch.max.bytes"),
            response_max_bytes=config.get_int("replica.fetch.response.max.bytes"),
            min_bytes=config.get_int("replica.fetch.min.bytes"),
            max_wait_ms=config.get_int("replica.fetch.wait.max.ms"),
            timeout_ms=config.get_int("replica.socket.timeout.ms"),
            backoff_ms=config.get_int("replica.fetch.backoff.ms"),
        )


class ReplicationConfig(NamedTuple):
    follower: FollowerConfig
    lag_limits: LagLimits
    leader_throttled_rate: int  # bytes per second, as the leader
    follower_throttled_rate: int  # bytes per second, as the follower

    @classmethod
    def from_broker(cls, config: EffectiveConfig) -> Self:
        return cls(
            follower=FollowerConfig.from_broker(config),
            lag_limits=LagLimits(
                max_ms=config.get_int("replica.lag.time.max.ms"),
                max_messages=config.get_int("replica.lag.max.messages"),
            ),
            leader_throttled_rate=config.get_int("leader.replication.throttled.rate"),
            follower_throttled_rate=config.get_int("follower.replication.throttled.rate"),
        )
