"""The columns of a value, in YAML or in Spark's DDL: names are checked here, types by Spark.

Not a parser of types: it only finds where one column ends and the next begins.
"""

import re

_NAME = re.compile(r"\s*(?:`((?:[^`]|``)+)`|([A-Za-z_]\w*))\s*:?\s+(?=\S)")


class NotColumns(ValueError):
    """What is written is no list of columns; the text says where it goes wrong."""


def column_names(ddl: str) -> list[str]:
    """Of `user STRING, at TIMESTAMP, tags ARRAY<STRING>`."""
    names = [_name(each) for each in split_columns(ddl)]
    seen: set[str] = set()
    for name in names:
        if name.lower() in seen:
            raise NotColumns(f"column {name!r} is there twice")
        seen.add(name.lower())
    return names


def to_ddl(types: dict[str, str]) -> str:
    """Of names and types; a name may be anything."""
    return ", ".join(f"{quoted(name)} {kind}" for name, kind in types.items())


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def split_columns(ddl: str) -> list[str]:
    """At commas outside of brackets and quotes."""
    parts, depth, quote, start = [], 0, "", 0
    for place, letter in enumerate(ddl):
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "`'\"":
            quote = letter
        elif letter in "<(":
            depth += 1
        elif letter in ">)":
            depth -= 1
        elif letter == "," and depth == 0:
            parts.append(ddl[start:place])
            start = place + 1
        if depth < 0:
            raise NotColumns(f"{letter!r} without its beginning, after {ddl[:place][-30:]!r}")
    if depth or quote:
        raise NotColumns(f"{quote or 'a bracket'} is opened and never closed")
    return [*parts, ddl[start:]]


def _name(column: str) -> str:
    match = _NAME.match(column)
    if match is None:
        raise NotColumns(f"{column.strip()!r} is no column: write `name TYPE`, as in `user STRING`")
    return match[1].replace("``", "`") if match[1] else match[2]
