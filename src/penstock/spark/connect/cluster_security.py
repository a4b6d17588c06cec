"""How this driver reaches a cluster where no options say it: for pipelines, tables and jobs.

Secrets come from a client config file, which the command line or PENSTOCK_CLIENT_CONFIG names, and
never from a pipeline's file. Invariant: what is registered for a cluster is used by every client
of it, and passed to every query on it.
"""

import os
from collections.abc import Mapping
from pathlib import Path

from penstock.client.client_config import read_client_config
from penstock.client.errors import InvalidClientConfig
from penstock.client.security.config import ClientSecurity
from penstock.client.security.properties import parse_client_security

_ENVIRONMENT_NAME = "PENSTOCK_CLIENT_CONFIG"
_LOCATION = ".location"
_registered: dict[str, Mapping[str, str]] = {}  # by bootstrap addresses


def use_security(bootstrap: str, settings: Mapping[str, object]) -> None:
    """From here on, reach this cluster with these settings. Raises InvalidClientConfig."""
    parse_client_security(settings)
    texts = {}
    for name, value in settings.items():
        if callable(value):
            raise InvalidClientConfig(f"{name}: a function cannot be sent to Spark's executors")
        text = str(value)
        # Executors have another working directory.
        texts[name] = str(Path(text).absolute()) if name.endswith(_LOCATION) else text
    _registered[bootstrap] = texts


def security_of(bootstrap: str) -> ClientSecurity:
    return parse_client_security(_find_settings(bootstrap))


def security_options(bootstrap: str) -> dict[str, str]:
    """The same, as options of `format("penstock")`."""
    return {f"kafka.{name}": value for name, value in _find_settings(bootstrap).items()}


def _find_settings(bootstrap: str) -> Mapping[str, str]:
    file = os.environ.get(_ENVIRONMENT_NAME)
    if bootstrap not in _registered and file:
        use_security(bootstrap, read_client_config(Path(file)).settings)
    return _registered.get(bootstrap, {})
