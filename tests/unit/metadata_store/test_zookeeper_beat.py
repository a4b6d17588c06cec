"""Heartbeats: when to ping, when to drop a silent server, and how long to back off."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.metadata_store.zookeeper.heartbeat import attempt_timeout_ms, next_beat, pause_ms

SESSION_MS = 6_000
_AGES = st.floats(0, 20_000)


@pytest.mark.parametrize(
    ("heard_ago_ms", "sent_ago_ms", "expected"),
    [
        (0, 0, (False, False, 2_000)),
        (1_500, 1_500, (False, False, 500)),
        (1_999, 2_000, (False, True, 2_000)),
        (3_500, 2_500, (False, True, 500)),
        (3_999, 0, (False, False, 1)),
        (4_000, 0, (True, False, 0)),
        (90_000, 90_000, (True, False, 0)),
    ],
)
def test_ping_after_a_third_and_drop_after_two_thirds_of_the_timeout(
    heard_ago_ms: float, sent_ago_ms: float, expected: tuple[bool, bool, float]
) -> None:
    now_ms = 100_000.0
    beat = next_beat(
        now_ms,
        heard_ms=now_ms - heard_ago_ms,
        sent_ms=now_ms - sent_ago_ms,
        session_timeout_ms=SESSION_MS,
    )
    assert beat == pytest.approx(expected)


@given(_AGES, _AGES)
def test_the_next_check_is_never_after_the_next_deadline(heard_ago: float, sent_ago: float) -> None:
    now_ms = 50_000.0
    times = {"heard_ms": now_ms - heard_ago, "sent_ms": now_ms - sent_ago}
    beat = next_beat(now_ms, **times, session_timeout_ms=SESSION_MS)
    if not beat.is_dead:
        assert beat.wait_ms > 0
        if beat.is_ping_due:
            times["sent_ms"] = now_ms
        just_before = next_beat(
            now_ms + beat.wait_ms * 0.99, **times, session_timeout_ms=SESSION_MS
        )
        assert (just_before.is_dead, just_before.is_ping_due) == (False, False)


def test_every_server_can_be_tried_within_the_session_timeout() -> None:
    for servers in range(1, 6):
        limit_ms = attempt_timeout_ms(SESSION_MS, servers=servers)
        assert limit_ms * servers < SESSION_MS


def test_backoff_grows_to_a_second() -> None:
    pauses = [pause_ms(rounds, chance=1) for rounds in range(8)]
    assert pauses == [50, 100, 200, 400, 800, 1000, 1000, 1000]
    assert pause_ms(10_000, chance=0) == 500
