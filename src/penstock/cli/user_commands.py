"""`penstock user`: create, list and delete users that log in by SCRAM."""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.connect import (
    BootstrapOption,
    JsonOption,
    ask_cluster,
    command_group,
    fail,
    get_bootstrap,
    show_json,
    wants_json,
)

app = command_group("Users that log in with a password, by SCRAM.")

_PASSWORD_VARIABLE = "PENSTOCK_USER_PASSWORD"  # noqa: S105 (a name)
_MAX_PASSWORD_BYTES = 4_096

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="As in User:NAME of ACLs.")]
MechanismOption = Annotated[
    list[str],
    typer.Option(
        "--mechanism", metavar="MECHANISM", help="SCRAM-SHA-256 or SCRAM-SHA-512.  [default: both]"
    ),
]

_CREATE_HELP = """Create a user, or give it another password.

The password is read from --password-file, from the environment variable PENSTOCK_USER_PASSWORD, or
from the terminal. It is not sent: the broker gets it salted and iterated.

\b
Examples:
  penstock user create ada
  penstock user create etl --password-file /run/secrets/etl --mechanism SCRAM-SHA-512
"""


@app.command(help=_CREATE_HELP)
def create(
    ctx: typer.Context,
    name: NameArgument,
    password_file: Annotated[
        Path | None,
        typer.Option("--password-file", metavar="FILE", help="Its first line is the password."),
    ] = None,
    mechanism: MechanismOption = [],  # noqa: B006
    iterations: Annotated[
        int, typer.Option("--iterations", metavar="N", help="4096 to 16384.")
    ] = 4096,
    bootstrap: BootstrapOption = None,
    as_json: JsonOption = False,
) -> None:
    from penstock.client.scram_users import SCRAM_MECHANISMS

    mechanisms = _check(mechanism) or list(SCRAM_MECHANISMS)
    if not 4096 <= iterations <= 16384:
        fail(f"--iterations {iterations}: 4096 to 16384 are allowed", 2)
    password = _read_password(name, password_file)
    ask_cluster(
        get_bootstrap(ctx, bootstrap),
        lambda client: client.scram_users.create(
            name, password, mechanisms=mechanisms, iterations=iterations
        ),
    )
    if wants_json(ctx, as_json):
        show_json({"name": name, "iterations": dict.fromkeys(mechanisms, iterations)})
    else:
        typer.echo(f"user {name} can log in by {' and '.join(mechanisms)}")


@app.command("list")
def list_users(
    ctx: typer.Context, bootstrap: BootstrapOption = None, as_json: JsonOption = False
) -> None:
    """List the users and the mechanisms by which they can log in."""
    users = ask_cluster(get_bootstrap(ctx, bootstrap), lambda client: client.scram_users.describe())
    if wants_json(ctx, as_json):
        show_json([{"name": user.name, "iterations": user.iterations} for user in users])
        return
    width = max((len(user.name) for user in users), default=0)
    for user in users:
        mechanisms = ", ".join(
            f"{mechanism} ({count} iterations)" for mechanism, count in user.iterations.items()
        )
        typer.echo(f"{user.name:<{width}}  {mechanisms}")


@app.command()
def delete(
    ctx: typer.Context,
    name: NameArgument,
    mechanism: MechanismOption = [],  # noqa: B006
    bootstrap: BootstrapOption = None,
    as_json: JsonOption = False,
) -> None:
    """Delete a user, or its credentials of one mechanism. Open connections stay."""
    mechanisms = _check(mechanism) or None
    ask_cluster(
        get_bootstrap(ctx, bootstrap),
        lambda client: client.scram_users.delete(name, mechanisms=mechanisms),
    )
    if wants_json(ctx, as_json):
        show_json({"name": name, "deleted": mechanisms or "all"})
    else:
        typer.echo(f"user {name}: deleted {' and '.join(mechanisms or ['all credentials'])}")


def _check(mechanisms: list[str]) -> list[str]:
    from penstock.client.scram_users import SCRAM_MECHANISMS

    names = [mechanism.upper() for mechanism in mechanisms]
    for name in names:
        if name not in SCRAM_MECHANISMS:
            fail(f"--mechanism {name}: there are {' and '.join(SCRAM_MECHANISMS)}", 2)
    return list(dict.fromkeys(names))


def _read_password(name: str, file: Path | None) -> str:
    if file is not None:
        password = _read_file(file)
    elif _PASSWORD_VARIABLE in os.environ:
        password = os.environ[_PASSWORD_VARIABLE]
    elif sys.stdin.isatty():
        prompt = f"Password of {name}"
        password = typer.prompt(prompt, hide_input=True, confirmation_prompt=True, err=True)
    else:
        fail(f"give --password-file or {_PASSWORD_VARIABLE}: there is no terminal to ask on", 2)
    if not password:
        fail("the password is empty", 2)
    return password


def _read_file(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            text = opened.read(_MAX_PASSWORD_BYTES).decode()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8"
        fail(f"--password-file {file}: {reason}", 2)
    return text.partition("\n")[0].removesuffix("\r")
