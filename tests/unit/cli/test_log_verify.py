import json
import os
from pathlib import Path

from tests.unit.storage.sample_logs import write_sample
from typer.testing import CliRunner

from penstock.cli.main import app
from penstock.protocol.batch import iter_headers


def test_a_clean_directory_exits_0_with_counts(tmp_path: Path) -> None:
    write_sample(tmp_path)
    for directory in (tmp_path, tmp_path / "t-0"):
        result = CliRunner().invoke(app, ["log", "verify", "--records", str(directory)])
        assert (result.exit_code, result.stderr) == (0, "")
        logs = [path.read_bytes() for path in tmp_path.glob("t-0/*.log")]
        headers = [header for log in logs for _, header in iter_headers(log)]
        records = sum(header.record_count for header in headers)
        assert result.stdout.startswith("clean: ")
        assert f" {len(headers)} batches, {records} records, " in result.stdout
        assert result.stdout.endswith(", 0 problems, 0 notes\n")


def test_every_problem_is_printed_with_its_position_and_the_exit_code_is_1(tmp_path: Path) -> None:
    write_sample(tmp_path)
    log = sorted(tmp_path.glob("t-0/*.log"))[1]
    content = bytearray(log.read_bytes())
    first, second, third = [position for position, _ in iter_headers(bytes(content))][:3]
    content[second - 1] ^= 1
    content[third - 1] ^= 1
    log.write_bytes(content)
    (tmp_path / "t-0" / "stray.txt").touch()
    result = CliRunner().invoke(app, ["log", "verify", str(tmp_path)])
    assert result.exit_code == 1
    lines = result.stdout.splitlines()
    problems = [line.partition(": ")[0] for line in lines if line.startswith("PROBLEM")]
    assert problems == [f"PROBLEM [crc] {log}, position {position}" for position in (first, second)]
    assert f"note [unknown] {tmp_path}/t-0/stray.txt: is not a file of a log" in lines
    assert lines[-1].startswith("NOT CLEAN: ")
    assert lines[-1].endswith(", 2 problems, 1 note")


def test_the_embedded_metadata_store_of_a_single_node_is_not_reported(tmp_path: Path) -> None:
    write_sample(tmp_path)
    (tmp_path / ".coordination").mkdir()
    (tmp_path / "notes").mkdir()
    result = CliRunner().invoke(app, ["log", "verify", str(tmp_path)])
    notes = [line for line in result.stdout.splitlines() if line.startswith("note")]
    assert notes == [
        f"note [unknown] {tmp_path}/notes: is not a partition's folder: <topic>-<number>"
    ]


def test_json_may_be_given_before_the_subcommand(tmp_path: Path) -> None:
    write_sample(tmp_path)
    for command in ("verify", "dump"):
        before = CliRunner().invoke(app, ["--json", "log", command, str(tmp_path)])
        after = CliRunner().invoke(app, ["log", command, str(tmp_path), "--json"])
        assert json.loads(before.stdout.splitlines()[-1])["type"]
        assert before.stdout == after.stdout


def test_json_is_one_object_per_line_with_a_summary_at_the_end(tmp_path: Path) -> None:
    write_sample(tmp_path)
    checkpoint = tmp_path / "recovery-point-offset-checkpoint"
    checkpoint.write_bytes(b"0\n1\nt 0 99999\n")
    result = CliRunner().invoke(app, ["log", "verify", "--json", str(tmp_path)])
    assert result.exit_code == 1
    problem, summary = [json.loads(line) for line in result.stdout.splitlines()]
    assert (problem["type"], problem["kind"]) == ("problem", "checkpoint")
    assert (problem["path"], problem["line"], problem["position"]) == (str(checkpoint), 3, None)
    assert (summary["type"], summary["problems"], summary["records"]) == ("summary", 1, None)


def test_a_fifo_in_place_of_a_segment_is_reported_and_the_rest_is_checked(tmp_path: Path) -> None:
    write_sample(tmp_path)
    fifo, following = sorted(tmp_path.glob("t-0/*.log"))[1:3]
    fifo.unlink()
    os.mkfifo(fifo)
    corrupt(following)
    result = CliRunner().invoke(app, ["log", "verify", str(tmp_path)])
    assert result.exit_code == 1
    assert f"PROBLEM [unreadable] {fifo}: cannot be read: is not a regular file" in result.stdout
    assert f"PROBLEM [crc] {following}" in result.stdout


def corrupt(log: Path) -> None:
    """Flip a bit in the last byte of the file's first batch."""
    content = bytearray(log.read_bytes())
    [_, second, *_] = [position for position, _ in iter_headers(bytes(content))]
    content[second - 1] ^= 1
    log.write_bytes(content)
