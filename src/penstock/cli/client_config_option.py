"""`--client-config FILE`: TLS and a login, for every command that has `--bootstrap`.

It is added to the commands here, so that none can lack it. Invariant: a file that is named and
cannot be used ends the command; nothing falls back to plaintext.
"""

import os
from collections.abc import Mapping
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any

from typer.core import TyperOption

if TYPE_CHECKING:
    from penstock.client.client_config import ClientConfig

ENVIRONMENT_NAME = "PENSTOCK_CLIENT_CONFIG"
_OPTION = "--client-config"
_HELP = (
    "Properties with security.protocol, sasl.* and ssl.*, by librdkafka's names or Java's.  "
    f"[env: {ENVIRONMENT_NAME}]"
)
# Of the command that runs; the option nearest to its name wins.
_chosen: ContextVar[Path | None] = ContextVar("client_config", default=None)


def add_client_config(command: Any) -> None:
    """To a command, or to a group and its commands."""
    for index, param in enumerate(command.params):
        if "--bootstrap" in param.opts:
            command.params.insert(index + 1, _make_option())
            break
    for subcommand in getattr(command, "commands", {}).values():
        add_client_config(subcommand)


def begin_command() -> None:
    """Forget the option of a command that ran before in this process."""
    _chosen.set(None)


def get_client_config() -> "ClientConfig":
    """Of the option, else of the environment, else plaintext. A file that cannot be used ends the
    command."""
    from penstock.cli.connect import fail
    from penstock.client.client_config import ClientConfig, read_client_config
    from penstock.client.errors import InvalidClientConfig

    path = _chosen.get()
    name = _OPTION
    if path is None and os.environ.get(ENVIRONMENT_NAME):
        path, name = Path(os.environ[ENVIRONMENT_NAME]), ENVIRONMENT_NAME
    if path is None:
        return ClientConfig()
    try:
        return read_client_config(path)
    except InvalidClientConfig as error:
        fail(f"{name}: {error}", 2)


def client_settings() -> Mapping[str, Any]:
    """The same, for Producer and Consumer."""
    return get_client_config().settings


def _make_option() -> TyperOption:
    return TyperOption(
        param_decls=[_OPTION],
        metavar="FILE",
        help=_HELP,
        callback=_choose,
        expose_value=False,
    )


def _choose(ctx: Any, param: Any, value: str | None) -> None:
    if value is not None:
        _chosen.set(Path(value))
