"""The settings as one listener sees them: `listener.name.<name>.<setting>`, else the broker's.

Names of listeners are compared in any case: a guard that is written `listener.name.CLIENT.…` must
not be ignored.
"""

from collections.abc import Iterator

from penstock.config.effective_config import EffectiveConfig, EffectiveValue
from penstock.config.listeners import get_protocol_map
from penstock.config.setting import Value

PREFIX = "listener.name."


class ListenerConfig:
    def __init__(self, config: EffectiveConfig, listener: str) -> None:
        self.listener = listener
        self.protocol = get_protocol_map(config.get_str("listener.security.protocol.map"))[
            listener.upper()
        ]
        self._config = config
        prefix = f"{PREFIX}{listener}.".lower()
        # The rest of the name -> the value; with the mechanism, where the name has one.
        self._own = {
            name[len(prefix) :]: effective
            for name, effective in config.by_listener.items()
            if name.lower().startswith(prefix)
        }

    def find(self, name: str) -> Value:
        own = self._own.get(name)
        return self._config[name] if own is None else own.value

    def find_own(self, name: str) -> EffectiveValue | None:
        """The listener's own value, of `<setting>` or `<mechanism>.<setting>`."""
        return self._own.get(name)

    def own_names(self) -> Iterator[str]:
        """Without the listener's prefix."""
        return iter(self._own)

    def find_str(self, name: str) -> str | None:
        """None: not set, or set to nothing."""
        value = self.find(name)
        assert value is None or isinstance(value, str), f"{name} is {value!r}, not a text"
        return value or None

    def get_str(self, name: str) -> str:
        value = self.find(name)
        assert isinstance(value, str), f"{name} is {value!r}, not a text"
        return value

    def get_own_str(self, name: str, default: str) -> str:
        own = self._own.get(name)
        if own is None:
            return default
        assert isinstance(own.value, str), f"{name} is {own.value!r}, not a text"
        return own.value

    def get_list(self, name: str) -> tuple[str, ...]:
        value = self.find(name)
        assert isinstance(value, tuple), f"{name} is {value!r}, not a list"
        return value

    def get_bool(self, name: str) -> bool:
        value = self.find(name)
        assert isinstance(value, bool), f"{name} is {value!r}, not a boolean"
        return value

    def get_int(self, name: str) -> int:
        value = self.find(name)
        assert isinstance(value, int), f"{name} is {value!r}, not an int"
        return value
