"""The command's stdout; its failures are distinguished from failures to read input."""

import io
import os
from errno import EBADF
from typing import Self, TextIO


class OutputFailed(Exception):
    """stdout cannot be written. Not an OSError, so that it is not taken for a log file's error."""

    def __init__(self, error: OSError) -> None:
        super().__init__(str(error))
        self.error = error


class Output(io.TextIOWrapper):
    """A text stream whose failures are OutputFailed. Only `over` makes one."""

    @classmethod
    def over(cls, stream: TextIO | None) -> Self:
        """Wrap `stream`, which must not be used directly afterwards."""
        if not isinstance(stream, io.TextIOWrapper):
            raise OutputFailed(OSError(EBADF, os.strerror(EBADF)))
        encoding, is_line_buffered = stream.encoding, stream.line_buffering
        return cls(
            stream.detach(),
            encoding=encoding,
            errors="backslashreplace",
            line_buffering=is_line_buffered,
        )

    def write(self, text: str, /) -> int:
        try:
            return super().write(text)
        except OSError as error:
            raise OutputFailed(error) from error

    def flush(self) -> None:
        try:
            super().flush()
        except OSError as error:
            raise OutputFailed(error) from error
