"""What a broker reads from an X.509 certificate: its names and when it expires.

Not a validation: OpenSSL has verified the certificates of clients before, and has matched ours with
its key. Reads DER itself, so that mTLS needs no package besides the standard library.
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import NamedTuple

_SEQUENCE, _SET = 0x30, 0x31
_VERSION, _EXTENSIONS = 0xA0, 0xA3  # tagged fields of TBSCertificate
_OBJECT_ID, _OCTETS = 0x06, 0x04
_UTC_TIME, _GENERALIZED_TIME = 0x17, 0x18
_ALTERNATIVE_NAMES = bytes.fromhex("551d11")  # 2.5.29.17
_FIRST_YEAR_OF_UTC_TIME = 1950  # RFC 5280, 4.1.2.5.1


class MalformedCertificate(ValueError):
    """The bytes are not an X.509 certificate in DER."""


class Der(NamedTuple):
    """One element of DER: its tag, its content, and both with the length as they were."""

    tag: int
    content: bytes
    raw: bytes


class NameAttribute(NamedTuple):
    oid: str  # dotted
    value: Der


class ParsedCertificate(NamedTuple):
    subject: tuple[tuple[NameAttribute, ...], ...]  # relative names in the certificate's order
    not_before_s: float  # Unix time
    not_after_s: float
    alternative_names: frozenset[bytes]  # each as it was in DER


def read_certificate(der: bytes) -> ParsedCertificate:
    """Raises MalformedCertificate."""
    try:
        return _read(der)
    except (IndexError, ValueError, StopIteration) as error:
        raise MalformedCertificate(f"not an X.509 certificate: {error}") from None


def _read(der: bytes) -> ParsedCertificate:
    whole = _expect(_read_element(der, 0)[0], _SEQUENCE)
    fields = list(read_elements(_expect(next(read_elements(whole)), _SEQUENCE)))
    if fields[0].tag == _VERSION:
        del fields[0]
    _, _, _, validity, subject, *rest = fields  # serial, algorithm and issuer are not read
    not_before, not_after = read_elements(_expect(validity, _SEQUENCE))
    return ParsedCertificate(
        subject=tuple(map(_read_relative_name, read_elements(_expect(subject, _SEQUENCE)))),
        not_before_s=_read_time(not_before),
        not_after_s=_read_time(not_after),
        alternative_names=_read_alternative_names(rest),
    )


def read_elements(content: bytes) -> Iterator[Der]:
    """The elements of a sequence or set."""
    position = 0
    while position < len(content):
        element, position = _read_element(content, position)
        yield element


def _read_element(data: bytes, start: int) -> tuple[Der, int]:
    """The element at `start`, and where the next one begins."""
    tag, length, position = data[start], data[start + 1], start + 2
    if length & 0x80:
        count = length & 0x7F
        if not 1 <= count <= 4:
            raise ValueError(f"a length of {count} bytes at {start}")
        length = int.from_bytes(data[position : position + count], "big")
        position += count
    end = position + length
    if end > len(data):
        raise ValueError(f"the element at {start} ends at {end}, behind the last byte")
    return Der(tag, data[position:end], data[start:end]), end


def _expect(element: Der, tag: int) -> bytes:
    if element.tag != tag:
        raise ValueError(f"tag {element.tag:#x} in place of {tag:#x}")
    return element.content


def _read_relative_name(element: Der) -> tuple[NameAttribute, ...]:
    return tuple(map(_read_attribute, read_elements(_expect(element, _SET))))


def _read_attribute(element: Der) -> NameAttribute:
    oid, value = read_elements(_expect(element, _SEQUENCE))
    return NameAttribute(_read_oid(_expect(oid, _OBJECT_ID)), value)


def _read_oid(content: bytes) -> str:
    numbers, number = [], 0
    for byte in content:
        number = number << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(number)
            number = 0
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))


def _read_time(element: Der) -> float:
    text = element.content.decode("ascii")
    if element.tag == _UTC_TIME:
        century = 1900 if int(text[:2]) >= _FIRST_YEAR_OF_UTC_TIME % 100 else 2000
        text = f"{century + int(text[:2])}{text[2:]}"
    elif element.tag != _GENERALIZED_TIME:
        raise ValueError(f"tag {element.tag:#x} in place of a time")
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC).timestamp()


def _read_alternative_names(fields: list[Der]) -> frozenset[bytes]:
    for field in fields:
        if field.tag == _EXTENSIONS:
            extensions = _expect(next(read_elements(field.content)), _SEQUENCE)
            for extension in read_elements(extensions):
                oid, *_, value = read_elements(_expect(extension, _SEQUENCE))
                if oid.content == _ALTERNATIVE_NAMES:
                    names = _expect(next(read_elements(_expect(value, _OCTETS))), _SEQUENCE)
                    return frozenset(name.raw for name in read_elements(names))
    return frozenset()
