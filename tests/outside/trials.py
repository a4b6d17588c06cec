"""Runs entries one after the other and records the result of each.

Invariant: nothing is left out silently. A trial is passed, failed or skipped; a failed one names
the folder of its output, a skipped one the reason.
"""

from __future__ import annotations

import json
import time
import traceback
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path

from tests.interop.kafka_jars import KafkaUnavailableError, Say
from tests.outside.attempt import Attempt, OutsideFailed, Unavailable
from tests.outside.brokers import Brokers
from tests.outside.entries import Entry

_RESULT = "result.json"


class Verdict(Enum):
    PASSED = "passed"
    FAILED = "FAILED"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    entry: Entry
    brokers: int
    verdict: Verdict
    seconds: float
    passed: tuple[str, ...] = ()
    reason: str = ""

    def line(self) -> str:
        head = f"{self.entry.title} {self.entry.version}, brokers={self.brokers}: "
        return f"{head}{self.verdict.value} in {self.seconds:.0f} s {self.reason}".rstrip()

    def to_json(self) -> str:
        values = {name: getattr(self, name) for name in ("brokers", "seconds", "passed", "reason")}
        return json.dumps(values | {"version": self.entry.version, "verdict": self.verdict.name})


def trial_from_json(text: str, entry: Entry) -> Trial:
    """Keeps the version that was run, whatever the entry's version is now."""
    values = json.loads(text)
    return Trial(
        entry=replace(entry, version=values["version"]),
        brokers=values["brokers"],
        verdict=Verdict[values["verdict"]],
        seconds=values["seconds"],
        passed=tuple(values["passed"]),
        reason=values["reason"],
    )


def try_entry(entry: Entry, brokers: Brokers, folder: Path, say: Say) -> Trial:
    """Runs one trial; a failure in it becomes its verdict."""
    started = time.monotonic()
    own_folder = folder / f"{entry.name}-brokers-{brokers.count}"
    own_folder.mkdir(parents=True, exist_ok=True)
    attempt = Attempt(
        brokers=brokers,
        prefix=f"outside-{uuid.uuid4().hex[:8]}",
        folder=own_folder,
        deadline=started,
        say=say,
    )
    verdict, reason = _run(entry, attempt)
    trial = Trial(
        entry=entry,
        brokers=brokers.count,
        verdict=verdict,
        seconds=time.monotonic() - started,
        passed=tuple(attempt.passed),
        reason=reason,
    )
    (own_folder / _RESULT).write_text(trial.to_json())
    return trial


def find_trials(entries: Sequence[Entry], folder: Path) -> list[Trial]:
    """The last trial of each entry whose output is in this folder, in the order of the entries."""
    return [
        trial_from_json(path.read_text(), entry)
        for entry in entries
        for path in sorted(folder.glob(f"{entry.name}-brokers-*/{_RESULT}"))
    ]


def _run(entry: Entry, attempt: Attempt) -> tuple[Verdict, str]:
    try:
        run = entry.prepare(attempt.say)
        attempt.deadline = time.monotonic() + entry.timeout_s
        run(attempt)
    except (Unavailable, KafkaUnavailableError) as error:
        return Verdict.SKIPPED, str(error)
    except OutsideFailed as error:
        missing = [step for step in entry.steps if step not in attempt.passed]
        return Verdict.FAILED, f"before {missing[:1]}; {attempt.folder}: {error}"
    except Exception:  # even a bug of the harness: the other entries still run
        return Verdict.FAILED, f"{attempt.folder}: {traceback.format_exc()}"
    if attempt.passed != list(entry.steps):
        return Verdict.FAILED, f"of {list(entry.steps)} it did {attempt.passed}; {attempt.folder}"
    return Verdict.PASSED, ""
