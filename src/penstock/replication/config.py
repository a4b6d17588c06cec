"""The broker settings that replication reads, typed: fetching as a follower, lag limits, quotas."""

from typing import NamedTuple, Self

from penstock.config.effective_config import EffectiveConfig
from penstock.config.setting import LONG_MAX
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
    leader_reassignment_rate: int  # bytes per second to replicas that reassignments add
    follower_reassignment_rate: int  # and by them

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
            leader_reassignment_rate=_copy_rate(
                config, config.get_int("leader.reassignment.throttled.rate")
            ),
            follower_reassignment_rate=_copy_rate(
                config, config.get_int("follower.reassignment.throttled.rate")
            ),
        )


def _copy_rate(config: EffectiveConfig, rate: int) -> int:
    """The rate that is set, else that of automatic balancing if the controller may begin
    reassignments by itself."""
    is_replacing = config.get_int("replica.replacement.delay.ms") >= 0
    if rate == LONG_MAX and (is_replacing or config.get_bool("auto.balance.enable")):
        return config.get_int("auto.balance.throttled.rate")
    return rate
