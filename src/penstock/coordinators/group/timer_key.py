"""TimerKey: names a timer of a group. The group's `on_timer` decides what it does."""

from typing import NamedTuple


class TimerKey(NamedTuple):
    group: str
    kind: str
    member: str = ""
