"""Settings that are taken one by one; what nobody took has no effect, and its owner refuses it."""

from collections.abc import Mapping
from typing import Any

from penstock.client.errors import InvalidClientConfig


class TakenSettings:
    def __init__(self, values: Mapping[str, Any]) -> None:
        self._left = {name: value for name, value in values.items() if value is not None}

    def take(self, name: str) -> str | None:
        value = self._left.pop(name, None)
        if value is None:
            return None
        if not isinstance(value, str | int | float):
            raise InvalidClientConfig(f"{name} is a {type(value).__name__}, not a text")
        return str(value).lower() if isinstance(value, bool) else str(value).strip()

    def take_text(self, name: str) -> str | None:
        """None, too, if it is empty."""
        return self.take(name) or None

    def take_secret(self, name: str) -> str | None:
        """As it is: a password may begin with a space."""
        value = self._left.pop(name, None)
        if value is not None and not isinstance(value, str):
            raise InvalidClientConfig(f"{name} is a {type(value).__name__}, not a text")
        return value

    def take_bool(self, name: str, default: bool) -> bool:
        text = self.take(name)
        if text is None:
            return default
        if text.lower() not in ("true", "false"):
            raise InvalidClientConfig(f"{name}={text[:40]}: write true or false")
        return text.lower() == "true"

    def take_one(self, *names: str) -> str | None:
        """Of one of several names for the same."""
        given = {name: value for name in names if (value := self.take_text(name)) is not None}
        if len(set(given.values())) > 1:
            raise InvalidClientConfig(f"{' and '.join(given)} contradict each other; set only one")
        return next(iter(given.values()), None)

    def take_object(self, name: str) -> Any:
        return self._left.pop(name, None)

    def left(self) -> list[str]:
        return sorted(self._left)
