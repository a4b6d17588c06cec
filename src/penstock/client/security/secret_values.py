"""Values that are elsewhere: `${env:NAME}` and `${file:PATH}` in a file that this user wrote.

Never applied to what another process or a network sent (CVE-2024-31141).
"""

import os
import re
from pathlib import Path

from penstock.client.errors import InvalidClientConfig

_REFERENCE = re.compile(r"\$\{(?P<kind>env|file):(?P<name>[^}]*)\}")
_MAX_BYTES = 1024 * 1024


def is_reference(value: str) -> bool:
    """Whether the whole value is elsewhere."""
    return _REFERENCE.fullmatch(value.strip()) is not None


def resolve_value(setting: str, value: str) -> str:
    """With every reference replaced; InvalidClientConfig if there is nothing."""
    return _REFERENCE.sub(lambda match: _resolve(setting, match["kind"], match["name"]), value)


def _resolve(setting: str, kind: str, name: str) -> str:
    if kind == "env":
        value = os.environ.get(name)
        if value is None:
            raise InvalidClientConfig(f"{setting}: the environment variable {name} is not set")
        return value
    try:
        with Path(name).open("rb") as file:
            content = file.read(_MAX_BYTES)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or type(error).__name__
        raise InvalidClientConfig(f"{setting}: {name} cannot be read ({reason})") from None
    return content.decode("utf-8", "strict").removesuffix("\n").removesuffix("\r")
