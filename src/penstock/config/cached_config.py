"""A package's typed config, re-read only when the broker's effective config changes."""

from collections.abc import Callable
from typing import Generic, TypeVar

from penstock.config.effective_config import EffectiveConfig

Config = TypeVar("Config")


class CachedConfig(Generic[Config]):
    """Call it to get the current config."""

    def __init__(
        self, settings: Callable[[], EffectiveConfig], read: Callable[[EffectiveConfig], Config]
    ) -> None:
        self._settings = settings
        self._read = read
        self._effective = settings()
        self._config = read(self._effective)

    def __call__(self) -> Config:
        effective = self._settings()
        if effective is not self._effective:
            self._effective = effective
            self._config = self._read(effective)
        return self._config
