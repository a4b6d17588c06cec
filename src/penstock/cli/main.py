"""The entry point `penstock` and the options of every subcommand. Each command group has its own
module.

Exit codes: 0 done, 1 refused or failed (message on stderr), 2 wrong usage.
"""

import os
import sys
from errno import EPIPE
from typing import Annotated

import typer

from penstock.cli.connect import BootstrapOption, JsonOption, keep_shared
from penstock.cli.lazy import LazyGroup
from penstock.cli.output import Output, OutputFailed

app = typer.Typer(
    name="penstock",
    cls=LazyGroup,  # its table names the subcommands
    help="A Kafka-compatible distributed log in Python.",
    epilog="Exit codes: 0 done, 1 refused or failed (message on stderr), 2 wrong usage.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version  # costs 50 ms, so it is imported only here

        from penstock.protocol.build import find_build

        typer.echo(f"penstock {version('penstock')} ({find_build()} build)")
        raise typer.Exit


@app.callback()
def _shared(
    ctx: typer.Context,
    bootstrap: BootstrapOption = None,
    as_json: JsonOption = False,
    _: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=_show_version,
            is_eager=True,
            help="Show version and build, and exit.",
        ),
    ] = False,
) -> None:
    keep_shared(ctx, bootstrap, as_json)


def main() -> None:
    """The entry point of the command."""
    try:
        _take_over_streams()
        try:
            app()
        finally:
            sys.stdout.flush()
    except OutputFailed as failure:
        # Discard the buffer, or flushing it at interpreter exit would fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        if failure.error.errno != EPIPE:  # the reader closed the pipe: exit silently
            print(f"penstock: cannot write to stdout: {failure.error.strerror}", file=sys.stderr)
        sys.exit(1)


def _take_over_streams() -> None:
    """Escape characters that the terminal's encoding lacks, in records and file names."""
    # Python leaves None where a stream was closed from the start.
    sys.stdout = Output.over(sys.stdout)
    reconfigure = getattr(sys.stderr, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="backslashreplace")


if __name__ == "__main__":
    main()
