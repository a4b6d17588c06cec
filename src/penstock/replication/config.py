"""How a broker follows, and when a follower lags: its settings, as the room needs them."""

from typing import NamedTuple

from penstock.config.effective_config import EffectiveConfig
from penstock.replication.follower_progress import LagLimits


class FollowerConfig(NamedTuple):
    partition_max_bytes: int
    response_max_bytes: int
    min_bytes: int
    max_wait_ms: int  # at the leader, while there is nothing new
    timeout_ms: int  # of a request
    backoff_ms: int  # after something went wrong

    @classmethod
    def from_broker(cls, settings: EffectiveConfig) -> "FollowerConfig":
        return cls(
            partition_max_bytes=int(str(settings["replica.fetch.max.bytes"])),
            response_max_bytes=int(str(settings["replica.fetch.response.max.bytes"])),
            min_bytes=int(str(settings["replica.fetch.min.bytes"])),
            max_wait_ms=int(str(settings["replica.fetch.wait.max.ms"])),
            timeout_ms=int(str(settings["replica.socket.timeout.ms"])),
            backoff_ms=int(str(settings["replica.fetch.backoff.ms"])),
        )


def lag_limits(settings: EffectiveConfig) -> LagLimits:
    return LagLimits(
        max_ms=int(str(settings["replica.lag.time.max.ms"])),
        max_messages=int(str(settings["replica.lag.max.messages"])),
    )
