"""PySpark's daemon of Python workers, without the traceback of a worker whose rows nobody wants.

`df.show()` and `limit` close the connection to a worker as soon as they have enough rows. PySpark's
daemon prints that the worker's last output could not be flushed, which nobody can act on. Local
sessions of `penstock.spark.session` run this module in its place, by spark.python.daemon.module.
"""

import sys
from typing import TextIO

from pyspark.daemon import manager

_FLUSH_FAILED = "PySpark daemon failed to flush the output"
_CLOSED = ("BrokenPipeError", "ConnectionResetError")


class QuietErrors:
    """Stands in for sys.stderr. Each text that is printed comes as one, and its line end after
    it."""

    def __init__(self, errors: TextIO) -> None:
        self._errors = errors
        self._is_dropping = False

    def write(self, text: str) -> int:
        was_dropping = self._is_dropping
        self._is_dropping = text.startswith(_FLUSH_FAILED) and any(name in text for name in _CLOSED)
        if self._is_dropping or (was_dropping and text == "\n"):
            return len(text)
        return self._errors.write(text)

    def flush(self) -> None:
        self._errors.flush()

    def fileno(self) -> int:
        return self._errors.fileno()

    def isatty(self) -> bool:
        return self._errors.isatty()


if __name__ == "__main__":
    sys.stderr = QuietErrors(sys.stderr)
    manager()
