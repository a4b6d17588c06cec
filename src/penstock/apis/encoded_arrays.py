"""Puts arrays that are encoded already at the end of messages, so that large responses are built in
turns and what several entries share is encoded once."""

from collections.abc import Sequence

from penstock.protocol.unsigned_varint import encode_unsigned_varint

_NO_TAGS = b"\0"


def encode_array(items: Sequence[bytes], *, is_flexible: bool) -> bytes:
    count = len(items)
    size = encode_unsigned_varint(count + 1) if is_flexible else count.to_bytes(4, "big")
    return size + b"".join(items)


def fill_last_array(message: bytes, array: bytes, *, is_flexible: bool) -> bytes:
    """The message with `array` in place of the empty array at its end; it has no tagged fields."""
    tags = _NO_TAGS if is_flexible else b""
    empty = encode_array((), is_flexible=is_flexible) + tags
    assert message.endswith(empty), "the last field is no empty array"
    return message[: -len(empty)] + array + tags
