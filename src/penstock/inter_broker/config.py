"""The broker settings for requests to other brokers, typed. Values only, already checked."""

from dataclasses import dataclass
from typing import Self

from penstock.config.effective_config import EffectiveConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class InterBrokerConfig:
    """A field's default is the declared setting's default."""

    request_timeout_ms: int = 30_000
    controller_socket_timeout_ms: int = 30_000
    controlled_shutdown_enable: bool = True
    controlled_shutdown_max_retries: int = 3
    controlled_shutdown_retry_backoff_ms: int = 5_000
    add_partitions_retry_backoff_ms: int = 20
    add_partitions_retry_backoff_max_ms: int = 100

    @classmethod
    def from_broker(cls, config: EffectiveConfig) -> Self:
        return cls(
            request_timeout_ms=config.get_int("request.timeout.ms"),
            controller_socket_timeout_ms=config.get_int("controller.socket.timeout.ms"),
            controlled_shutdown_enable=config.get_bool("controlled.shutdown.enable"),
            controlled_shutdown_max_retries=config.get_int("controlled.shutdown.max.retries"),
            controlled_shutdown_retry_backoff_ms=config.get_int(
                "controlled.shutdown.retry.backoff.ms"
            ),
            add_partitions_retry_backoff_ms=config.get_int(
                "add.partitions.to.txn.retry.backoff.ms"
            ),
            add_partitions_retry_backoff_max_ms=config.get_int(
                "add.partitions.to.txn.retry.backoff.max.ms"
            ),
        )
