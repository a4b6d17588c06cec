"""When a session sends a sign of life, and when it gives up a connection. Pure.

The proportions are those of ZooKeeper's own client: a third of the session's time without a word
from us is a ping, two thirds without a word from the server is the end of the connection, and the
last third is left to find another server before the session expires.
"""

from typing import NamedTuple


class Beat(NamedTuple):
    is_dead: bool  # drop the connection
    is_ping_due: bool
    wait_ms: float  # until the next look


def next_beat(now_ms: float, *, heard_ms: float, sent_ms: float, session_timeout_ms: float) -> Beat:
    """By when something was last heard and sent on the connection."""
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
    """For one server to take a connection: so short that all can be tried within a session."""
    return session_timeout_ms / (servers + 1)


def pause_ms(rounds: int, *, chance: float) -> float:
    """Between two rounds over all servers: 50 ms, then twice as long each time, to a second.

    `chance`, from 0 to 1, keeps many brokers from coming back in the same moment.
    """
    return float(min(50 * 2 ** min(rounds, 10), 1000)) * (0.5 + chance / 2)
