"""Mutants of the two-phase commit, each without one rule: concurrent drivers must lose or
duplicate a batch without it, or the rule could be dropped unnoticed.

One rule has no mutant: that a new batch's decision names the transactions it aborts. Nobody can
prepare a later batch with those while one run at a time uses a checkpoint or Spark stops at a
failed commit."""

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

from penstock.spark.sink.exactly_once import two_phase_commit


class Mutant(NamedTuple):
    rule: str
    text: str  # must occur once in the module
    replacement: str


MUTANTS = [
    Mutant(
        "the decision on a batch is final",
        "is_rerun = batch.batch_id == last.batch_id",
        "is_rerun = False",
    ),
    Mutant(
        "a rerun of a decided batch is aborted",
        "candidates = dict.fromkeys([*ongoing, *batch.transactions])",
        "candidates = dict.fromkeys(() if is_rerun else [*ongoing, *batch.transactions])",
    ),
    Mutant(
        "undecided transactions that no task reported are aborted",
        "candidates = dict.fromkeys([*ongoing, *batch.transactions])",
        "candidates = dict.fromkeys(batch.transactions)",
    ),
    Mutant(
        "a new commit finishes the previous decision",
        "committed = last.committed if is_rerun else (*batch.transactions, *unfinished)",
        "committed = last.committed if is_rerun else batch.transactions",
    ),
    Mutant(
        "the next decision repeats unfinished commits",
        "decision = CommitDecision(batch.batch_id, committed, aborts, has_timeout)",
        "decision = CommitDecision(batch.batch_id, batch.transactions, aborts, has_timeout)",
    ),
    Mutant(
        "a rerun records its aborts in the decision",
        "decision = _with_aborted(last, aborts)",
        "decision = last",
    ),
    Mutant(
        "recovery records its aborts in the decision",
        "return CommitPlan(_with_aborted(last, aborts), bool(aborts), commits, aborts)",
        "return CommitPlan(last, bool(aborts), commits, aborts)",
    ),
    Mutant(
        "a commit writes the decision before it aborts",
        "return CommitPlan(decision, bool(aborts) or not is_rerun, committed, aborts)",
        "return CommitPlan(decision, not is_rerun, committed, aborts)",
    ),
    Mutant(
        "recovery writes the decision before it aborts",
        "return CommitPlan(_with_aborted(last, aborts), bool(aborts), commits, aborts)",
        "return CommitPlan(_with_aborted(last, aborts), False, commits, aborts)",
    ),
    Mutant(
        "the decision on a batch is written before it is committed",
        "return CommitPlan(decision, bool(aborts) or not is_rerun, committed, aborts)",
        "return CommitPlan(decision, bool(aborts), committed, aborts)",
    ),
    Mutant(
        "aborts are kept until the next batch is decided",
        "aborted = tuple(dict.fromkeys([*last.aborted, *aborts]))",
        "aborted = aborts",
    ),
    Mutant(
        "recovery does not abort what was decided",
        "aborts = tuple(state for state in ongoing if state not in last.committed)",
        "aborts = tuple(ongoing)",
    ),
    Mutant(
        "recovery finishes what was decided",
        "commits = tuple(state for state in last.committed if state in ongoing)\n    aborts",
        "commits = ()\n    aborts",
    ),
    Mutant("a stale batch is rejected", "if batch.batch_id < last.batch_id:", "if False:"),
    Mutant(
        "a driver whose transactions were aborted cannot commit",
        "if aborted and batch.batch_id != last.batch_id:",
        "if False:",
    ),
]
MAX_EXAMPLES = scaled(test=3_000, verify=20_000, release=20_000)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.rule)
def test_without_this_rule_a_batch_is_lost_or_duplicated(
    mutant: Mutant, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    mutated = load_mutant(mutant, tmp_path / "mutated.py")
    for name in (
        "PreparedBatch",
        "StaleBatch",
        "AbortedByAnotherRun",
        "plan_commit",
        "plan_recovery",
    ):
        monkeypatch.setattr(histories, name, getattr(mutated, name))

    @settings(
        max_examples=MAX_EXAMPLES,
        database=None,
        derandomize=True,
        deadline=None,
        phases=[Phase.generate],
    )
    @given(histories.HISTORIES, st.booleans())
    def run(actions: list[tuple[str, int, int]], is_swept: bool) -> None:
        histories.run_history(actions, is_swept=is_swept)

    with pytest.raises(AssertionError):
        run()


def load_mutant(mutant: Mutant, file: Path) -> ModuleType:
    source = Path(two_phase_commit.__file__).read_text()
    assert source.count(mutant.text) == 1, (
        "the rule is written differently now: change the mutant, too"
    )
    file.write_text(source.replace(mutant.text, mutant.replacement))
    spec = importlib.util.spec_from_file_location("mutated", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
