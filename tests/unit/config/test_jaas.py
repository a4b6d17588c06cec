"""sasl.jaas.config is data: three login modules, their options, and nothing else."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.config.jaas import LOGIN_MODULES, MAX_LENGTH, JaasError, parse_jaas

PLAIN, SCRAM, OAUTH = LOGIN_MODULES


def test_entry_has_a_module_and_options() -> None:
    entry = parse_jaas(f'{SCRAM} required username="alice" password="se=cret; \\"x\\"" ;')
    assert entry.module == SCRAM
    assert entry.options == {"username": "alice", "password": 'se=cret; "x"'}


def test_entry_may_have_several_lines_and_words_without_quotes() -> None:
    entry = parse_jaas(f"{PLAIN} required\n  username=alice\n  user_alice='a b'\n;\n")
    assert entry.options == {"username": "alice", "user_alice": "a b"}


def test_module_must_be_the_mechanisms() -> None:
    entry = parse_jaas(f'{SCRAM} required username="a" password="b";')
    entry.check_mechanism("SCRAM-SHA-512")
    with pytest.raises(JaasError, match="is for SCRAM-SHA-256 and SCRAM-SHA-512"):
        entry.check_mechanism("PLAIN")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "write"),
        (f'{PLAIN} required username="a"', "write"),
        ("com.sun.security.auth.module.JndiLoginModule required;", "not a login module"),
        ("com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true;", "not a login"),
        (f"{PLAIN} perhaps;", "required"),
        (f'{PLAIN} required username="a" password="b', "quote"),
        (f"{PLAIN} required username=;", "NAME=VALUE"),
        (f"{PLAIN} required username;", "NAME=VALUE"),
        (f'{PLAIN} required username="a" username="b";', "twice"),
        (f"{PLAIN} required; {SCRAM} required;", "one entry"),
        (f"{PLAIN} required {'x' * MAX_LENGTH};", "at most"),
    ],
)
def test_anything_else_is_refused(text: str, reason: str) -> None:
    with pytest.raises(JaasError, match=reason):
        parse_jaas(text)


@given(st.text(max_size=100))
def test_any_value_survives_its_quotes(value: str) -> None:
    quoted = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    entry = parse_jaas(f'{PLAIN} required password="{quoted}";')
    assert entry.options["password"] == value
    assert "password" not in repr(entry)


@given(st.text(max_size=60), st.sampled_from(["", f"{PLAIN} required ", f'{OAUTH} required a="']))
def test_text_without_its_semicolon_is_refused_without_showing_it(text: str, head: str) -> None:
    secret = "s3cr3t-value"
    with pytest.raises(JaasError) as refused:
        parse_jaas(f'{head}{text} password="{secret}"')
    assert secret not in str(refused.value)
