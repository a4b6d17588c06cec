"""Runs a program of this folder from the command line; a failure is one line, not a traceback."""

import inspect
import sqlite3
import sys
from collections.abc import Callable

import penstock

PREPARE = (
    "penstock topic create payments; echo 'payment 1' | penstock produce payments",
    "or run kill_at_the_worst_moment.py, which brings its own broker and payments",
)


def run(main: Callable[[str, str], None]) -> None:
    arguments = sys.argv[1:]
    if len(arguments) != 2:
        print(inspect.getdoc(sys.modules["__main__"]), file=sys.stderr)
        raise SystemExit(2)
    try:
        main(*arguments)
    except (penstock.ClientError, OSError, sqlite3.Error) as error:
        raise SystemExit(
            f"{error}\nIt needs a broker with payments: {'; '.join(PREPARE)}."
        ) from None
