"""The Python stack of another thread, as text.

Written by `faulthandler`, in one step under the interpreter's lock. A walk along `f_back` of
`sys._current_frames` lets the other thread run on in between, which can crash CPython 3.11
(python/cpython#111363). The one crash that was seen, of a broker whose watchdog took twenty such
stacks a second, fits that; it could not be repeated.
"""

import faulthandler
import re
import tempfile

_THREAD = re.compile(
    rb"^(?:Current thread|Thread) 0x([0-9a-f]+)[^\n]*\n((?:  [^\n]*\n)*)", re.MULTILINE
)


class ThreadStacks:
    """Owned by the thread that reads the stacks."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `close`

    def read(self, thread: int) -> str:
        """Most recent call last, one line each; empty if there is no such thread."""
        self._file.seek(0)
        self._file.truncate()
        faulthandler.dump_traceback(self._file, all_threads=True)
        self._file.seek(0)
        for number, lines in _THREAD.findall(self._file.read()):
            if int(number, 16) == thread:
                return b"".join(reversed(lines.splitlines(keepends=True))).decode()
        return ""

    def close(self) -> None:
        self._file.close()
