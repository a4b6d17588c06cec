"""Column lists in Spark's DDL: splits them and checks the names. Spark checks the types.

Not a type parser: it only finds where one column ends and the next begins.
"""

import re

_NAME = re.compile(r"\s*(?:`((?:[^`]|``)+)`|([A-Za-z_]\w*))\s*:?\s+(?=\S)")


class NotColumns(ValueError):
    """Not a list of columns; the message says where it goes wrong."""


def column_names(ddl: str) -> list[str]:
    """The names in e.g. `user STRING, at TIMESTAMP, tags ARRAY<STRING>`."""
    names = [_name(column) for column in split_columns(ddl)]
    seen: set[str] = set()
    for name in names:
        if name.lower() in seen:
            raise NotColumns(f"column {name!r} occurs twice")
        seen.add(name.lower())
    return names


def to_ddl(types: dict[str, str]) -> str:
    """The DDL for these names and types; a name may contain anything."""
    return ", ".join(f"{quoted(name)} {kind}" for name, kind in types.items())


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def split_columns(ddl: str) -> list[str]:
    """Split at commas outside brackets and quotes."""
    parts, depth, quote, start = [], 0, "", 0
    for index, letter in enumerate(ddl):
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "`'\"":
            quote = letter
        elif letter in "<(":
            depth += 1
        elif letter in ">)":
            depth -= 1
        elif letter == "," and depth == 0:
            parts.append(ddl[start:index])
            start = index + 1
        if depth < 0:
            raise NotColumns(f"unmatched {letter!r} after {ddl[:index][-30:]!r}")
    if depth or quote:
        raise NotColumns(f"{quote or 'a bracket'} is never closed")
    return [*parts, ddl[start:]]


def _name(column: str) -> str:
    match = _NAME.match(column)
    if match is None:
        raise NotColumns(
            f"{column.strip()!r} is not a column: write `name TYPE`, as in `user STRING`"
        )
    return match[1].replace("``", "`") if match[1] else match[2]
