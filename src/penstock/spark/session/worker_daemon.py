"""PySpark's daemon of Python workers, without the traceback of a worker whose rows nobody wants.

`df.show()` and `limit` close the connection to a worker as soon as they have enough rows. PySpark's
daemon prints a traceback of the worker's last flush, which nobody can act on. Local
sessions of `penstock.spark.session` run this module in its place, by spark.python.daemon.module.
"""

import sys
from typing import TextIO

from pyspark.daemon import manager

_TRACEBACK = "Traceback (most recent call last):"
_FLUSH = "outfile.flush()"  # the call of the daemon that fails
_CLOSED = ("BrokenPipeError", "ConnectionResetError")


class QuietErrors:
    """Stands in for sys.stderr. A traceback comes in parts, of which only the last, the exception,
    begins without a space; it is held back until then."""

    def __init__(self, errors: TextIO) -> None:
        self._errors = errors
        self._held: list[str] = []

    def write(self, text: str) -> int:
        if self._held or text.startswith(_TRACEBACK):
            self._held.append(text)
            if text and not text.startswith((" ", _TRACEBACK)):
                self._end_traceback()
        else:
            self._errors.write(text)
        return len(text)

    def _end_traceback(self) -> None:
        text = "".join(self._held)
        is_closed = _FLUSH in text and self._held[-1].startswith(_CLOSED)
        self._held.clear()
        if not is_closed:
            self._errors.write(text)

    def flush(self) -> None:
        self._errors.flush()

    def fileno(self) -> int:
        return self._errors.fileno()

    def isatty(self) -> bool:
        return self._errors.isatty()


if __name__ == "__main__":
    sys.stderr = QuietErrors(sys.stderr)
    manager()
