"""The rules about decisions, taken out one at a time: drivers that run against each other must
come to harm without each of them, or it would be lost unseen.

That a new batch's decision names what it aborts is not among them: nobody could ask for a later
batch with those, while one run at a time uses a checkpoint or Spark stops at a failed commit."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from tests.profile import scaled
from tests.properties import test_exactly_once_decisions as histories

from penstock.spark.sink.exactly_once import two_phase_commit as decisions


class Mutant(NamedTuple):
    rule: str
    text: str  # once in the module
    instead: str


MUTANTS = [
    Mutant(
        "what was decided for a batch stays so",
        "is_repeated = asked.batch == last.batch",
        "is_repeated = False",
    ),
    Mutant(
        "of a batch that is run again, the second writing is aborted",
        "candidates = dict.fromkeys([*still_open, *asked.prepared])",
        "candidates = dict.fromkeys(() if is_repeated else [*still_open, *asked.prepared])",
    ),
    Mutant(
        "what is undecided and was not reported is aborted",
        "candidates = dict.fromkeys([*still_open, *asked.prepared])",
        "candidates = dict.fromkeys(asked.prepared)",
    ),
    Mutant(
        "what was decided before is finished",
        "committed = last.committed if is_repeated else (*asked.prepared, *unfinished)",
        "committed = last.committed if is_repeated else asked.prepared",
    ),
    Mutant(
        "what was decided before and is not finished stands in the next decision",
        "decision = CommitDecision(asked.batch, committed, aborts, is_timed)",
        "decision = CommitDecision(asked.batch, asked.prepared, aborts, is_timed)",
    ),
    Mutant(
        "what is aborted stands in the decision when a batch is run again",
        "decision = _with_aborted(last, aborts)",
        "decision = last",
    ),
    Mutant(
        "what is aborted stands in the decision of who gives up",
        "return CommitPlan(_with_aborted(last, aborts), bool(aborts), commits, aborts)",
        "return CommitPlan(last, bool(aborts), commits, aborts)",
    ),
    Mutant(
        "the decision is written before anything is aborted, in a commit",
        "return CommitPlan(decision, bool(aborts) or not is_repeated, committed, aborts)",
        "return CommitPlan(decision, not is_repeated, committed, aborts)",
    ),
    Mutant(
        "the decision is written before anything is aborted, by who gives up",
        "return CommitPlan(_with_aborted(last, aborts), bool(aborts), commits, aborts)",
        "return CommitPlan(_with_aborted(last, aborts), False, commits, aborts)",
    ),
    Mutant(
        "the decision about a batch is written before it is committed",
        "return CommitPlan(decision, bool(aborts) or not is_repeated, committed, aborts)",
        "return CommitPlan(decision, bool(aborts), committed, aborts)",
    ),
    Mutant(
        "what was aborted is kept until the next batch is decided",
        "aborted = tuple(dict.fromkeys([*last.aborted, *aborts]))",
        "aborted = aborts",
    ),
    Mutant(
        "who gives up does not abort what was decided",
        "aborts = tuple(each for each in still_open if each not in last.committed)",
        "aborts = tuple(still_open)",
    ),
    Mutant(
        "who gives up finishes what was decided",
        "commits = tuple(each for each in last.committed if each in still_open)\n    aborts",
        "commits = ()\n    aborts",
    ),
    Mutant("an older batch is refused", "if asked.batch < last.batch:", "if False:"),
    Mutant(
        "who was given up cannot decide",
        "if overruled and asked.batch != last.batch:",
        "if False:",
    ),
]
MOST = scaled(test=3_000, verify=20_000, release=20_000)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda item: item.rule)
def test_without_this_rule_a_batch_is_lost_or_written_twice(
    mutant: Mutant, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    planted = load_without(mutant, tmp_path / "planted.py")
    for name in (
        "PreparedBatch",
        "StaleBatch",
        "AbortedByAnotherRun",
        "plan_commit",
        "plan_recovery",
    ):
        monkeypatch.setattr(histories, name, getattr(planted, name))

    @settings(
        max_examples=MOST, database=None, derandomize=True, deadline=None, phases=[Phase.generate]
    )
    @given(histories.HISTORIES, st.booleans())
    def look(actions: list[tuple[str, int, int]], is_swept: bool) -> None:
        histories.live_through(actions, is_swept=is_swept)

    with pytest.raises(AssertionError):
        look()


def load_without(mutant: Mutant, file: Path) -> ModuleType:
    source = Path(decisions.__file__).read_text()
    assert source.count(mutant.text) == 1, "the rule is written otherwise: change the mutant, too"
    file.write_text(source.replace(mutant.text, mutant.instead))
    spec = importlib.util.spec_from_file_location("planted", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
