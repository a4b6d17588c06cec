"""Matches whole names against RE2 patterns, in time linear in the length of the name.

The alphabet is that of topic names unless another one is given. Back-references, look-around, word
boundaries and Unicode classes are refused with the position of the error.
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

MAX_STEPS = 1000  # letters of a name that the width check follows
MAX_STATES = 2000  # of a pattern
MAX_AT_ONCE = 100  # concurrent states: each letter costs as much
MAX_KEPT = 50_000  # states in cached steps; beyond that the cache is dropped and rebuilt

_States = frozenset[int]


@lru_cache(maxsize=64)
def compile_pattern(
    text: str,
    *,
    letters: frozenset[str] = TOPIC_LETTERS,
    max_length: int = MAX_TOPIC_NAME_LENGTH,
) -> "Pattern":
    """Compile for names over this alphabet and of at most this length. InvalidPattern says what is
    wrong and where."""
    return Pattern(parse(text, letters), max_length)


class Pattern:
    """An automaton without backtracking: it tracks every state that the letters so far may lead
    to."""

    def __init__(self, node: Node, max_length: int) -> None:
        self._max_length = max_length  # of a name
        self._letters: list[frozenset[str]] = []  # per state: the letters that lead on from it
        self._next: list[int] = []  # ... and where to
        self._branches: list[tuple[int, ...]] = []  # epsilon transitions
        self._asserts: list[type[Begin] | type[End] | None] = []  # ... only here
        self._accept = self._add_state()
        start = self._build(node, self._accept)
        self._start = self._reach({start}, at_begin=True, at_end=False)
        self._check_width()
        self._kept = 0
        self._steps: dict[tuple[_States, str], _States] = {}
        self._accepting: dict[tuple[_States, bool], bool] = {}

    def matches(self, name: str) -> bool:
        states = self._start
        for letter in name:
            cached = self._steps.get((states, letter))
            states = self._step(states, letter) if cached is None else cached
            if not states:
                return False
        return self._accepts(states, at_begin=not name)

    def _step(self, states: _States, letter: str) -> _States:
        moved = {self._next[state] for state in states if letter in self._letters[state]}
        reached = self._reach(moved, at_begin=False, at_end=False)
        self._kept += len(reached) + 1
        if self._kept > MAX_KEPT:
            self._steps.clear()
            self._accepting.clear()
            self._kept = 0
        self._steps[states, letter] = reached
        return reached

    def _accepts(self, states: _States, *, at_begin: bool) -> bool:
        cached = self._accepting.get((states, at_begin))
        if cached is None:
            cached = self._accept in self._reach(set(states), at_begin=at_begin, at_end=True)
            self._accepting[states, at_begin] = cached
        return cached

    def _reach(self, states: set[int], *, at_begin: bool, at_end: bool) -> _States:
        """The states reachable from these without a letter that still expect something."""
        holds = {None: True, Begin: at_begin, End: at_end}
        reached, left = set(states), list(states)
        while left:
            state = left.pop()
            if holds[self._asserts[state]]:
                new = [branch for branch in self._branches[state] if branch not in reached]
                reached.update(new)
                left.extend(new)
        return frozenset(state for state in reached if self._waits(state))

    def _waits(self, state: int) -> bool:
        is_end = state == self._accept or self._asserts[state] is End
        return is_end or bool(self._letters[state])

    def _check_width(self) -> None:
        """Bound the states at once by the worst name: one that has every letter everywhere."""
        states, before = self._start, frozenset[int]()
        for _ in range(min(self._max_length, MAX_STEPS)):
            if len(states) > MAX_AT_ONCE:
                raise InvalidPattern(
                    f"the pattern is too ambiguous: a name may match it in more than "
                    f"{MAX_AT_ONCE} ways at once; give it a literal prefix"
                )
            if states == before:
                return
            moved = {self._next[state] for state in states if self._letters[state]}
            states, before = self._reach(moved, at_begin=False, at_end=False), states

    # -- building --------------------------------------------------------------------------

    def _add_state(
        self,
        letters: frozenset[str] = frozenset(),
        then: int = 0,
        branches: tuple[int, ...] = (),
        asserts: type[Begin] | type[End] | None = None,
    ) -> int:
        if len(self._next) >= MAX_STATES:
            raise InvalidPattern(
                f"the pattern is too large: written out, it has more than {MAX_STATES} states"
            )
        self._letters.append(letters)
        self._next.append(then)
        self._branches.append(branches)
        self._asserts.append(asserts)
        return len(self._next) - 1

    def _build(self, node: Node, then: int) -> int:
        """The first state of the node, if what follows it begins in state `then`."""
        match node:
            case CharacterClass(letters):
                return self._add_state(letters, then)
            case Begin() | End():
                return self._add_state(branches=(then,), asserts=type(node))
            case Concatenation(parts):
                for part in reversed(parts):
                    then = self._build(part, then)
                return then
            case Alternation(options):
                return self._add_state(
                    branches=tuple(self._build(option, then) for option in options)
                )
            case Repetition():
                return self._build_repeat(node, then)

    def _build_repeat(self, node: Repetition, then: int) -> int:
        if node.most is None or node.most >= self._max_length:  # no name is longer
            loop = self._add_state()
            self._branches[loop] = (self._build(node.part, loop), then)
            state = loop
        else:
            state = then
            for _ in range(node.most - node.least):
                state = self._add_state(branches=(self._build(node.part, state), then))
        for _ in range(node.least):
            state = self._build(node.part, state)
        return state
