"""`python -m tests.outside`: outside clients and tools against one broker and against three.

Fetches packages by name (npm, Go, Maven, pip) and nothing else. Prints a line per trial and finally
a table of all trials whose output is in the folder, which `--document` writes into a Markdown file.
Exits with 1 if a trial failed.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.outside.brokers import open_brokers
from tests.outside.entries import Entry, list_entries
from tests.outside.table import replace_table, table_of
from tests.outside.trials import Trial, Verdict, find_trials, try_entry


def main() -> int:
    options = _parse()
    entries = [entry for entry in list_entries() if not options.only or entry.name in options.only]
    folder = Path(options.output or tempfile.mkdtemp(prefix="penstock-outside-"))
    trials = [trial for count in options.brokers for trial in _try_all(entries, count, folder)]
    table = table_of(find_trials(list_entries(), folder))
    print(f"\n{table}")
    if options.document:
        replace_table(Path(options.document), table)
    print(f"all output: {folder}")
    return int(any(trial.verdict is Verdict.FAILED for trial in trials))


def _try_all(entries: list[Entry], count: int, folder: Path) -> list[Trial]:
    trials = []
    with open_brokers(count, folder) as brokers:
        for entry in entries:
            trial = try_entry(entry, brokers, folder, _say)
            print(trial.line(), flush=True)
            trials.append(trial)
    return trials


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _parse() -> argparse.Namespace:
    names = [entry.name for entry in list_entries()]
    parser = argparse.ArgumentParser(prog="python -m tests.outside", description=__doc__)
    parser.add_argument("only", nargs="*", help=f"names out of: {', '.join(names)}")
    parser.add_argument("--brokers", type=int, nargs="+", default=[1, 3], help="default: 1 3")
    parser.add_argument(
        "--output", help="the folder for all output, new or with the trials of an earlier run"
    )
    parser.add_argument("--document", help="replace the table in this Markdown file")
    options = parser.parse_args()
    if unknown := set(options.only) - set(names):
        parser.error(
            f"no entry is called {', '.join(sorted(unknown))}; there are: {', '.join(names)}"
        )
    return options


if __name__ == "__main__":
    sys.exit(main())
