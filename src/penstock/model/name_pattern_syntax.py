"""Parses a pattern in RE2 syntax into a tree. Does not match names.

Character classes are reduced to the alphabet of the names.
"""

import string
from typing import NamedTuple, TypeAlias

TOPIC_LETTERS = frozenset(string.ascii_letters + string.digits + "._-")
MAX_LENGTH = 2000
MAX_DEPTH = 50
MAX_COUNT = 1000  # as RE2


class InvalidPattern(ValueError):
    """The text is not a pattern, or uses an unsupported feature."""


class CharacterClass(NamedTuple):
    """Matches one letter of this set."""

    letters: frozenset[str]


class Concatenation(NamedTuple):
    parts: tuple["Node", ...]


class Alternation(NamedTuple):
    options: tuple["Node", ...]


class Repetition(NamedTuple):
    part: "Node"
    least: int
    most: int | None


class Begin(NamedTuple):
    """Matches at the start of the name."""


class End(NamedTuple):
    """Matches at the end of the name."""


Node: TypeAlias = CharacterClass | Concatenation | Alternation | Repetition | Begin | End


def parse(text: str, letters: frozenset[str]) -> Node:
    if len(text) > MAX_LENGTH:
        raise InvalidPattern(
            f"the pattern has {len(text)} characters; at most {MAX_LENGTH} are allowed"
        )
    parser = _Parser(text, letters)
    node = parser.choice(depth=0)
    if not parser.at_end:
        raise parser.fault("an unopened )")
    return node


_DIGITS = frozenset(string.digits)
_ALPHANUMERIC = frozenset(string.ascii_letters + string.digits)
_WORD = _ALPHANUMERIC | {"_"}
_BLANK = frozenset(" \t")
_GRAPH = _ALPHANUMERIC | frozenset(string.punctuation)
_ASCII = frozenset(map(chr, range(128)))
_CLASSES = {"d": _DIGITS, "w": _WORD, "s": frozenset(" \t\n\f\r")}  # upper case negates
_NAMED_CLASSES = {
    "alnum": _ALPHANUMERIC,
    "alpha": frozenset(string.ascii_letters),
    "ascii": _ASCII,
    "blank": _BLANK,
    "cntrl": _ASCII - _GRAPH - {" "},
    "digit": _DIGITS,
    "graph": _GRAPH,
    "lower": frozenset(string.ascii_lowercase),
    "print": _GRAPH | {" "},
    "punct": frozenset(string.punctuation),
    "space": frozenset(" \t\n\v\f\r"),
    "upper": frozenset(string.ascii_uppercase),
    "word": _WORD,
    "xdigit": frozenset(string.hexdigits),
}
_CONTROL = {"a": "\a", "f": "\f", "t": "\t", "n": "\n", "r": "\r", "v": "\v"}
_NO_COUNT = (-1, None)


