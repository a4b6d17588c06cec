"""ssl.principal.mapping.rules: from the name of a client's certificate to a principal's name.

Kafka's syntax: rules separated by commas, each `DEFAULT` or `RULE:pattern/replacement/[LU]`. The
first pattern that matches the whole name wins. Invariant: a name that no rule matches is nobody.
"""

import re
from typing import NamedTuple

_RULE = re.compile(
    r"\s*(?:(?P<default>DEFAULT)|"
    r"RULE:(?P<pattern>(?:\\.|[^\\/])*)/(?P<replacement>(?:\\.|[^\\/])*)/(?P<letter>[LU]?))\s*"
    r"(?:,|\Z)"
)
_REFERENCE = re.compile(r"\\(?P<literal>.)|\$(?P<group>[0-9])", re.DOTALL)
_NAMED_GROUP = re.compile(r"\(\?<(?=[A-Za-z])")  # Java's, without the P of Python's


class BadMappingRules(ValueError):
    """The text is no list of rules."""


class MappingRule(NamedTuple):
    pattern: re.Pattern[str] | None  # None: DEFAULT
    replacement: str
    letter: str  # "L" or "U": in lower or in upper case

    def find(self, name: str) -> str | None:
        """The principal's name; None if this rule does not match."""
        if self.pattern is None:
            return name
        match = self.pattern.fullmatch(name)
        if match is None:
            return None
        mapped = _REFERENCE.sub(
            lambda part: part["literal"] or match[int(part["group"])] or "", self.replacement
        )
        return {"L": mapped.lower(), "U": mapped.upper()}.get(self.letter, mapped)


def parse_mapping_rules(text: str) -> tuple[MappingRule, ...]:
    """Raises BadMappingRules."""
    rules, position = [], 0
    while position < len(text):
        match = _RULE.match(text, position)
        if match is None:
            raise BadMappingRules(
                f"{text[position:].strip()!r} is no rule; a rule is DEFAULT or "
                "RULE:pattern/replacement/ with an L or a U at its end, and a comma between two"
            )
        rules.append(_parse_rule(match))
        position = match.end()
    return tuple(rules) or (MappingRule(None, "", ""),)


def map_name(rules: tuple[MappingRule, ...], name: str) -> str | None:
    """None: no rule matches."""
    for rule in rules:
        mapped = rule.find(name)
        if mapped is not None:
            return mapped
    return None


def _parse_rule(match: re.Match[str]) -> MappingRule:
    if match["default"]:
        return MappingRule(None, "", "")
    try:
        pattern = re.compile(_NAMED_GROUP.sub("(?P<", match["pattern"]))
    except re.error as error:
        raise BadMappingRules(
            f"{match['pattern']!r} is not a pattern that is understood here ({error})"
        ) from None
    for reference in _REFERENCE.finditer(match["replacement"]):
        if reference["group"] is not None and int(reference["group"]) > pattern.groups:
            raise BadMappingRules(
                f"{match['replacement']!r} has ${reference['group']}, but "
                f"{match['pattern']!r} has {pattern.groups} groups"
            )
    return MappingRule(pattern, match["replacement"], match["letter"])
