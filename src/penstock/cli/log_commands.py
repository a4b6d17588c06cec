"""`penstock log`: inspects and converts the files of a log, without a broker."""

import json
import os
import shutil
import sys
import time
from dataclasses import asdict
from typing import Annotated, NoReturn

import typer

from penstock.cli.connect import wants_json
from penstock.cli.dump import Dump, DumpOptions
from penstock.cli.dump_text import JsonView, TextView
from penstock.cli.progress import byte_progress
from penstock.io.disk import RealDisk
from penstock.storage.conversion import COMMIT_LOG, SEGMENTED, Conversion, ConversionRefused
from penstock.storage.errors import StorageError
from penstock.storage.findings import LogFinding, LogFindings
from penstock.storage.log_files import parse_name
from penstock.storage.verify import NotALog, check_is_log, count_log_bytes, verify_directory

app = typer.Typer(
    add_completion=False,
    help="Inspect and convert log files, without a broker; all but convert work beside one.\n\n"
    "Works on data directories of Penstock and of Kafka, because the formats are the same.",
    no_args_is_help=True,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

_DUMP_HELP = """Show the content of log files: batches, records, index entries, checkpoints.

PATH is a file of a log (.log, .index, .timeindex, .txnindex, .snapshot, a checkpoint), a
partition's folder (all of its files in order) or a data directory (its checkpoints, then every
partition's folder).

Damage does not stop it: everything readable is shown, the rest is reported on stderr with file and
position, and the exit code is 1.

\b
Examples:
  penstock log dump data/orders-0
  penstock log dump data/orders-0/00000000000000000000.log --deep
  penstock log dump data/orders-0 --from-offset 1200 --max-batches 5 --deep
  penstock log dump data/orders-0 --json | jq 'select(.type == "batch") | .codec'
"""

_VERIFY_HELP = """Check that the files of a log are valid and agree with each other.

DIR is a partition's folder or a data directory. Checks every CRC, offsets and epochs from batch to
batch, the three indexes against the log, producer snapshots, the epoch checkpoint, names, and the
data directory's checkpoints. Reports every problem with file and position, not just the first.
Notes are not problems.

Exit code: 0 clean, 1 there are problems, 2 DIR is not a log.

\b
Examples:
  penstock log verify data
  penstock log verify data/orders-0 --records
  penstock log verify data --json | jq 'select(.type == "problem")'
"""

_CONVERT_HELP = """Convert log directories to the other storage engine; their broker is stopped.

Copies every partition within its directory, reads the copy again and compares every batch, and only
then makes it the one that counts; needs as much free space as the directory holds. Offsets, epochs,
producers, high watermarks, log start offsets and topic ids stay. A conversion that was interrupted
leaves the directory to its engine: run it again. Afterwards set storage.engine of the broker.

\b
Examples:
  penstock log convert data --to commitlog
  penstock log convert /disk1/logs /disk2/logs --to segmented --json
"""


@app.command(help=_DUMP_HELP)
def dump(
    ctx: typer.Context,
    paths: Annotated[
        list[str], typer.Argument(metavar="PATH", help="Files, folders or data directories.")
    ],
    deep: Annotated[
        bool, typer.Option("--deep", help="Show the records in each batch as well.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object per line instead of text.")
    ] = False,
    from_offset: Annotated[
        int, typer.Option("--from-offset", min=0, help="Start at this offset.")
    ] = 0,
    max_batches: Annotated[
        int | None,
        typer.Option("--max-batches", min=1, help="Stop after this many batches in total."),
    ] = None,
) -> None:
    for path in paths:
        _check_usable(path)
    view = JsonView(sys.stdout) if wants_json(ctx, as_json) else TextView(sys.stdout)
    options = DumpOptions(deep=deep, from_offset=from_offset, max_batches=max_batches)
    # No progress bar if the dump itself goes to the terminal: it would break up its lines.
    wanted = not sys.stdout.isatty()
    total = sum(os.path.getsize(p) if os.path.isfile(p) else _count(p) for p in paths)
    with byte_progress("reading", total, wanted=wanted) as progress:
        run = Dump(RealDisk(), view, options, progress=progress)
        for path in paths:
            run.dump(path)
    for message in run.damage:
        typer.echo(message, err=True)
    if run.damage:
        raise typer.Exit(1)


@app.command(help=_VERIFY_HELP)
def verify(
    ctx: typer.Context,
    directory: Annotated[
        str, typer.Argument(metavar="DIR", help="A partition's folder or a data directory.")
    ],
    records: Annotated[
        bool, typer.Option("--records", help="Decode every record too (slower).")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object per line instead of text.")
    ] = False,
) -> None:
    if not os.path.isdir(directory):
        _fail(f"{directory} is not a directory; give a partition's folder or a data directory", 2)
    as_json = wants_json(ctx, as_json)
    show = _show_finding_as_json if as_json else _show_finding
    with byte_progress("checking", _count(directory)) as progress:
        try:
            findings = verify_directory(
                directory, records=records, on_finding=show, progress=progress
            )
        except NotALog as error:
            _fail(str(error), 2)
        except OSError as error:
            _fail(f"cannot read {directory}: {error}", 1)
    _show_summary(findings, with_records=records, as_json=as_json)
    if not findings.is_clean:
        raise typer.Exit(1)


@app.command(help=_CONVERT_HELP)
def convert(
    ctx: typer.Context,
    directories: Annotated[
        list[str], typer.Argument(metavar="DIR", help="The broker's log directories, all of them.")
    ],
    engine: Annotated[str, typer.Option("--to", metavar="ENGINE", help="segmented or commitlog.")],
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object per directory instead of text.")
    ] = False,
) -> None:
    if engine not in (SEGMENTED, COMMIT_LOG):
        _fail(f"{engine} is no storage engine; give {SEGMENTED} or {COMMIT_LOG}", 2)
    for directory in directories:
        if not os.path.isdir(directory):
            _fail(f"{directory} is not a directory; give one of the broker's log.dirs", 2)
    for directory in directories:
        _convert(directory, engine, as_json=wants_json(ctx, as_json))