class _Parser:
    def __init__(self, text: str, letters: frozenset[str]) -> None:
        self._text = text
        self._letters = letters | _in_both_cases(letters)  # a range that leaves one out has both
        self._at = 0
        self._any_case = False
        self._dot_is_all = False

    @property
    def at_end(self) -> bool:
        return self._at >= len(self._text)

    def fault(self, what: str) -> InvalidPattern:
        return InvalidPattern(f"{what} at character {self._at} of the pattern {self._text[:100]!r}")

    # -- the tree --------------------------------------------------------------------------

    def choice(self, depth: int) -> Node:
        if depth > MAX_DEPTH:
            raise self.fault(f"more than {MAX_DEPTH} nested groups")
        options = [self._row(depth)]
        while self._try("|"):
            options.append(self._row(depth))
        return options[0] if len(options) == 1 else Alternation(tuple(options))

    def _row(self, depth: int) -> Node:
        parts: list[Node] = []
        while not self.at_end and self._peek() not in "|)":
            if self._try("\\Q"):
                parts.extend(self._quoted())
                continue
            part = self._atom(depth)
            if part is not None:
                parts.append(self._repeated(part))
        return Concatenation(tuple(parts))

    def _repeated(self, part: Node) -> Node:
        least, most = self._count()
        if least < 0:
            return part
        self._try("?")  # non-greedy: the same names match
        if self._count() != _NO_COUNT:
            raise self.fault("a repeated repetition")
        return Repetition(part, least, most)

    def _count(self) -> tuple[int, int | None]:
        for sign, count in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self._try(sign):
                return count
        return self._braces() if not self.at_end and self._peek() == "{" else _NO_COUNT

    def _braces(self) -> tuple[int, int | None]:
        """`{2}`, `{2,}`, `{2,5}`; anything else in braces is text."""
        inner, closing, _ = self._text[self._at + 1 :].partition("}")
        least, comma, most = inner.partition(",")
        if not closing or not _is_number(least) or not (most == "" or _is_number(most)):
            return _NO_COUNT
        low = int(least)
        high = (int(most) if most else None) if comma else low
        if max(low, high or 0) > MAX_COUNT or (high is not None and high < low):
            raise self.fault(f"an invalid repetition {{{inner}}}")
        self._at += len(inner) + 2
        return low, high

    def _atom(self, depth: int) -> Node | None:
        """None: the group only sets flags."""
        match self._take():
            case "(":
                return self._group(depth)
            case "[":
                return CharacterClass(self._class())
            case ".":
                return CharacterClass(self._letters if self._dot_is_all else self._letters - {"\n"})
            case "^":
                return Begin()
            case "$":
                return End()
            case "\\":
                return self._escape()
            case "*" | "+" | "?":
                raise self.fault("nothing to repeat")
            case letter:
                return self._literal(letter)

    def _group(self, depth: int) -> Node | None:
        flags = self._any_case, self._dot_is_all
        if self._try("?"):
            if self._try("P<") or self._is_name_ahead():
                self._skip_name()
            elif not self._flags():
                return None  # `(?i)`: up to the end of the enclosing group
        node = self.choice(depth + 1)
        if not self._try(")"):
            raise self.fault("an unclosed (")
        self._any_case, self._dot_is_all = flags
        return node

    def _is_name_ahead(self) -> bool:
        ahead = self._text[self._at : self._at + 2]
        if ahead[:1] == "<" and ahead not in ("<=", "<!"):
            self._at += 1
            return True
        return False

    def _skip_name(self) -> None:
        name, closing, _ = self._text[self._at :].partition(">")
        if not closing or not name.isidentifier():
            raise self.fault("a group with an invalid name")
        self._at += len(name) + 1

    def _flags(self) -> bool:
        """Reads flags. True if a group follows them, False if the parenthesis closes."""
        value = True
        while True:
            match self._take():
                case "i":
                    self._any_case = value
                case "s":
                    self._dot_is_all = value
                case "m" if "\n" not in self._letters:
                    pass  # no effect: every name is one line
                case "U":
                    pass  # greediness: no effect on whether a name matches
                case "-":
                    value = False
                case ":":
                    return True
                case ")":
                    return False
                case _:
                    self._at -= 1
                    raise self.fault("an unsupported kind of group")

    # -- letters ---------------------------------------------------------------------------

    def _literal(self, letter: str) -> CharacterClass:
        return CharacterClass(self._cased(frozenset(letter)) & self._letters)

    def _cased(self, letters: frozenset[str]) -> frozenset[str]:
        return letters | _in_both_cases(letters) if self._any_case else letters

    def _find_class(self, letter: str) -> frozenset[str] | None:
        letters = _CLASSES.get(letter.lower())
        if letters is None:
            return None
        return letters & self._letters if letter.islower() else self._letters - letters

    def _quoted(self) -> list[Node]:
        text, _, _ = self._text[self._at :].partition("\\E")
        self._at = min(self._at + len(text) + 2, len(self._text))
        return [self._literal(character) for character in text]

    def _escape(self) -> Node:
        match self._take():
            case "A":
                return Begin()
            case "z":
                return End()
            case letter:
                letters = self._find_class(letter)
                return (
                    self._literal(self._escaped(letter))
                    if letters is None
                    else CharacterClass(letters)
                )

    def _escaped(self, letter: str) -> str:
        """The letter that an escape stands for."""
        if letter in _CONTROL:
            return _CONTROL[letter]
        if letter == "x":
            return self._hexadecimal()
        if letter == "0" or (letter in "1234567" and self._text[self._at : self._at + 1].isdigit()):
            return self._number(letter, string.octdigits, 3, base=8)
        if letter.isalnum():
            self._at -= 1
            raise self.fault(f"the unsupported escape \\{letter}")
        return letter

    def _hexadecimal(self) -> str:
        if not self._try("{"):
            return self._number("", string.hexdigits, 2, base=16)
        number = self._number("", string.hexdigits, 6, base=16)
        if not self._try("}"):
            raise self.fault("an unclosed \\x{")
        return number

    def _number(self, begun: str, digits: str, length: int, *, base: int) -> str:
        while len(begun) < length and not self.at_end and self._peek() in digits:
            begun += self._take()
        if not begun or int(begun, base) > 0x10FFFF:
            raise self.fault("an invalid character number")
        return chr(int(begun, base))

    def _class(self) -> frozenset[str]:
        is_negated = self._try("^")
        letters: frozenset[str] = frozenset()
        is_first = True
        while is_first or not self._try("]"):
            is_first = False
            letters |= self._class_item()
        letters = self._cased(letters) & self._letters
        return self._letters - letters if is_negated else letters

    def _class_item(self) -> frozenset[str]:
        if self._try("[:"):
            return self._named_class()
        low = self._class_letter()
        if isinstance(low, frozenset):
            return low
        if not self._is_range_ahead():
            return frozenset(low)
        self._take()
        high = self._class_letter()
        if isinstance(high, frozenset) or high < low:
            raise self.fault("an invalid range of characters")
        return frozenset(letter for letter in self._letters if low <= letter <= high)

    def _is_range_ahead(self) -> bool:
        ahead = self._text[self._at : self._at + 2]
        return ahead[:1] == "-" and ahead != "-]"

    def _class_letter(self) -> str | frozenset[str]:
        letter = self._take("an unclosed [")
        if letter != "\\":
            return letter
        letter = self._take()
        letters = self._find_class(letter)
        return self._escaped(letter) if letters is None else letters

    def _named_class(self) -> frozenset[str]:
        name, closing, _ = self._text[self._at :].partition(":]")
        letters = _NAMED_CLASSES.get(name.removeprefix("^"))
        if not closing or letters is None:
            raise self.fault("an unknown character class")
        self._at += len(name) + 2
        return self._letters - letters if name.startswith("^") else letters

    # -- the text --------------------------------------------------------------------------

    def _peek(self) -> str:
        return self._text[self._at]

    def _take(self, missing: str = "an unexpected end") -> str:
        if self.at_end:
            raise self.fault(missing)
        self._at += 1
        return self._text[self._at - 1]

    def _try(self, what: str) -> bool:
        if not self._text.startswith(what, self._at):
            return False
        self._at += len(what)
        return True


def _in_both_cases(letters: frozenset[str]) -> frozenset[str]:
    """These letters in upper and lower case, where the other case is a single letter."""
    both = {letter.upper() for letter in letters} | {letter.lower() for letter in letters}
    return frozenset(letter for letter in both if len(letter) == 1)


def _is_number(text: str) -> bool:
    return 0 < len(text) <= 4 and text.isascii() and text.isdigit()
