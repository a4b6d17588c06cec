"""A group maps to the same partition as in Kafka."""

import pytest

from penstock.coordinators.runtime.key_hash import java_hash, partition_for


# Values of String.hashCode, by its definition: s[0]*31^(n-1) + ... + s[n-1], in 32 bits.
@pytest.mark.parametrize(
    ("text", "hashed"),
    [
        ("", 0),
        ("a", 97),
        ("ab", 97 * 31 + 98),
        ("é", 0xE9),
        ("\U0001f600", 0xD83D * 31 + 0xDE00),  # two units of UTF-16
        ("polygenelubricants", -(2**31)),  # a well-known string with this hash
    ],
)
def test_names_are_hashed_as_in_java(text: str, hashed: int) -> None:
    assert java_hash(text) == hashed


def test_the_smallest_hash_maps_to_partition_0() -> None:
    assert partition_for("polygenelubricants", 50) == 0


def test_a_negative_hash_uses_its_absolute_value() -> None:
    # 31 * 31 * 31 * 31 * 31 * 122 is 3,492,796,422: beyond 2^31, so the sign is set.
    name = "z" + "\0" * 5
    assert java_hash(name) == 122 * 31**5 - 2**32 < 0
    assert partition_for(name, 50) == (2**32 - 122 * 31**5) % 50
