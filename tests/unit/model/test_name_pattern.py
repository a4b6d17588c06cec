"""Patterns of topic names in RE2's syntax: matches, rejections, and running time."""

import time

import pytest

from penstock.model.name_pattern import MAX_STATES, InvalidPattern, compile_pattern


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        ("orders", ["orders"], ["orders2", "xorders", "order"]),
        ("^orders.*", ["orders", "orders-eu"], ["my-orders"]),
        ("^a.*$|^b$", ["a", "abc", "b"], ["bc", "cab"]),
        ("orders-(eu|us)", ["orders-eu", "orders-us"], ["orders-", "orders-asia"]),
        ("(?:a|b)+", ["a", "abba"], ["", "abc"]),
        ("(?P<place>eu)x", ["eux"], ["eu"]),
        ("(?<place>eu)x", ["eux"], ["eu"]),
        ("[a-c]+", ["abc"], ["abd"]),
        ("[^a-c]+", ["xyz", "9._-"], ["xay"]),
        ("[]a]", ["a"], ["b"]),
        ("[a-]", ["a", "-"], ["b"]),
        (r"[\d_]+", ["1_2"], ["a"]),
        ("[[:alpha:]]+[[:^alpha:]]", ["ab1", "ab-"], ["abc"]),
        (r"v\d+", ["v1", "v10"], ["v", "vx"]),
        (r"\w+", ["a_1"], ["a-1"]),
        (r"a\.b", ["a.b"], ["axb"]),
        (r"\Qa.b\E.", ["a.bc"], ["axbc"]),
        (r"\x41\x{42}", ["AB"], ["ab"]),
        ("a{2}", ["aa"], ["a", "aaa"]),
        ("a{2,}", ["aa", "aaaa"], ["a"]),
        ("a{0,2}b", ["b", "ab", "aab"], ["aaab"]),
        ("a{,2}", [], ["a"]),  # no repetition: braces are literals, which no topic name has
        ("(?i)Orders", ["orders", "ORDERS"], ["order"]),
        ("(?i:A)b", ["ab", "Ab"], ["aB"]),
        ("((?i)a)b", ["Ab"], ["AB"]),
        (".{0,249}x", ["x", "a" * 248 + "x"], ["", "a"]),
        ("a{2,249}", ["aa", "a" * 249], ["a"]),
        ("|".join(f"(orders-{n:03})" for n in range(90)), ["orders-089"], ["orders-090"]),
        ("a*?b??", ["", "aab"], ["bb"]),
        ("a|", ["a", ""], ["b"]),
        ("(a*)*", ["", "aaa"], ["b"]),
        ("é", [], ["e"]),
        ("(?:^$){2}", [""], ["a"]),
    ],
)
def test_a_pattern_matches_whole_names(pattern: str, yes: list[str], no: list[str]) -> None:
    compiled = compile_pattern(pattern)
    assert [name for name in yes if not compiled.matches(name)] == []
    assert [name for name in no if compiled.matches(name)] == []


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("(a", "unclosed"),
        ("a)", "unopened"),
        ("[a", "unclosed"),
        ("a**", "repeated repetition"),
        ("a{2}{3}", "repeated repetition"),
        ("*a", "nothing to repeat"),
        ("a{3,2}", "invalid repetition"),
        ("a{1001}", "invalid repetition"),
        ("[z-a]", "invalid range"),
        ("[[:letters:]]", "unknown character class"),
        ("(?=a)", "unsupported"),
        ("(?<!a)b", "unsupported"),
        (r"(a)\1", "unsupported"),
        (r"\bword", "unsupported"),
        (r"\pL", "unsupported"),
        ("a\\", "unexpected end"),
        (r"\x{110000}", "invalid character number"),
        ("(?P<>a)", "invalid name"),
        ("(" * 60 + ")" * 60, "nested groups"),
        ("a" * 2001, "characters"),
        ("(.{100}){100}", f"more than {MAX_STATES} states"),
        ("(.{0,60}a){0,9}", "too ambiguous"),
    ],
)
def test_an_unsupported_pattern_is_rejected_with_a_reason(pattern: str, why: str) -> None:
    with pytest.raises(InvalidPattern, match=why):
        compile_pattern(pattern)


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        ("payments.*", ["payments", "payments é", "payments {eu}"], ["my payments", "payments\n"]),
        ("(?s)payments.*", ["payments\n"], ["payment"]),
        ("[^a-z]+", ["É\n", "{}"], ["é a"]),
        (r"\w+\s\S+", ["a \u00e9", "my payments"], ["\u00e9 a"]),
        ("(?i)É+", ["é", "ÉÉé"], ["e"]),
        ("(?i)[a-k]", ["K"], ["é"]),
        (r"a\{1,2}", ["a{1,2}"], ["a", "aa"]),
        ("[[:punct:]]a", ["{a", "-a"], ["aa"]),
        ("x{0,300}", ["x" * 300], ["x" * 301]),
    ],
)
def test_the_alphabet_of_names_can_be_chosen(pattern: str, yes: list[str], no: list[str]) -> None:
    letters = frozenset("".join(yes + no))
    compiled = compile_pattern(pattern, letters=letters, max_length=32_767)
    assert [name for name in yes if not compiled.matches(name)] == []
    assert [name for name in no if compiled.matches(name)] == []


def test_multi_line_mode_is_rejected_if_names_may_have_newlines() -> None:
    assert compile_pattern("(?m)a").matches("a")
    with pytest.raises(InvalidPattern, match="unsupported"):
        compile_pattern("(?m)a", letters=frozenset("a\n"), max_length=9)


@pytest.mark.parametrize("pattern", ["(a*)*b", "(a|a)*b", "(.*){1,9}b", ".*.*.*.*.*.*.*b"])
def test_no_pattern_backtracks(pattern: str) -> None:
    """A backtracking matcher would take years."""
    compiled = compile_pattern(pattern)
    begin = time.process_time()
    assert not compiled.matches("a" * 249)
    assert time.process_time() - begin < 2
