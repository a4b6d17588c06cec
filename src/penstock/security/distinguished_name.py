"""The name of a certificate as text, exactly as Java prints it (`X500Principal.getName`, RFC 2253).

ACLs and super.users that were written for Kafka name principals in this form. Not a parser of such
names.
"""

from collections.abc import Mapping
from types import MappingProxyType

from penstock.security.certificate import NameAttribute

# The attributes that RFC 2253 names; Java prints all others as an OID and the value in hex.
_KEYWORDS: Mapping[str, str] = MappingProxyType(
    {
        "2.5.4.3": "CN",
        "2.5.4.6": "C",
        "2.5.4.7": "L",
        "2.5.4.8": "ST",
        "2.5.4.9": "STREET",
        "2.5.4.10": "O",
        "2.5.4.11": "OU",
        "0.9.2342.19200300.100.1.25": "DC",
        "0.9.2342.19200300.100.1.1": "UID",
    }
)
# Types of text: UTF8String, PrintableString, T61String, IA5String, GeneralString, BMPString. Java
# reads the bytes of all of them as UTF-8.
_TEXT_TAGS = frozenset((0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1E))
_ESCAPED = frozenset(',=+<>#;"\\')
_BLANK = " \r"


def format_rfc2253(subject: tuple[tuple[NameAttribute, ...], ...]) -> str:
    """The last relative name first, as RFC 2253 wants it."""
    return ",".join("+".join(map(_format_attribute, names)) for names in reversed(subject))


def _format_attribute(attribute: NameAttribute) -> str:
    keyword, value = _KEYWORDS.get(attribute.oid), attribute.value
    if keyword is None or value.tag not in _TEXT_TAGS:
        return f"{keyword or attribute.oid}=#{value.raw.hex()}"
    return f"{keyword}={_escape(value.content.decode('utf-8', 'replace'))}"


def _escape(text: str) -> str:
    escaped = "".join(_escape_character(character) for character in text)
    inner = escaped.strip(_BLANK)
    if inner == escaped:
        return escaped
    lead = len(escaped) - len(escaped.lstrip(_BLANK))
    tail = escaped[lead + len(inner) :]
    return f"{_with_backslashes(escaped[:lead])}{inner}{_with_backslashes(tail)}"


def _escape_character(character: str) -> str:
    if character == "\0":
        return "\\00"
    return f"\\{character}" if character in _ESCAPED else character


def _with_backslashes(blanks: str) -> str:
    return "".join(f"\\{blank}" for blank in blanks)
