"""What Spark says when something fails, cut down to what a person can act on. Pure.

Spark wraps the reason into what it was doing, stack traces of two languages and plans; the whole of
it is in the log file.
"""

import re

# Begins the text of an error that a pipeline raises itself inside of a query.
BAD_VALUE_MARK = "penstock found a bad value: "

_BAD_VALUE = re.compile(
    r"\[USER_RAISED_EXCEPTION\] " + re.escape(BAD_VALUE_MARK) + r"(.*?) SQLSTATE:", re.DOTALL
)
_OURS = re.compile(r"^penstock\.[\w.]+: (.+)$", re.MULTILINE)
_PYTHON = re.compile(r"^((?:\w+\.)*\w*(?:Error|Exception)(?:: .+)?)$", re.MULTILINE)
_TRACE = "Traceback (most recent call last)"
_CLASS = re.compile(r"\[([A-Z][A-Z0-9_.]{3,})\] ")
_PLACE = re.compile(r"\(line (\d+), pos \d+\)|; line (\d+) pos \d+")
# What follows is the query, its plan or a stack.
_ASIDE = re.compile(
    r"; line \d+ pos \d+(?:;\n|$)|\n=== Streaming Query ===|\n\s*== SQL ==|\n\s*\+- |\n\s+at "
    r"|\nJVM stacktrace|\nDriver stacktrace|\nSearch path: "
)
_NOISE = re.compile(r"\s*SQLSTATE: \w{5}|\s*\(line \d+, pos \d+\)")
# Say only that something failed, not why.
_WRAPPERS = frozenset({"STREAM_FAILED", "TASK_WRITE_FAILED", "FAILED_EXECUTE_UDF"})
_LONGEST = 600


def explain(text: str) -> str:
    """The reason, in one paragraph."""
    bad_value = _BAD_VALUE.search(text)
    if bad_value is not None:
        return (
            f"{_shortened(bad_value[1])}; put the record right, or add `dead_letter: TOPIC` to the "
            "source to keep such records aside, or `bad_values: skip` to drop them"
        )
    ours = _OURS.findall(text)
    if ours:
        return _shortened(ours[-1])
    raised = _PYTHON.findall(text) if _TRACE in text else []
    return _shortened(raised[-1] if raised else _innermost(text))


def find_place(text: str) -> int | None:
    """The line of the SQL that Spark points at, counted from 1."""
    match = _PLACE.search(text)
    return None if match is None else int(match[1] or match[2])


def _innermost(text: str) -> str:
    """From the last class of error that says why, up to what is only beside it."""
    told = _ASIDE.split(text.strip(), maxsplit=1)[0]
    marks = [match for match in _CLASS.finditer(told) if match[1] not in _WRAPPERS]
    return told[marks[-1].end() :] if marks else told


def _shortened(text: str) -> str:
    words = " ".join(_NOISE.sub("", text).split())
    return words if len(words) <= _LONGEST else f"{words[:_LONGEST]} ..."
