"""What a worker prints, and what of it is left."""

import io
import traceback

import pytest

from penstock.spark.session.worker_daemon import QuietErrors


def failed_flush(error: Exception) -> str:
    try:
        raise error
    except OSError:
        return (
            "PySpark daemon failed to flush the output to the worker process:\n"
            + traceback.format_exc()
        )


@pytest.mark.parametrize("error", [BrokenPipeError(32, "Broken pipe"), ConnectionResetError()])
def test_worker_whose_rows_nobody_wants_is_silent(error: Exception) -> None:
    out = io.StringIO()
    errors = QuietErrors(out)
    print("before", file=errors)
    print(failed_flush(error), file=errors)
    print("after", file=errors)
    print(file=errors)
    assert out.getvalue() == "before\nafter\n\n"


def test_every_other_failure_is_printed() -> None:
    out = io.StringIO()
    text = failed_flush(OSError(28, "No space left on device"))
    print(text, file=QuietErrors(out))
    assert out.getvalue() == f"{text}\n"
