"""A broker's settings over its life: what its file said, and what was changed since.

Only the values; who must act when they change listens. Invariant: `current` is always consistent,
a change that is not is refused as a whole and the old values stand.
"""

from collections.abc import Callable, Mapping

from penstock.config.effective_config import EffectiveConfig, resolve_broker
from penstock.config.raw_config import ConfigError, RawConfig

Report = Callable[[str], None]

EVERY_BROKER = ""  # in MetadataUpdate.broker_configs


class DynamicBrokerConfig:
    """Owned by the event loop."""

    def __init__(self, static: RawConfig, broker_id: int, report: Report) -> None:
        self._static = static
        self._broker_id = broker_id
        self._report = report
        self.current: EffectiveConfig = resolve_broker(static)

    def __call__(self) -> EffectiveConfig:
        return self.current

    def take_dynamic(self, configs: Mapping[str, Mapping[str, str]]) -> bool:
        """What is stored in the tree for every broker and for this one; True if values changed."""
        cluster = RawConfig.from_mapping(
            configs.get(EVERY_BROKER, {}), where="every broker's settings"
        )
        own = configs.get(str(self._broker_id), {})
        broker = RawConfig.from_mapping(own, where=f"broker {self._broker_id}'s settings")
        try:
            resolved = resolve_broker(self._static, dynamic_cluster=cluster, dynamic_broker=broker)
        except ConfigError as error:
            # They were checked when they were stored, perhaps by another version.
            self._report(f"{error}\n  the stored settings are left out until they are mended")
            return False
        is_changed = dict(resolved) != dict(self.current)
        self.current = resolved
        return is_changed
