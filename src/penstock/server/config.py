"""The broker settings for building the broker itself, typed. Values only, already checked."""

from typing import NamedTuple, Self

from penstock.config.effective_config import EffectiveConfig


class ServerConfig(NamedTuple):
    broker_id: int  # below 0: not configured
    reserved_broker_max_id: int
    broker_id_generation_enable: bool
    is_clustered: bool  # ZooKeeper is configured
    rack: str | None
    controller_election: str
    fetch_session_slots: int
    keeps_offsets_in_zookeeper: bool

    @classmethod
    def from_broker(cls, config: EffectiveConfig) -> Self:
        return cls(
            broker_id=config.get_int("broker.id"),
            reserved_broker_max_id=config.get_int("reserved.broker.max.id"),
            broker_id_generation_enable=config.get_bool("broker.id.generation.enable"),
            is_clustered=bool(config["zookeeper.connect"]),
            rack=config.find_str("broker.rack"),
            controller_election=config.get_str("controller.election"),
            fetch_session_slots=config.get_int("max.incremental.fetch.session.cache.slots"),
            keeps_offsets_in_zookeeper=config.get_str("offsets.storage").lower() != "kafka",
        )
