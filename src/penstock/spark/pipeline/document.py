"""A tree as sections in which every entry has its line number. Independent of pipelines.

Entries are marked when they are read: an entry that is left when a section is `done` is reported as
a mistake, never ignored.
"""

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Any, NamedTuple, TypeVar

from penstock.spark.pipeline.problems import PipelineInvalid, Problem, Problems, listed, suggest
from penstock.spark.pipeline.tree import import_yaml

_Choice = TypeVar("_Choice", bound=StrEnum)
_NULL = "tag:yaml.org,2002:null"
_BOOL = "tag:yaml.org,2002:bool"


class Text(NamedTuple):
    value: str
    line: int  # of its first character: the text of a block starts after its `|`


def read_document(file: str, text: str, problems: Problems) -> "Section":
    """The top section of YAML. Invalid YAML raises at once, because nothing else can be checked."""
    yaml = import_yaml()
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        raise PipelineInvalid(file, [_syntax_problem(error)]) from None
    return top_section(file, node, problems)


def top_section(file: str, node: Any, problems: Problems) -> "Section":
    """The top section of a tree, whatever it was written in."""
    if node is None:
        raise PipelineInvalid(file, [Problem(1, "the file is empty: `penstock pipeline init`")])
    if node.id != "mapping":
        where = _line(node)
        raise PipelineInvalid(
            file, [Problem(where, "a pipeline is a list of `name: value` lines, with `sinks:`")]
        )
    return Section(node, "the file", problems)


def _syntax_problem(error: Any) -> Problem:
    mark = getattr(error, "problem_mark", None)
    what = getattr(error, "problem", None) or str(error)
    context = getattr(error, "context", None)
    where = f" ({context})" if context else ""
    return Problem(mark.line + 1 if mark else 1, f"not valid YAML: {what}{where}")


def _line(node: Any) -> int:
    return int(node.start_mark.line) + 1


class Section:
    """One mapping of the file. `find_` returns None if an entry is absent, or wrong and
    reported."""

    def __init__(self, node: Any, what: str, problems: Problems, line: int = 1) -> None:
        self.what = what  # for messages: "source clicks"
        self.line = line  # of its key
        self.problems = problems
        self._entries: dict[str, Any] = {}
        self._key_lines: dict[str, int] = {}
        self._read: set[str] = set()
        for key, value in node.value:
            self._take(key, value)

    def _take(self, key: Any, value: Any) -> None:
        if key.id != "scalar":
            self.problems.add(_line(key), f"{self.what}: a name is expected before the colon")
        elif key.value in self._entries:
            first = self._key_lines[key.value]
            self.problems.add(
                _line(key), f"{self.what}: {key.value!r} is already given in line {first}"
            )
        else:
            self._entries[key.value] = value
            self._key_lines[key.value] = _line(key)

    def __contains__(self, name: str) -> bool:
        return name in self._entries

    def names(self) -> list[str]:
        return list(self._entries)

    def line_of(self, name: str) -> int:
        """The line of the entry's key, or of the section if the entry is absent."""
        return self._key_lines.get(name, self.line)

    def wrong(self, name: str, message: str) -> None:
        self.problems.add(self.line_of(name), f"{self.what}: {message}")

    def is_text(self, name: str) -> bool:
        return name in self._entries and self._entries[name].id == "scalar"

    def find_text(self, name: str) -> Text | None:
        node = self._find(name)
        if node is None:
            return None
        if node.id != "scalar":
            self.wrong(name, f"{name!r} must be a single value")
            return None
        if node.tag == _NULL or not node.value.strip():
            self.wrong(name, f"{name!r} is empty: give it a value or leave it out")
            return None
        # The text of `|` and `>` starts on the next line.
        return Text(node.value, _line(node) + (node.style in ("|", ">")))

    def find_value(self, name: str) -> str | None:
        text = self.find_text(name)
        return text.value.strip() if text else None

    def find_flag(self, name: str, default: bool) -> bool:
        text = self.find_text(name)
        if text is None:
            return default
        if self._entries[name].tag != _BOOL:
            self.wrong(name, f"{name!r} is {text.value!r}, but must be true or false")
            return default
        return text.value.lower() in ("true", "yes", "on")

    def find_choice(self, name: str, choices: type[_Choice]) -> _Choice | None:
        value = self.find_value(name)
        if value is None:
            return None
        try:
            return choices(value)
        except ValueError:
            self.wrong(name, f"{name!r} is {value!r}, but must be one of: {listed(choices)}")
            return None

    def find_texts(self, name: str) -> list[str] | None:
        """A list of values; a single value is a list of one."""
        if self.is_text(name):
            value = self.find_value(name)
            return None if value is None else [value]
        node = self._find(name)
        if node is None:
            return None
        if node.id != "sequence" or not all(item.id == "scalar" for item in node.value):
            self.wrong(name, f"{name!r} must be a list of values: [a, b]")
            return None
        if not node.value:
            self.wrong(name, f"{name!r} is an empty list")
            return None
        return [str(item.value) for item in node.value]

    def find_section(self, name: str, what: str | None = None) -> "Section | None":
        node = self._find(name)
        if node is None:
            return None
        if node.id != "mapping":
            self.wrong(name, f"{name!r} must have `name: value` lines below it")
            return None
        return Section(node, what or f"{self.what}, {name}", self.problems, self.line_of(name))

    def texts(self) -> Iterator[tuple[str, Text]]:
        """Every entry as a single value, for sections whose keys the user chooses."""
        for name in self.names():
            text = self.find_text(name)
            if text is not None:
                yield name, text

    def plain(self) -> Mapping[str, Any]:
        """The section as plain YAML values."""
        from yaml.constructor import SafeConstructor

        self._read.update(self._entries)
        constructor = SafeConstructor()
        return {
            name: constructor.construct_object(node, deep=True)
            for name, node in self._entries.items()
        }

    def give_up(self) -> None:
        """Reports no further mistakes in this section: the rest cannot be judged."""
        self._read.update(self._entries)

    def done(self) -> None:
        """Reports every entry that was not read as unknown."""
        expected = self._read
        for name in self._entries:
            if name not in expected:
                self.wrong(
                    name,
                    f"{name!r} is not expected here{suggest(name, expected)}; "
                    f"possible are: {listed(expected)}",
                )

    def _find(self, name: str) -> Any:
        self._read.add(name)
        return self._entries.get(name)
