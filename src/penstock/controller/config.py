"""The controller's own settings, out of the broker's effective config. Values only."""

from dataclasses import dataclass
from typing import Self

from penstock.config.effective_config import EffectiveConfig
from penstock.controller.balancing.auto_balance import OFF, BalancerConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerConfig:
    """A field's default is the declared setting's default."""

    delete_topic_enable: bool = True
    auto_leader_rebalance_enable: bool = True
    leader_imbalance_per_broker_percentage: int = 10
    leader_imbalance_check_interval_seconds: int = 300
    balancer: BalancerConfig = OFF

    @classmethod
    def from_broker(cls, config: EffectiveConfig) -> Self:
        return cls(
            delete_topic_enable=config.get_bool("delete.topic.enable"),
            auto_leader_rebalance_enable=config.get_bool("auto.leader.rebalance.enable"),
            leader_imbalance_per_broker_percentage=config.get_int(
                "leader.imbalance.per.broker.percentage"
            ),
            leader_imbalance_check_interval_seconds=config.get_int(
                "leader.imbalance.check.interval.seconds"
            ),
            balancer=BalancerConfig(
                replacement_delay_ms=config.get_int("replica.replacement.delay.ms"),
                is_balancing=config.get_bool("auto.balance.enable"),
                delay_ms=config.get_int("auto.balance.delay.ms"),
                gone_ms=config.get_int("auto.balance.broker.gone.ms"),
                at_once=config.get_int("auto.balance.concurrent.partitions"),
            ),
        )
