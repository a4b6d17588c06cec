"""The harness of the outside programs: what passes, fails or is skipped, and the table."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from tests.outside.attempt import Attempt, Unavailable
from tests.outside.brokers import Brokers
from tests.outside.entries import Entry, Run, list_entries
from tests.outside.packages import GO, NODE
from tests.outside.table import END, START, replace_table, table_of
from tests.outside.trials import Trial, Verdict, find_trials, try_entry

NO_BROKERS = Brokers(3, "nowhere:1", [], create_topic=lambda *_, **__: None)


def entry_of(run: Run, *steps: str, timeout_s: float = 60.0) -> Entry:
    return Entry(
        name="client",
        title="a client",
        version="1.2",
        steps=steps,
        timeout_s=timeout_s,
        prepare=lambda _say: run,
    )


def attempt_to(run: Run, folder: Path, *steps: str, timeout_s: float = 60.0) -> Trial:
    return try_entry(entry_of(run, *steps, timeout_s=timeout_s), NO_BROKERS, folder, print)


def test_an_entry_passes_when_it_reports_every_step(tmp_path: Path) -> None:
    def run(attempt: Attempt) -> None:
        plan = json.loads(attempt.plan(["topics", "group"]))
        assert (plan["bootstrap"], plan["replication"]) == ("nowhere:1", 3)
        attempt.passed += plan["steps"]

    assert attempt_to(run, tmp_path, "topics", "group").verdict is Verdict.PASSED


def test_an_entry_that_leaves_out_a_step_fails(tmp_path: Path) -> None:
    trial = attempt_to(lambda attempt: attempt.ok("topics"), tmp_path, "topics", "group")
    assert trial.verdict is Verdict.FAILED
    assert "| FAILED at group |" in table_of([trial])


def test_a_command_that_fails_leaves_its_output(tmp_path: Path) -> None:
    def run(attempt: Attempt) -> None:
        attempt.run("program", [sys.executable, "-S", "-c", "print('why'); raise SystemExit(3)"])

    trial = attempt_to(run, tmp_path, "topics")
    assert trial.verdict is Verdict.FAILED
    assert "ended with 3" in trial.reason
    assert "why" in trial.reason
    assert [path.read_text() for path in tmp_path.rglob("program.out")] == ["why\n"]


def test_a_command_that_never_ends_is_killed(tmp_path: Path) -> None:
    pids = []

    def run(attempt: Attempt) -> None:
        attempt.deadline = 0.0  # in the past
        command = [sys.executable, "-S", "-c", "import signal; signal.pause()"]
        with attempt.started("program", command) as process:
            pids.append(process)
            attempt.wait_for("the end of time", lambda: False, "program")

    trial = attempt_to(run, tmp_path, "topics")
    assert trial.verdict is Verdict.FAILED
    assert "the end of time" in trial.reason
    assert pids[0].returncode is not None


def test_an_unavailable_entry_is_skipped_with_the_reason(tmp_path: Path) -> None:
    def prepare(_say: object) -> Run:
        raise Unavailable("`npm` is not on the path; install it to run this")

    entry = replace(entry_of(lambda _attempt: None, "topics"), prepare=prepare)
    trial = try_entry(entry, NO_BROKERS, tmp_path, print)
    assert trial.verdict is Verdict.SKIPPED
    assert "npm" in trial.line()


def test_an_unexpected_exception_fails_its_entry_only(tmp_path: Path) -> None:
    def run(_attempt: Attempt) -> None:
        raise KeyError("unforeseen")

    trial = attempt_to(run, tmp_path, "topics")
    assert trial.verdict is Verdict.FAILED
    assert "unforeseen" in trial.reason


def test_the_table_has_a_row_for_each_entry_and_a_column_for_each_size() -> None:
    entry = entry_of(lambda _attempt: None, "topics", "group")
    trials = [
        Trial(entry=entry, brokers=count, verdict=verdict, seconds=1.0)
        for count, verdict in ((1, Verdict.PASSED), (3, Verdict.SKIPPED))
    ]
    assert (
        table_of(trials).splitlines()[0] == "| program | version | 1 broker | 3 brokers | steps |"
    )
    assert table_of(trials).splitlines()[2:] == [
        "| a client | 1.2 | passed | skipped | topics, group |"
    ]


def test_a_folder_remembers_the_trials_of_earlier_runs(tmp_path: Path) -> None:
    entry = entry_of(lambda attempt: attempt.ok("topics"), "topics", "group")
    trial = try_entry(entry, NO_BROKERS, tmp_path, print)
    (kept,) = find_trials([replace(entry, version="1.3")], tmp_path)
    assert kept == trial
    assert kept.verdict is Verdict.FAILED


def test_the_table_replaces_only_the_text_between_the_marks(tmp_path: Path) -> None:
    document = tmp_path / "document.md"
    document.write_text(f"before\n{START}\nold\n{END}\nafter\n")
    replace_table(document, "| new |")
    assert document.read_text() == f"before\n{START}\n| new |\n{END}\nafter\n"
    document.write_text("no marks")
    with pytest.raises(ValueError, match="no lines"):
        replace_table(document, "| new |")


def test_no_lock_file_names_a_download_location() -> None:
    for path in (NODE / "package-lock.json", NODE / "package.json", GO / "go.mod", GO / "go.sum"):
        assert "://" not in path.read_text(), path


def test_entry_names_are_unique() -> None:
    names = [entry.name for entry in list_entries()]
    assert sorted(set(names)) == sorted(names)
