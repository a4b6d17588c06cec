"""A pipeline written as SQL statements, read into the same tree as YAML. Runs no SQL.

    SET bootstrap = 'broker:9092';
    CREATE SOURCE clicks WITH (topic = 'clicks', value = (format = 'json', schema = 'ms INT'));
    CREATE VIEW slow AS SELECT * FROM clicks WHERE ms > 500;
    CREATE SINK slow FROM slow WITH (topic = 'slow', key = 'user');

Entries in parentheses have the names of the YAML file. What follows AS is Spark's, unchanged.
"""

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from penstock.spark.pipeline.problems import PipelineInvalid, Problem
from penstock.spark.pipeline.tree import list_node, mapping_node, scalar_node

_SKIPPED = r"\s+|--[^\n]*|/\*.*?\*/"
_TOKEN = re.compile(
    rf"(?P<skip>{_SKIPPED})|(?P<text>'(?:[^']|'')*')|(?P<name>`[^`]+`)"
    r"|(?P<number>-?\d+(?:\.\d+)?\b)|(?P<word>[A-Za-z_][\w.]*)|(?P<mark>[()\[\],=;])",
    re.DOTALL,
)
_BODY = re.compile(
    r"""(?:--[^\n]*|/\*.*?\*/|'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`[^`]*`|[^;])*""", re.DOTALL
)
_KINDS = {"source": "sources", "view": "views", "sink": "sinks", "function": "functions"}
_SHAPE = "statements are SET, CREATE SOURCE, CREATE FUNCTION, CREATE VIEW and CREATE SINK"


class _Token(NamedTuple):
    kind: str  # text, name, number, word, mark; "end" after the last
    value: Any
    line: int

    def is_word(self, *words: str) -> bool:
        return self.kind == "word" and self.value.lower() in words


def read_sql_tree(file: str, text: str) -> Any:
    """The file's tree; None if it has no statement. Raises PipelineInvalid at the first mistake."""
    return _Parser(file, text).parse()


