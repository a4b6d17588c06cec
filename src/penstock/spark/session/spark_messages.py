"""Reduces Spark's error messages to the reason that a user can act on. Pure.

Spark wraps the reason in context, query plans and stack traces of two languages; the log file has
all of it.
"""

import re

# Prefix of errors that a pipeline itself raises inside a query.
BAD_VALUE_MARK = "penstock found a bad value: "
VIOLATION_MARK = "penstock found a violation: "

_BAD_VALUE = re.compile(
    r"\[USER_RAISED_EXCEPTION\] " + re.escape(BAD_VALUE_MARK) + r"(.*?) SQLSTATE:", re.DOTALL
)
_VIOLATION = re.compile(
    r"\[USER_RAISED_EXCEPTION\] " + re.escape(VIOLATION_MARK) + r"(.*?) SQLSTATE:", re.DOTALL
)
_PENSTOCK_ERROR = re.compile(r"^penstock\.[\w.]+: (.+)$", re.MULTILINE)
_PYTHON_ERROR = re.compile(r"^((?:\w+\.)*\w*(?:Error|Exception)(?:: .+)?)$", re.MULTILINE)
_TRACE = "Traceback (most recent call last)"
_CLASS = re.compile(r"\[([A-Z][A-Z0-9_.]{3,})\] ")
_POSITION = re.compile(r"\(line (\d+), pos \d+\)|; line (\d+) pos \d+")
# The query, its plan or a stack trace follows.
_CONTEXT = re.compile(
    r"; line \d+ pos \d+(?:;\n|$)|\n=== Streaming Query ===|\n\s*== SQL ==|\n\s*\+- |\n\s+at "
    r"|\nJVM stacktrace|\nDriver stacktrace|\nSearch path: "
)
_NOISE = re.compile(r"\s*SQLSTATE: \w{5}|\s*\(line \d+, pos \d+\)")
# Error classes that say only that something failed, not why.
_WRAPPERS = frozenset({"STREAM_FAILED", "TASK_WRITE_FAILED", "FAILED_EXECUTE_UDF"})
# The query's state was written by another query, before its aggregates or joins changed.
_STATE_OF_ANOTHER = re.compile(
    r"\[(?:STATE_STORE_\w*(?:SCHEMA|ROW_FORMAT)\w*|STREAMING_STATEFUL_OPERATOR_NOT_MATCH\w*)\]"
)
_LOST_WATERMARK = "dropDuplicatesWithinWatermark is not supported on streaming DataFrames"
_KEEP_WATERMARK = (
    "duplicates can only be found among rows with a watermark: keep its column in the SELECT, or "
    "find them in the source"
)
_UNKNOWN_FORMAT = "[DATA_SOURCE_NOT_FOUND] "
_GET_FORMAT = (
    "formats that do not come with Spark need their package, for example as spark.jars.packages "
    "under `settings:`"
)
_MAX_LENGTH = 600


def explain(text: str) -> str:
    """The reason, in one paragraph."""
    bad_value = _BAD_VALUE.search(text)
    if bad_value is not None:
        return (
            f"{_shortened(bad_value[1])}; fix the record, or add `dead_letter: TOPIC` to the "
            "source to keep such records aside, or `bad_values: skip` to drop them"
        )
    violation = _VIOLATION.search(text)
    if violation is not None:
        return (
            f"{_shortened(violation[1])}; fix the record, or give the expectation "
            "`otherwise: drop` or `otherwise: dead_letter`"
        )
    if _LOST_WATERMARK in text:
        return _KEEP_WATERMARK
    own = _PENSTOCK_ERROR.findall(text)
    if own:
        return _shortened(own[-1])
    raised = _PYTHON_ERROR.findall(text) if _TRACE in text else []
    reason = _shortened(raised[-1] if raised else _innermost(text))
    if _UNKNOWN_FORMAT in text:
        return f"{reason.rstrip('.')}; {_GET_FORMAT}"
    return reason


def is_state_of_another_query(text: str) -> bool:
    return _STATE_OF_ANOTHER.search(text) is not None


def find_line(text: str) -> int | None:
    """The line of the SQL that Spark points at, from 1."""
    match = _POSITION.search(text)
    return None if match is None else int(match[1] or match[2])


def _innermost(text: str) -> str:
    """The text from the innermost error class that says why, up to the context that follows."""
    message = _CONTEXT.split(text.strip(), maxsplit=1)[0]
    marks = [match for match in _CLASS.finditer(message) if match[1] not in _WRAPPERS]
    return message[marks[-1].end() :] if marks else message


def _shortened(text: str) -> str:
    words = " ".join(_NOISE.sub("", text).split())
    return words if len(words) <= _MAX_LENGTH else f"{words[:_MAX_LENGTH]} ..."
