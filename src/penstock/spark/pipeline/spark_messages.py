"""What Spark says when something fails, cut down to what a person can act on. Pure.

Spark wraps the reason into what it was doing, stack traces of two languages and plans; the whole of
it is in the log file.
"""

import re

# Begins the text of an error that a pipeline raises itself inside of a query.
BAD_VALUE_MARK = "penstock found a bad value: "

_BAD_VALUE = re.compile(re.escape(BAD_VALUE_MARK) + r"(.*?)(?= SQLSTATE:|\n|$)")
_OURS = re.compile(r"^(?:\w+:\s+)*penstock\.[\w.]+: (.+)$", re.MULTILINE)
_PYTHON = re.compile(r"^((?:\w+\.)*\w*(?:Error|Exception|Interrupt)(?:: .+)?)$", re.MULTILINE)
_CLASS = re.compile(r"\[([A-Z][A-Z0-9_.]{3,})\] ")
_PLACE = re.compile(r"\(line (\d+), pos \d+\)|; line (\d+) pos \d+")
_NOISE = re.compile(
    r"\s*SQLSTATE: \w{5}|;? ?\(?line \d+,? pos \d+\)?;?|\s+at [\w.$]+\([\w.: ]+\)", re.MULTILINE
)
# Say only that something failed, not why.
_WRAPPERS = frozenset(
    {
        "STREAM_FAILED",
        "TASK_WRITE_FAILED",
        "FAILED_EXECUTE_UDF",
        "PYTHON_STREAMING_DATA_SOURCE_RUNTIME_ERROR",
    }
)
_LONGEST = 600


def explain(text: str) -> str:
    """The reason, in one paragraph."""
    bad_value = _BAD_VALUE.search(text)
    if bad_value is not None:
        return (
            f"{bad_value[1].strip()!s}; put the record right, or add `dead_letter: TOPIC` to the "
            "source to keep such records aside, or `bad_values: skip` to drop them"
        )
    ours = _OURS.findall(text)
    if ours:
        return _shortened(ours[-1])
    raised = _PYTHON.findall(text) if "Traceback (most recent call last)" in text else []
    return _shortened(raised[-1] if raised else _innermost(text))


def find_place(text: str) -> int | None:
    """The line of the SQL that Spark points at, counted from 1."""
    match = _PLACE.search(text)
    return None if match is None else int(match[1] or match[2])


def _innermost(text: str) -> str:
    """From the last class of error that says why, up to the plan, the SQL or the stack below it."""
    marks = [match for match in _CLASS.finditer(text) if match[1] not in _WRAPPERS]
    start = marks[-1].end() if marks else 0
    return re.split(r"\n(?:'|==|\s+at |\+- |JVM stacktrace|Driver stacktrace)", text[start:])[0]


def _shortened(text: str) -> str:
    words = " ".join(_NOISE.sub("", text).split())
    return words if len(words) <= _LONGEST else f"{words[:_LONGEST]} ..."