def _convert(directory: str, engine: str, *, as_json: bool) -> None:
    size = _count(directory)
    free = shutil.disk_usage(directory).free
    if free < size:
        _fail(f"{directory} holds {size:,} bytes and its disk has {free:,} left; make room", 1)
    # Read to check, to copy and to compare, and so is the copy.
    with byte_progress("converting", 4 * size) as progress:
        conversion = Conversion(
            RealDisk(),
            os.path.abspath(directory),
            engine,
            now_ms=int(time.time() * 1000),
            progress=progress,
        )
        try:
            converted = conversion.run()
        except (ConversionRefused, StorageError) as error:
            _fail(str(error), 1)
        except OSError as error:
            _fail(f"{directory} was not converted: {error}; run the command again", 1)
    if as_json:
        typer.echo(json.dumps(asdict(converted)))
        return
    typer.echo(
        f"{directory} is for storage.engine={engine} now: {converted.partitions:,} partitions, "
        f"{converted.batches:,} batches, {converted.size_bytes:,} bytes"
    )


def _check_usable(path: str) -> None:
    """A path that cannot be a log is wrong usage; a damaged log is not."""
    if not os.path.lexists(path):
        _fail(f"{path} does not exist; give a file of a log, its folder or a data directory", 2)
    if not os.path.isdir(path):
        if parse_name(os.path.basename(path)).kind is None:
            _fail(f"{path} is not a file of a log, by its name", 2)
        return
    try:
        check_is_log(RealDisk(), path)
    except NotALog as error:
        _fail(str(error), 2)
    except OSError as error:
        _fail(f"cannot read {path}: {error}", 1)


def _count(path: str) -> int:
    try:
        return count_log_bytes(RealDisk(), path)
    except OSError:
        return 0  # only the progress bar needs it; reading the files reports the error


def _show_finding(finding: LogFinding) -> None:
    # `print`, because `echo` bypasses the progress bar and writes into its line.
    print(f"{'PROBLEM' if finding.is_problem else 'note'} [{finding.kind}] {finding}")


def _show_finding_as_json(finding: LogFinding) -> None:
    fields = {
        "type": "problem" if finding.is_problem else "note",
        "kind": finding.kind,
        "path": finding.path,
        "position": finding.position,
        "line": finding.line,
        "message": finding.message,
    }
    print(json.dumps(fields))


def _show_summary(findings: LogFindings, *, with_records: bool, as_json: bool) -> None:
    counts = {
        "files": findings.files,
        "batches": findings.batches,
        "records": findings.records if with_records else None,
        "bytes": findings.size_bytes,
        "problems": len(findings.problems),
        "notes": len(findings.notes),
    }
    if as_json:
        typer.echo(json.dumps({"type": "summary", **counts}))
        return
    parts = [_count_of(count, name) for name, count in counts.items() if count is not None]
    verdict = "clean" if findings.is_clean else "NOT CLEAN"
    typer.echo(f"{verdict}: {', '.join(parts)}")


def _count_of(count: int, name: str) -> str:
    singular = {"batches": "batch"}.get(name, name.removesuffix("s"))
    return f"{count:,} {singular if count == 1 else name}"


def _fail(message: str, code: int) -> NoReturn:
    typer.echo(f"penstock: {message}", err=True)
    raise typer.Exit(code)
