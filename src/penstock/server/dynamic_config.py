"""A broker's effective config: its static config and the dynamic configs stored since.

Only the values: the caller acts on changes. Invariant: `current` is always consistent; an
inconsistent change is rejected as a whole and the previous values stay.
"""

from collections.abc import Mapping

from penstock.config.custom_settings import custom_names, describe_no_effect, inert_names
from penstock.config.effective_config import EffectiveConfig, resolve_broker
from penstock.config.raw_config import ConfigError, RawConfig
from penstock.logs.event_logger import EventLogger

EVERY_BROKER = ""  # in UpdateMetadataRequest.broker_configs


class DynamicBrokerConfig:
    """Owned by the event loop."""

    def __init__(self, static: RawConfig, broker_id: int, logger: EventLogger) -> None:
        self._static = static
        self._broker_id = broker_id
        self._logger = logger
        self.current: EffectiveConfig = resolve_broker(static)
        self._custom: frozenset[str] = frozenset()  # reported, and still stored
        self._inert: frozenset[str] = frozenset()  # likewise

    def __call__(self) -> EffectiveConfig:
        return self.current

    def take_dynamic(self, configs: Mapping[str, Mapping[str, str]]) -> bool:
        """Apply the stored configs of all brokers and of this one; True if values changed."""
        cluster = RawConfig.from_mapping(
            configs.get(EVERY_BROKER, {}), where="the configs of all brokers"
        )
        own = configs.get(str(self._broker_id), {})
        broker = RawConfig.from_mapping(own, where=f"the configs of broker {self._broker_id}")
        try:
            effective = resolve_broker(self._static, dynamic_cluster=cluster, dynamic_broker=broker)
        except ConfigError as error:
            # They were validated when they were stored, perhaps by another version.
            self._logger.warning(
                "dynamic_configs_ignored",
                f"{error}\n  the stored configs are ignored until they are corrected",
            )
            return False
        names = (*cluster.values, *broker.values)
        self._report_custom(custom_names(names))
        self._report_inert(inert_names(names))
        is_changed = dict(effective) != dict(self.current)
        self.current = effective
        return is_changed

    def _report_inert(self, inert: frozenset[str]) -> None:
        """The same of Kafka's settings that have no effect here, in one line."""
        new = sorted(inert - self._inert)
        if new:
            self._logger.warning(
                "setting_without_effect",
                f"{len(new)} of the dynamic settings change nothing here: {', '.join(new)}; "
                "docs/configuration.md has the effect of every setting",
            )
        self._inert = inert

    def _report_custom(self, custom: frozenset[str]) -> None:
        """Say once of each custom setting that it changes nothing."""
        for line in describe_no_effect(custom - self._custom):
            self._logger.warning("setting_without_effect", line)
        self._custom = custom
