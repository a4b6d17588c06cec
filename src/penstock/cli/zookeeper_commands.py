"""`penstock zookeeper`: ACLs of the znodes that exist already."""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.connect import fail

if TYPE_CHECKING:
    from penstock.config.zookeeper import ZooKeeperConfig

app = typer.Typer(
    add_completion=False,
    help="The znodes of a cluster. Needs ZooKeeper, and no broker.",
    no_args_is_help=True,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

ConfigOption = Annotated[
    Path,
    typer.Option(
        "--config", metavar="FILE", help="The brokers' server.properties: where ZooKeeper is."
    ),
]
ConnectOption = Annotated[
    str | None,
    typer.Option("--zookeeper", metavar="CONNECT", help="In place of the file's: HOST:PORT/PATH."),
]

_SECURE_HELP = """Let only the brokers change the znodes that exist, and read those of users.

New znodes get such ACLs by zookeeper.set.acl=true. To secure a cluster that runs: set it and the
login or certificate for ZooKeeper on all brokers, restart them one by one, then run this. Znodes of
older consumers (/consumers) stay open.

\b
Example:
  penstock zookeeper secure --config server.properties
"""
_UNSECURE_HELP = """Let everybody who reaches ZooKeeper change the znodes that exist, as by default.

\b
Example:
  penstock zookeeper unsecure --config server.properties
"""


@app.command(help=_SECURE_HELP)
def secure(config: ConfigOption, zookeeper: ConnectOption = None) -> None:
    count = _change_acls(config, zookeeper, is_secure=True)
    typer.echo(f"{count} znodes can be changed by the brokers only")


@app.command(help=_UNSECURE_HELP)
def unsecure(config: ConfigOption, zookeeper: ConnectOption = None) -> None:
    count = _change_acls(config, zookeeper, is_secure=False)
    typer.echo(f"{count} znodes can be changed by everybody who reaches ZooKeeper")


def _change_acls(path: Path, connect: str | None, *, is_secure: bool) -> int:
    from penstock.metadata_store.errors import MetadataStoreError

    config = _read(path, connect)
    try:
        return asyncio.run(_change(config, is_secure=is_secure))
    except MetadataStoreError as error:
        fail(str(error), 1)


async def _change(config: "ZooKeeperConfig", *, is_secure: bool) -> int:
    from penstock.logs.event_logger import NO_LOGGER
    from penstock.metadata_store.zookeeper.acl_changes import change_acls
    from penstock.metadata_store.zookeeper.session import ZooKeeperSession

    session = ZooKeeperSession(config, logger=NO_LOGGER)
    await session.open()
    try:
        return await change_acls(session, is_secure=is_secure)
    finally:
        await session.close()


def _read(path: Path, connect: str | None) -> "ZooKeeperConfig":
    from penstock.config.effective_config import resolve_broker
    from penstock.config.properties import read_properties
    from penstock.config.raw_config import ConfigError, RawConfig
    from penstock.server.metadata_store import find_zookeeper

    try:
        raw_config = read_properties(path)
        if connect is not None:
            given = RawConfig.from_mapping({"zookeeper.connect": connect}, where="--zookeeper")
            raw_config = raw_config.overlaid_by(given)
        config = find_zookeeper(resolve_broker(raw_config))
    except ConfigError as error:
        fail(str(error), 2)
    if config is None:
        fail(f"{path} has no zookeeper.connect; name ZooKeeper with --zookeeper CONNECT", 2)
    tls, login = config.security.tls, config.security.login
    if login is None and (tls is None or tls.identity is None):
        fail(
            f"{path} has no login or certificate for ZooKeeper, which could not tell brokers from "
            "others: set zookeeper.ssl.client.enable with zookeeper.ssl.keystore.location, or "
            "penstock.zookeeper.sasl.jaas.config",
            2,
        )
    return config
