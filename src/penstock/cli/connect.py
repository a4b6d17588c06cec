"""Shared by commands that talk to a cluster: its address, the form of results, and error handling.

Exit code 1: the cluster refused, or cannot be reached; one line on stderr says why. 2: wrong usage.
"""

import json
import os
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, NoReturn, TypeVar

import typer

from penstock.cli.client_config_option import get_client_config

if TYPE_CHECKING:
    from penstock.client.cluster import ClusterClient

ENVIRONMENT_NAME = "PENSTOCK_BOOTSTRAP"
DEFAULT_BOOTSTRAP = "127.0.0.1:9092"
_Result = TypeVar("_Result")

BootstrapOption = Annotated[
    str | None,
    typer.Option(
        "--bootstrap",
        metavar="HOST:PORT",
        help="Bootstrap brokers, separated by commas.  "
        f"[env: {ENVIRONMENT_NAME}; default: {DEFAULT_BOOTSTRAP}]",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]


class Shared(NamedTuple):
    """Options that were given before the subcommand."""

    bootstrap: str | None = None
    as_json: bool = False


def command_group(purpose: str) -> typer.Typer:
    """A group of commands that talk to a cluster; shared options may also come before their
    names."""
    group = typer.Typer(
        add_completion=False,
        help=purpose,
        no_args_is_help=True,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    group.callback()(keep_shared)
    return group


def keep_shared(
    ctx: typer.Context, bootstrap: BootstrapOption = None, as_json: JsonOption = False
) -> None:
    """Store options for the subcommand; the callback nearest to it wins."""
    before = ctx.obj if isinstance(ctx.obj, Shared) else Shared()
    ctx.obj = Shared(bootstrap or before.bootstrap, as_json or before.as_json)


def wants_json(ctx: typer.Context, as_json: bool) -> bool:
    return as_json or (isinstance(ctx.obj, Shared) and ctx.obj.as_json)


def get_bootstrap(ctx: typer.Context, given: str | None) -> str:
    """The first of: option after the subcommand, option before it, bootstrap.servers of the client
    config, environment, localhost."""
    from penstock.client.address import parse_bootstrap
    from penstock.client.errors import InvalidAddress

    shared = ctx.obj.bootstrap if isinstance(ctx.obj, Shared) else None
    chosen = given or shared or get_client_config().bootstrap
    chosen = chosen or os.environ.get(ENVIRONMENT_NAME) or DEFAULT_BOOTSTRAP
    try:
        return ",".join(str(address) for address in parse_bootstrap(chosen))
    except InvalidAddress as error:
        fail(f"--bootstrap: {error}", 2)


def ask_cluster(bootstrap: str, work: Callable[["ClusterClient"], Awaitable[_Result]]) -> _Result:
    """Connect, run `work`, close. A failure ends the command with one line on stderr."""
    import asyncio

    from penstock.client.cluster import ClusterClient
    from penstock.client.errors import ClientError

    security = get_client_config().security

    async def run() -> _Result:
        async with ClusterClient(bootstrap, client_id="penstock-cli", security=security) as client:
            return await work(client)

    try:
        return asyncio.run(run())
    except ClientError as error:
        fail(str(error), 1)


def show_json(document: Any) -> None:
    print(json.dumps(document, ensure_ascii=False))


def fail(message: str, code: int) -> NoReturn:
    typer.echo(f"penstock: {message}", err=True)
    raise typer.Exit(code)


def parse_pairs(option: str, texts: list[str]) -> dict[str, str]:
    """Parse `name=value` arguments; a malformed one is wrong usage and ends the command."""
    pairs = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not name or not equals:
            fail(f"{option} {text!r}: write NAME=VALUE, for example retention.ms=3600000", 2)
        pairs[name] = value
    return pairs
