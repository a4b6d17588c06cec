"""Patterns of names, in the syntax of RE2: matched in time linear in the name, as a whole.

Over the letters that the names are made of: those of topics, unless others are given. No
back-references, no looking around, no word boundaries and no Unicode classes: those are refused,
with the place of the fault.
"""

from functools import lru_cache

from penstock.model.ids import MAX_TOPIC_NAME_LENGTH
from penstock.model.name_pattern_syntax import (
    TOPIC_LETTERS,
    Alternation,
    Begin,
    CharacterClass,
    Concatenation,
    End,
    InvalidPattern,
    Node,
    Repetition,
    parse,
)

__all__ = ["InvalidPattern", "Pattern", "compile_pattern"]

MAX_STEPS = 1000  # into a name, that are looked at for what they may lead to
MAX_PLACES = 2000  # of a pattern
MAX_AT_ONCE = 100  # that a name may have led to: a letter costs as much
MAX_KEPT = 50_000  # places in the steps that are remembered; then those are worked out again

_Places = frozenset[int]


@lru_cache(maxsize=64)
def compile_pattern(
    text: str,
    *,
    letters: frozenset[str] = TOPIC_LETTERS,
    max_length: int = MAX_TOPIC_NAME_LENGTH,
) -> "Pattern":
    """For names of these letters and at most this length. InvalidPattern says what is wrong and
    where."""
    return Pattern(parse(text, letters), max_length)


class Pattern:
    """A machine whose state is the set of places that the name read so far may have led to."""

    def __init__(self, node: Node, max_length: int) -> None:
        self._max_length = max_length  # of a name
        self._letters: list[frozenset[str]] = []  # of each place: what leads on from it
        self._next: list[int] = []  # ... and where to
        self._branches: list[tuple[int, ...]] = []  # where it leads to without a letter
        self._asserts: list[type[Begin] | type[End] | None] = []  # ... only here
        self._accept = self._place()
        start = self._build(node, self._accept)
        self._start = self._reach({start}, at_begin=True, at_end=False)
        self._check_width()
        self._kept = 0
        self._steps: dict[tuple[_Places, str], _Places] = {}
        self._accepting: dict[tuple[_Places, bool], bool] = {}

    def matches(self, name: str) -> bool:
        places = self._start
        for letter in name:
            known = self._steps.get((places, letter))
            places = self._step(places, letter) if known is None else known
            if not places:
                return False
        return self._accepts(places, at_begin=not name)

    def _step(self, places: _Places, letter: str) -> _Places:
        moved = {self._next[place] for place in places if letter in self._letters[place]}
        reached = self._reach(moved, at_begin=False, at_end=False)
        self._kept += len(reached) + 1
        if self._kept > MAX_KEPT:
            self._steps.clear()
            self._accepting.clear()
            self._kept = 0
        self._steps[places, letter] = reached
        return reached

    def _accepts(self, places: _Places, *, at_begin: bool) -> bool:
        known = self._accepting.get((places, at_begin))
        if known is None:
            known = self._accept in self._reach(set(places), at_begin=at_begin, at_end=True)
            self._accepting[places, at_begin] = known
        return known

    def _reach(self, places: set[int], *, at_begin: bool, at_end: bool) -> _Places:
        """The places that these lead to without a letter, where something is waited for."""
        holds = {None: True, Begin: at_begin, End: at_end}
        reached, left = set(places), list(places)
        while left:
            place = left.pop()
            if holds[self._asserts[place]]:
                new = [branch for branch in self._branches[place] if branch not in reached]
                reached.update(new)
                left.extend(new)
        return frozenset(state for state in reached if self._waits(state))

    def _waits(self, place: int) -> bool:
        is_end = place == self._accept or self._asserts[place] is End
        return is_end or bool(self._letters[place])

    def _check_width(self) -> None:
        """No name leads to more places at once than one that has every letter everywhere."""
        places, before = self._start, frozenset[int]()
        for _ in range(min(self._max_length, MAX_STEPS)):
            if len(places) > MAX_AT_ONCE:
                raise InvalidPattern(
                    f"the pattern is too ambiguous: a name may match it in more than "
                    f"{MAX_AT_ONCE} ways at once; name what it shall begin with"
                )
            if places == before:
                return
            moved = {self._next[place] for place in places if self._letters[place]}
            places, before = self._reach(moved, at_begin=False, at_end=False), places

    # -- building --------------------------------------------------------------------------

    def _place(
        self,
        letters: frozenset[str] = frozenset(),
        then: int = 0,
        branches: tuple[int, ...] = (),
        asserts: type[Begin] | type[End] | None = None,
    ) -> int:
        if len(self._next) >= MAX_PLACES:
            raise InvalidPattern(
                f"the pattern is too large: written out, it has more than {MAX_PLACES} places"
            )
        self._letters.append(letters)
        self._next.append(then)
        self._branches.append(branches)
        self._asserts.append(asserts)
        return len(self._next) - 1

    def _build(self, node: Node, then: int) -> int:
        """The place where the node begins, if what follows it begins at `then`."""
        match node:
            case CharacterClass(letters):
                return self._place(letters, then)
            case Begin() | End():
                return self._place(branches=(then,), asserts=type(node))
            case Concatenation(parts):
                for part in reversed(parts):
                    then = self._build(part, then)
                return then
            case Alternation(options):
                return self._place(branches=tuple(self._build(option, then) for option in options))
            case Repetition():
                return self._build_repeat(node, then)

    def _build_repeat(self, node: Repetition, then: int) -> int:
        if node.most is None or node.most >= self._max_length:  # no name has more
            loop = self._place()
            self._branches[loop] = (self._build(node.part, loop), then)
            place = loop
        else:
            place = then
            for _ in range(node.most - node.least):
                place = self._place(branches=(self._build(node.part, place), then))
        for _ in range(node.least):
            place = self._build(node.part, place)
        return place
