"""`subscribePattern`: a Java regular expression that matches anywhere in a topic's name.

Rejects syntax that Python's regular expressions lack instead of guessing.
"""

import re

from penstock.spark.errors import BadOption

_JAVA_CLASSES = {
    "Alpha": "a-zA-Z",
    "Digit": "0-9",
    "Alnum": "a-zA-Z0-9",
    "Lower": "a-z",
    "Upper": "A-Z",
    "ASCII": "\\x00-\\x7f",
}
_NAMED_GROUP = re.compile(r"\(\?<(?=[a-zA-Z])")
_CLASS = re.compile(r"\\(p)\{(?:Is)?(\w+)\}")
_REFERENCE = re.compile(r"\\k<(\w+)>")


def compile_pattern(option: str, text: str) -> re.Pattern[str]:
    if not text:
        raise BadOption(option, text, "write a regular expression, for example orders-.*")
    try:
        return re.compile(_as_python(text), re.ASCII)
    except (re.error, KeyError) as error:
        raise BadOption(option, text, f"not a supported regular expression: {error}") from None


def _as_python(text: str) -> str:
    """Topic names are ASCII, so character classes can be spelled out."""
    text = _NAMED_GROUP.sub("(?P<", text)
    text = _REFERENCE.sub(r"(?P=\1)", text)
    return _CLASS.sub(lambda match: _spell_out(match, text), text)


def _spell_out(match: re.Match[str], text: str) -> str:
    letters = _JAVA_CLASSES[match[2]]
    before = text[: match.start()]
    is_inside = before.rfind("[") > before.rfind("]")
    return letters if is_inside else f"[{letters}]"
