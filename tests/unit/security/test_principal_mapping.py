"""ssl.principal.mapping.rules: the cases of Kafka's documentation and of its own test."""

import pytest

from penstock.security.principal_mapping import BadMappingRules, map_name, parse_mapping_rules

_RULES = (
    r"RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/, "
    r"RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L , "
    r"RULE:^cn=(.*?),ou=(.*?),dc=(.*?),dc=(.*?)$/$1@$2/U, "
    r"RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/U, "
    r"DEFAULT"
)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("CN=Duke,OU=ServiceUsers,O=Org,C=US", "Duke"),
        ("CN=Duke,OU=SME,O=mycp,L=Fulton,ST=MD,C=US", "duke@sme"),
        ("cn=duke,ou=sme,dc=mycp,dc=com", "DUKE@SME"),
        ("DN=duke,cn=duke.x,ou=sme", "DUKE.X"),
        ("DN=duke", "DN=duke"),
    ],
)
def test_the_first_rule_that_matches_the_whole_name_wins(name: str, expected: str) -> None:
    assert map_name(parse_mapping_rules(_RULES), name) == expected


@pytest.mark.parametrize("rules", ["", " ", "DEFAULT", "DEFAULT, DEFAULT"])
def test_by_default_the_name_is_the_principal(rules: str) -> None:
    assert map_name(parse_mapping_rules(rules.strip()), "CN=a,O=b") == "CN=a,O=b"


def test_a_name_that_no_rule_matches_is_nobody() -> None:
    rules = parse_mapping_rules("RULE:^CN=(.*),O=b$/$1/")
    assert map_name(rules, "CN=a,O=c") is None
    assert map_name(rules, "xCN=a,O=b") is None
    assert map_name(rules, "CN=a,O=b,C=d") is None


def test_slashes_commas_and_dollars_may_be_escaped() -> None:
    rules = parse_mapping_rules(r"RULE:^CN=(.*)\/(.*),O=.*$/$2\/$1 costs \$5/L")
    assert map_name(rules, "CN=A/B,O=c") == "b/a costs $5"


def test_javas_named_groups_are_understood() -> None:
    rules = parse_mapping_rules("RULE:^CN=(?<name>[^,]+).*$/$1/")
    assert map_name(rules, "CN=a,O=b") == "a"


@pytest.mark.parametrize(
    "rules",
    [
        "DEFAULT/L",
        "RULE:CN=(.*?),OU=ServiceUsers.*/$1",
        "RULE:^CN=(.*?)$/$1/X",
        "RULE:^CN=(.*?)$/$2/",
        "RULE:^CN=((.*?)$/$1/",
        "default",
        "RULE:a/b/L,,DEFAULT",
        "RULE:a/b/L DEFAULT",
        "RULE:a/b/LU",
    ],
)
def test_rules_that_say_nothing_clear_are_refused(rules: str) -> None:
    with pytest.raises(BadMappingRules):
        parse_mapping_rules(rules)
