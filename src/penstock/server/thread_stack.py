"""The Python stack of another thread, as text.

Written by `faulthandler`, in one step under the interpreter's lock. A walk along `f_back` of
`sys._current_frames` lets the other thread run on in between, which can crash CPython 3.11
(python/cpython#111363). The one crash that was seen, of a broker whose watchdog took twenty such
stacks a second, fits that; it could not be repeated.
"""

import faulthandler
import os
import re
import tempfile

_MAX_BYTES = 1024 * 1024
_THREAD = re.compile(
    rb"^(?:Current thread|Thread) 0x([0-9a-f]+)[^\n]*\n((?:  [^\n]*\n)*)", re.MULTILINE
)


class ThreadStacks:
    """Owned by the thread that reads the stacks. It holds the interpreter's lock for some
    milliseconds if there are many threads, and knows the newest hundred."""

    def __init__(self) -> None:
        self._descriptor = _open()

    def read(self, thread: int) -> str:
        """Most recent call last, one line each; empty if there is no such thread."""
        if self._descriptor is None:
            return ""
        os.ftruncate(self._descriptor, 0)
        os.lseek(self._descriptor, 0, os.SEEK_SET)
        faulthandler.dump_traceback(self._descriptor, all_threads=True)
        for number, lines in _THREAD.findall(os.pread(self._descriptor, _MAX_BYTES, 0)):
            if int(number, 16) == thread:
                return b"".join(reversed(lines.splitlines(keepends=True))).decode()
        return ""

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)


def _open() -> int | None:
    """In memory, or else a temporary file; None where neither can be had: there are no stacks."""
    try:
        if hasattr(os, "memfd_create"):
            return os.memfd_create("stacks")
        with tempfile.TemporaryFile() as file:
            return os.dup(file.fileno())
    except OSError:
        return None
