"""`penstock pipeline check` and `init`, and what `run` rejects before Spark starts."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from penstock.cli.main import app

GOOD = "sources:\n  clicks: {topic: clicks}\nsinks:\n  out: {from: clicks, format: noop}\n"


def command(*arguments: str) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, ["pipeline", *arguments])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.exit_code, done.stdout, done.stderr


def test_check_accepts_a_valid_file(tmp_path: Path) -> None:
    file = tmp_path / "clicks.yaml"
    file.write_text(GOOD)
    assert command("check", str(file)) == (
        0,
        f"{file}: no problems found; not checked: topics (--topics), SQL (--sql)\n",
        "",
    )


@pytest.mark.parametrize("verb", ["check", "run"])
def test_invalid_file_is_reported_line_by_line(verb: str, tmp_path: Path) -> None:
    file = tmp_path / "clicks.yaml"
    file.write_text(GOOD.replace("topic: clicks", "topic: clicks, grup: g").replace("from", "frm"))
    status, out, errors = command(verb, str(file))
    assert (status, out) == (2, "")
    assert [line.split(": ")[1] for line in errors.splitlines()] == [
        f"{file}:2",
        *[f"{file}:4"] * 2,
    ]


def test_unreadable_file_is_reported(tmp_path: Path) -> None:
    missing = tmp_path / "no.yaml"
    assert command("run", str(missing)) == (
        2,
        "",
        f"penstock: cannot read {missing}: No such file or directory\n",
    )
    binary = tmp_path / "binary.yaml"
    binary.write_bytes(b"\xff\xfe\x00")
    assert command("check", str(binary))[2] == f"penstock: cannot read {binary}: not UTF-8 text\n"


def test_invalid_python_is_reported_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "clicks.py"
    file.write_text("import os\n\ndef clicks(:\n")
    status, _, errors = command("check", str(file))
    assert (status, errors) == (2, f"penstock: {file}:3: not valid Python: invalid syntax\n")


def test_init_writes_a_valid_file_and_never_overwrites(tmp_path: Path) -> None:
    file = tmp_path / "new.yaml"
    status, out, _ = command("init", str(file))
    assert status == 0
    assert f"penstock pipeline run {file}" in out
    assert command("check", str(file))[0] == 0
    assert command("init", str(file)) == (1, "", f"penstock: cannot write {file}: File exists\n")
    assert command("init")[1] == file.read_text()


def test_master_and_remote_exclude_each_other(tmp_path: Path) -> None:
    status, _, errors = command("run", "x.yaml", "--master", "local", "--remote", "sc://host")
    assert status == 2
    assert "not both" in errors
