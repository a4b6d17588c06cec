"""What a worker prints, and what of it is left."""

import io
import traceback

import pytest

from penstock.spark.session.worker_daemon import QuietErrors


class ClosedFile:
    def __init__(self, error: Exception) -> None:
        self._error = error

    def flush(self) -> None:
        raise self._error


def print_failed_flush(error: Exception, errors: QuietErrors) -> None:
    outfile = ClosedFile(error)
    try:
        outfile.flush()
    except OSError:
        traceback.print_exc(file=errors)


@pytest.mark.parametrize("error", [BrokenPipeError(32, "Broken pipe"), ConnectionResetError()])
def test_worker_whose_rows_nobody_wants_is_silent(error: Exception) -> None:
    out = io.StringIO()
    errors = QuietErrors(out)
    print("before", file=errors)
    print_failed_flush(error, errors)
    print("after", file=errors)
    assert out.getvalue() == "before\nafter\n"


def test_every_other_failure_is_printed() -> None:
    out = io.StringIO()
    print_failed_flush(OSError(28, "No space left on device"), QuietErrors(out))
    text = out.getvalue()
    assert text.startswith("Traceback (most recent call last):\n")
    assert text.endswith("OSError: [Errno 28] No space left on device\n")


def test_broken_pipe_of_other_code_is_printed() -> None:
    out = io.StringIO()
    try:
        raise BrokenPipeError(32, "Broken pipe")
    except OSError:
        traceback.print_exc(file=QuietErrors(out))
    assert out.getvalue().endswith("BrokenPipeError: [Errno 32] Broken pipe\n")
