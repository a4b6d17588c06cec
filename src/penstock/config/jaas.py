"""Reads `sasl.jaas.config` as data: which of the known login modules, and its options.

No class is ever loaded from it: other modules are refused by name (CVE-2025-27818), and no error
shows an option's value.
"""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

MAX_LENGTH = 65_536

# Login module -> the mechanisms that it is for.
LOGIN_MODULES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "org.apache.kafka.common.security.plain.PlainLoginModule": ("PLAIN",),
        "org.apache.kafka.common.security.scram.ScramLoginModule": (
            "SCRAM-SHA-256",
            "SCRAM-SHA-512",
        ),
        "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule": ("OAUTHBEARER",),
    }
)
DIGEST_LOGIN = "org.apache.zookeeper.server.auth.DigestLoginModule"  # at ZooKeeper, by DIGEST-MD5
_TOKEN = re.compile(
    r"\s*(?:"
    r'"(?P<double>(?:[^"\\\n]|\\.)*)"'
    r"|'(?P<single>(?:[^'\\\n]|\\.)*)'"
    r"|(?P<word>[A-Za-z0-9_.$:/@+-]+)"
    r"|(?P<mark>[=;])"
    r")",
    re.DOTALL,
)
_CLASS = re.compile(r"[A-Za-z0-9_$]+(?:\.[A-Za-z0-9_$]+)+")
_ESCAPE = re.compile(r"\\([0-7]{1,3}|.)", re.DOTALL)
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "b": "\b", "a": "\a", "v": "\v"}
_FLAGS = frozenset(("required", "requisite", "sufficient", "optional"))


class JaasError(ValueError):
    """The text is not one entry of a login module that is known here. Shows no option's value."""


@dataclass(frozen=True, slots=True)
class JaasEntry:
    module: str
    options: Mapping[str, str] = field(repr=False)

    def check_mechanism(self, mechanism: str) -> None:
        """JaasError if the module is another mechanism's."""
        mechanisms = LOGIN_MODULES[self.module]
        if mechanism not in mechanisms:
            raise JaasError(
                f"sasl.jaas.config: {self.module} is for {' and '.join(mechanisms)}, "
                f"and the mechanism is {mechanism}"
            )


def parse_jaas(text: str, *, modules: Collection[str] = LOGIN_MODULES) -> JaasEntry:
    """The one entry in the text, of one of these login modules."""
    if len(text) > MAX_LENGTH:
        raise JaasError(f"sasl.jaas.config has {len(text)} characters; at most {MAX_LENGTH}")
    tokens = _split(text)
    if len(tokens) < 3 or tokens[-1] != (True, ";"):
        example = f'{next(iter(modules))} required username="NAME" password="PASSWORD";'
        raise JaasError(f"sasl.jaas.config: write {example}")
    (_, module), (_, flag), *rest = tokens[:-1]
    if module not in modules:
        shown = module[:200] if _CLASS.fullmatch(module) else "its first word"
        raise JaasError(
            f"sasl.jaas.config: {shown} is not a login module here; there are {', '.join(modules)}"
        )
    if flag.lower() not in _FLAGS:
        raise JaasError(f"sasl.jaas.config: behind {module} comes the word `required`")
    return JaasEntry(module, _read_options(rest))


def _read_options(tokens: list[tuple[bool, str]]) -> Mapping[str, str]:
    options: dict[str, str] = {}
    for index in range(0, len(tokens), 3):
        option = tokens[index : index + 3]
        if len(option) < 3 or option[1] != (True, "=") or option[0][0] or option[2][0]:
            raise JaasError(
                "sasl.jaas.config: one entry has options NAME=VALUE, values in double quotes, "
                "and ends in a semicolon"
            )
        name = option[0][1]
        if name in options:
            raise JaasError(f"sasl.jaas.config: the option {name} occurs twice")
        options[name] = option[2][1]
    return MappingProxyType(options)


def _split(text: str) -> list[tuple[bool, str]]:
    """Tokens; True for `=` and `;` outside of quotes."""
    tokens: list[tuple[bool, str]] = []
    text, position = text.rstrip(), 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise JaasError(
                "sasl.jaas.config: a quote is not closed, or a value with special characters is "
                f"not in double quotes, at character {position}"
            )
        quoted = match["double"] if match["double"] is not None else match["single"]
        if quoted is not None:
            tokens.append((False, _ESCAPE.sub(_unescape, quoted)))
        else:
            tokens.append((match["mark"] is not None, match["word"] or match["mark"]))
        position = match.end()
    return tokens


def _unescape(match: re.Match[str]) -> str:
    escaped = match[1]
    if escaped[0] in "01234567":
        return chr(int(escaped, 8) & 0xFF)
    return _ESCAPED.get(escaped, escaped)
