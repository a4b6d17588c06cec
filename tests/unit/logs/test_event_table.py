"""docs/logging.md lists every event that the code logs, and no other."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
# Their `note` and `error` are other functions.
NOT_LOGGERS = ("spark", "cli", "storage/verify", "storage/commit_log/verifying.py")
CALL = re.compile(
    r"\.(?:debug|info|warning|error|note|_log_closed|_close_because|_add)\(\s*\"([a-z]+(?:_[a-z]+)*)\""
)
VALUES = re.compile(
    r"(?:BalancerEvent|ChangeEvent|CoordinatorNote)\(\s*(?:[A-Z]\w*[^,\"]*,\s*)?\"([a-z_]+)\""
)
IN_TUPLES = re.compile(r"^        \(\"((?:isr|reassignment)_[a-z]+)\"", re.MULTILINE)
SUMS = re.compile(r"_sum_topics\(\"([a-z_]+)\"")


def logged_events() -> set[str]:
    source = ROOT / "src" / "penstock"
    events: set[str] = set()
    for path in source.rglob("*.py"):
        if path.relative_to(source).as_posix().startswith(NOT_LOGGERS):
            continue
        text = path.read_text()
        for pattern in (CALL, VALUES):
            events.update(pattern.findall(text))
        if path.name == "change_events.py":
            events.update(IN_TUPLES.findall(text), SUMS.findall(text))
    return events


def documented_events() -> set[str]:
    table = (ROOT / "docs" / "logging.md").read_text().partition("## Events")[2]
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    return {name for row in rows for name in re.findall(r"`([a-z_]+)`", row)}


def test_the_table_of_events_is_complete() -> None:
    assert logged_events() == documented_events()
