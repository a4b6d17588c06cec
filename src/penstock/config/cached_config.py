"""A room's own settings, read again only when the broker's have changed."""

from collections.abc import Callable
from typing import Generic, TypeVar

from penstock.config.effective_config import EffectiveConfig

Config = TypeVar("Config")


class CachedConfig(Generic[Config]):
    """Call it for the settings as of now."""

    def __init__(
        self, settings: Callable[[], EffectiveConfig], read: Callable[[EffectiveConfig], Config]
    ) -> None:
        self._settings = settings
        self._read = read
        self._resolved = settings()
        self._config = read(self._resolved)

    def __call__(self) -> Config:
        resolved = self._settings()
        if resolved is not self._resolved:
            self._resolved = resolved
            self._config = self._read(resolved)
        return self._config
