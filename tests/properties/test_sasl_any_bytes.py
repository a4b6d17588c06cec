"""Whatever a stranger sends: it is answered or the connection closes, and nobody gets in.

Frames of every kind reach the gate, the dispatcher and the handlers of a whole broker: random
bytes, requests that may come, others, and tokens that are nearly right.
"""

from __future__ import annotations

import gc
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.profile import is_long, scaled
from tests.unit.apis.harness import ApiHarness, FakeConnection
from tests.unit.security.sasl.logins import PASSWORDS, make_listener, plain_token

from penstock.protocol.api_keys import ApiKey
from penstock.protocol.malformed import MalformedMessage
from penstock.protocol.scram import ScramClient, ScramMechanism
from penstock.security.principal import ANONYMOUS
from penstock.security.sasl.login import SaslLogin

EXAMPLES = scaled(test=300, verify=5_000, release=50_000)
STRANGERS = scaled(test=2_000, verify=100_000, release=1_000_000)
_MAX_GROWTH_BYTES = 20 * 1024 * 1024
_NAMES = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "GSSAPI", "", "plain", "x" * 300)
_FIRST = ScramClient(ScramMechanism.SHA_256, "alice", "wrong").first()
_TOKENS = (
    plain_token("alice", "wrong"),
    plain_token("bob", PASSWORDS["alice"], "alice"),
    _FIRST,
    b"c=biws,r=abc,p=AAAA",
    b"n,,n=alice,r=abc",
    b"",
    b"\0\0",
    b"\xff" * 40,
)
_MECHANISMS = st.sampled_from(_NAMES) | st.text(max_size=20)


def request(key: int, version: int, body: bytes) -> bytes:
    is_flexible = (key, version) in ((36, 2), (18, 3), (18, 4))
    return struct.pack(">hhih", key, version, 1, -1) + (b"\0" if is_flexible else b"") + body


def _handshake(mechanism: str, version: int) -> bytes:
    name = mechanism.encode()
    return request(17, version, struct.pack(">h", len(name)) + name)


def _authenticate(token: bytes, version: int) -> bytes:
    if version == 2:
        length = len(token) + 1
        prefix = bytes([length]) if length < 128 else bytes([length & 127 | 128, length >> 7])
        return request(36, 2, prefix + token + b"\0")
    return request(36, version, struct.pack(">i", len(token)) + token)


def _cut(frame: bytes, at: int, byte: int) -> bytes:
    """With one byte changed, or cut off there."""
    at %= len(frame) + 1
    return frame[:at] + (bytes([byte]) + frame[at + 1 :] if byte else b"")


_TOKEN = st.sampled_from(_TOKENS) | st.binary(max_size=80)
_WHOLE = st.one_of(
    st.builds(_handshake, _MECHANISMS, st.integers(-1, 3)),
    st.builds(_authenticate, _TOKEN, st.integers(-1, 3)),
    st.builds(request, st.integers(-1, 100), st.integers(-1, 15), st.binary(max_size=60)),
    st.builds(request, st.just(18), st.integers(0, 4), st.just(b"\x02a\x02b\0")),
    _TOKEN.filter(bool),
)
_FRAME = _WHOLE | st.builds(_cut, _WHOLE, st.integers(0, 200), st.integers(0, 255)).filter(bool)


@pytest.fixture(name="harness", scope="module")
def _harness(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiHarness]:
    folder: Path = tmp_path_factory.mktemp("any-bytes")
    harness = ApiHarness(folder)
    yield harness
    harness.close()


def check_stranger(harness: ApiHarness, frames: list[bytes]) -> None:
    connection = FakeConnection(listener="CLIENTS")
    connection.login = SaslLogin(make_listener())
    for frame in frames:
        try:
            in_flight = harness.send_frame(bytearray(frame), connection)
        except MalformedMessage:
            break  # the connection closes
        harness.clock.advance_ms(100)
        assert in_flight.is_answered or connection.is_closed
        if connection.is_draining or connection.is_closed:
            break
    assert connection.caller.principal == ANONYMOUS
    assert connection.login.principal is None
    assert connection.unexpected_errors == []


@settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=not is_long(),
    suppress_health_check=list(HealthCheck),
)
@given(frames=st.lists(_FRAME, min_size=1, max_size=5))
def test_a_stranger_is_answered_or_cut_off_and_never_let_in(
    harness: ApiHarness, frames: list[bytes]
) -> None:
    check_stranger(harness, frames)


_LOGINS = (
    (_handshake("SCRAM-SHA-256", 1), _authenticate(_FIRST, 2), _authenticate(_TOKENS[3], 2)),
    (_handshake("SCRAM-SHA-512", 0), _FIRST, _TOKENS[3]),
    (_handshake("PLAIN", 1), _authenticate(_TOKENS[0], 1)),
    (_handshake("PLAIN", 0), _TOKENS[1]),
    (request(18, 3, b"\x02a\x02b\0"), _handshake("GSSAPI", 1)),
    (request(int(ApiKey.METADATA), 9, b"\x01\0\0\0"),),
)


def test_many_strangers_leave_nothing_behind(harness: ApiHarness) -> None:
    """Logins that fail, each with a few bytes changed, cut off or added."""
    random = Random(13)

    def spoil(frame: bytes) -> bytes:
        spoilt = bytearray(frame)
        for _ in range(random.randrange(3)):
            spoilt[random.randrange(len(spoilt))] = random.randrange(256)
        if random.random() < 0.2:
            del spoilt[random.randrange(1, len(spoilt) + 1) :]
        return bytes(spoilt + random.randbytes(random.choice((0, 0, 0, 1, 50))))

    def try_logins(count: int) -> None:
        for _ in range(count):
            check_stranger(harness, [spoil(frame) for frame in random.choice(_LOGINS)])

    try_logins(500)
    before = _resident_bytes()
    try_logins(STRANGERS)
    assert _resident_bytes() - before < _MAX_GROWTH_BYTES
    assert harness.clock.pending == 0


def _resident_bytes() -> int:
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGESIZE")
