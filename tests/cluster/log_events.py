"""Reads the JSON logs of a cluster's brokers and reconstructs from them alone what happened."""

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from penstock.testing import Cluster

Event = dict[str, Any]
Step = Callable[[Event], bool]


def read_events(cluster: Cluster, brokers: Sequence[int] = (1, 2, 3)) -> list[Event]:
    """The events of all brokers in the order of their times."""
    # Without a line that is being written.
    texts = (cluster.logs(broker).rpartition("\n")[0] for broker in brokers)
    lines = (line for text in texts for line in text.splitlines())
    return sorted(map(json.loads, lines), key=lambda event: event["time"])


def wait_events(cluster: Cluster, steps: Sequence[Step]) -> list[Event]:
    """All events, once the steps are among them: a log sums up changes for 100 ms."""

    def are_there(events: list[Event]) -> bool:
        rest = iter(events)
        return all(any(is_step(event) for event in rest) for is_step in steps)

    return cluster.wait(lambda: read_events(cluster), are_there)


def step(name: str, *, by: int | None = None, **fields: object) -> Step:
    """An event of this name, logged by this broker, with these values. A list must contain the
    value."""

    def matches(event: Event) -> bool:
        if event["event"] != name or (by is not None and event["broker"] != by):
            return False
        return all(_has(event.get(key), value) for key, value in fields.items())

    return matches


def _has(actual: object, wanted: object) -> bool:
    return wanted in actual if isinstance(actual, list) else actual == wanted


def find_in_order(events: Sequence[Event], steps: Sequence[Step]) -> list[Event]:
    """The first event of each step after that of the step before it; AssertionError if one is
    missing."""
    rest: Iterator[Event] = iter(events)
    matched: list[Event] = []
    for number, is_step in enumerate(steps):
        event = next((event for event in rest if is_step(event)), None)
        assert event is not None, f"step {number} is missing after {matched[-1:]} in\n" + "\n".join(
            f"{e['time']} {e['broker']} {e['event']} {e}" for e in events
        )
        matched.append(event)
    return matched
