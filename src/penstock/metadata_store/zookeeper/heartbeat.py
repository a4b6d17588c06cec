"""When a session sends a ping, and when it drops a connection. Pure.

The proportions are those of ZooKeeper's own client: ping after a third of the session timeout
without sending, drop the connection after two thirds without receiving, so that the last third is
left to reach another server before the session expires.
"""

from typing import NamedTuple


class Beat(NamedTuple):
    is_dead: bool  # drop the connection
    is_ping_due: bool
    wait_ms: float  # until the next check


def next_beat(now_ms: float, *, heard_ms: float, sent_ms: float, session_timeout_ms: float) -> Beat:
    """Given when the connection last received and sent data."""
    silence_ms = session_timeout_ms * 2 / 3 - (now_ms - heard_ms)
    if silence_ms <= 0:
        return Beat(is_dead=True, is_ping_due=False, wait_ms=0)
    ping_ms = session_timeout_ms / 3 - (now_ms - sent_ms)
    if ping_ms <= 0:
        return Beat(
            is_dead=False, is_ping_due=True, wait_ms=min(silence_ms, session_timeout_ms / 3)
        )
    return Beat(is_dead=False, is_ping_due=False, wait_ms=min(silence_ms, ping_ms))


def attempt_timeout_ms(session_timeout_ms: float, *, servers: int) -> float:
    """One connection attempt's timeout: all servers can be tried within the session timeout."""
    return session_timeout_ms / (servers + 1)


def pause_ms(rounds: int, *, chance: float) -> float:
    """Backoff after a round over all servers: 50 ms, doubled each time, up to a second.

    `chance`, from 0 to 1, is jitter, so that many brokers do not reconnect at the same moment.
    """
    return float(min(50 * 2 ** min(rounds, 10), 1000)) * (0.5 + chance / 2)