class _Parser:
    def __init__(self, file: str, text: str) -> None:
        self._file = file
        self._text = text
        self._position = 0
        self._top: list[tuple[Any, Any]] = []
        self._groups: dict[str, list[tuple[Any, Any]]] = {}
        self._lines: dict[str, int] = {}

    def parse(self) -> Any:
        while (token := self._next()).kind != "end":
            if token == ("mark", ";", token.line):
                continue
            if token.is_word("set"):
                self._read_set()
            elif token.is_word("create"):
                self._read_create(token.line)
            else:
                raise self._wrong(token, _SHAPE)
        groups = [
            (scalar_node(name, self._lines[name]), mapping_node(entries, self._lines[name]))
            for name, entries in self._groups.items()
        ]
        entries = [*self._top, *groups]
        return mapping_node(entries, 1) if entries else None

    def _read_set(self) -> None:
        key = self._expect_name("the name of a setting")
        self._expect_mark("=")
        value = self._value()
        if key.value.startswith("spark."):
            self._lines.setdefault("settings", key.line)
            self._groups.setdefault("settings", []).append((_key(key), value))
        else:
            self._top.append((_key(key), value))
        self._end_statement()

    def _read_create(self, line: int) -> None:
        token = self._next()
        while token.is_word("or", "replace", "temporary", "temp", "streaming"):
            token = self._next()
        kind = str(token.value).lower()
        if token.kind != "word" or kind not in _KINDS:
            raise self._wrong(token, _SHAPE)
        name = self._expect_name(f"the name of the {kind}")
        group = _KINDS[kind]
        self._lines.setdefault(group, line)
        self._groups.setdefault(group, []).append(
            (scalar_node(name.value, line), self._read_entries(kind, line))
        )

    def _read_entries(self, kind: str, line: int) -> Any:
        entries: list[tuple[Any, Any]] = []
        token = self._next()
        while not (token.kind == "end" or token.value == ";"):
            if token.is_word("from") and kind in ("sink", "view"):
                relation = self._expect_name("a source or view")
                entries.append((scalar_node("from", token.line), _name_node(relation)))
            elif token.is_word("with"):
                self._expect_mark("(")
                entries += self._entries()
            elif token.is_word("returns") and kind == "function":
                entries.append((scalar_node("returns", token.line), self._value()))
            elif token.is_word("as") and kind == "function":
                entries.append((scalar_node("python", token.line), self._value()))
            elif token.is_word("as") and kind in ("sink", "view"):
                entries.append((scalar_node("query", token.line), self._body()))
            else:
                raise self._wrong(token, "expected here: FROM, WITH (...), AS, or ; at the end")
            token = self._next()
        return mapping_node(entries, line)

    def _entries(self) -> list[tuple[Any, Any]]:
        """`name = value, ...` up to the closing parenthesis, which is read."""
        entries: list[tuple[Any, Any]] = []
        while True:
            token = self._next()
            if token.value == ")" and token.kind == "mark":
                return entries
            if token.kind not in ("word", "name", "number", "text"):
                raise self._wrong(token, "expected here: `name = value`, or )")
            self._expect_mark("=")
            entries.append((_key(token), self._value()))
            after = self._next()
            if after.kind != "mark" or after.value not in (",", ")"):
                raise self._wrong(after, "expected here: a comma, or )")
            if after.value == ")":
                return entries

    def _value(self) -> Any:
        token = self._next()
        if token.kind == "mark" and token.value == "(":
            return mapping_node(self._entries(), token.line)
        if token.kind == "mark" and token.value == "[":
            return list_node(list(self._items()), token.line)
        if token.kind in ("text", "number", "name"):
            return scalar_node(token.value, token.line)
        if token.kind == "word":
            return _name_node(token)
        raise self._wrong(token, "expected here: 'text', a number, true, false, (...) or [...]")

    def _items(self) -> Iterator[Any]:
        while True:
            yield self._value()
            after = self._next()
            if after.kind == "mark" and after.value == "]":
                return
            if after.value != ",":
                raise self._wrong(after, "expected here: a comma, or ]")

    def _body(self) -> Any:
        """Spark's SQL up to the end of the statement."""
        skipped = re.compile(r"\s*").match(self._text, self._position)
        assert skipped is not None
        start = skipped.end()
        match = _BODY.match(self._text, start)
        assert match is not None
        line = self._line_at(start)
        self._position = match.end()
        return scalar_node(match[0].rstrip(), line)

    def _end_statement(self) -> None:
        token = self._next()
        if token.kind != "end" and token.value != ";":
            raise self._wrong(token, "expected here: ; at the end of the statement")

    def _expect_name(self, what: str) -> _Token:
        token = self._next()
        if token.kind not in ("word", "name"):
            raise self._wrong(token, f"expected here: {what}")
        return token

    def _expect_mark(self, mark: str) -> None:
        token = self._next()
        if token.kind != "mark" or token.value != mark:
            raise self._wrong(token, f"expected here: {mark}")

    def _next(self) -> _Token:
        while self._position < len(self._text):
            line = self._line_at(self._position)
            match = _TOKEN.match(self._text, self._position)
            if match is None or match.lastgroup is None:
                shown = self._text[self._position :].split("\n")[0][:20]
                problem = Problem(line, f"not valid SQL of a pipeline at {shown!r}; {_SHAPE}")
                raise PipelineInvalid(self._file, [problem])
            self._position = match.end()
            if match.lastgroup != "skip":
                return _Token(match.lastgroup, _plain(match.lastgroup, match[0]), line)
        return _Token("end", "the end of the file", self._line_at(len(self._text.rstrip())))

    def _line_at(self, position: int) -> int:
        return self._text.count("\n", 0, position) + 1

    def _wrong(self, token: _Token, expected: str) -> PipelineInvalid:
        problem = Problem(token.line, f"{str(token.value)[:40]!r} is not expected; {expected}")
        return PipelineInvalid(self._file, [problem])


def _plain(kind: str, text: str) -> Any:
    if kind == "text":
        return text[1:-1].replace("''", "'")
    if kind == "name":
        return text[1:-1]
    if kind == "number":
        return float(text) if "." in text else int(text)
    return text


def _key(token: _Token) -> Any:
    return scalar_node(str(token.value), token.line)


def _name_node(token: _Token) -> Any:
    flags = {"true": True, "false": False}
    is_flag = token.kind == "word" and token.value.lower() in flags
    return scalar_node(flags[token.value.lower()] if is_flag else token.value, token.line)
