"""The wheel's build hook: where it cannot compile the modules, the wheel is plain."""

import os
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest
from tests.profile import is_long
from tools.compile_modules import ROOT, listed_modules

pytest.importorskip("hatchling", reason="an older environment: `make` installs it with the others")

COMPILERS = ["mypyc", "C compiler"] if is_long() else ["mypyc"]  # mypyc takes seconds before the C


@pytest.fixture(params=COMPILERS)
def broken(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, str]:
    """An environment in which this compiler fails."""
    if request.param == "C compiler":
        return {"CC": "false"}
    (tmp_path / "mypyc").mkdir()
    (tmp_path / "mypyc" / "__init__.py").write_text("raise ImportError('mypyc is broken here')\n")
    earlier = os.environ.get("PYTHONPATH")
    return {"PYTHONPATH": str(tmp_path) if earlier is None else f"{tmp_path}:{earlier}"}


def build(wheels: Path, environment: dict[str, str]) -> "subprocess.CompletedProcess[str]":
    """Without pip and without an environment of its own, which would take half a minute."""
    return subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", wheels],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_wheel_is_plain_where_the_modules_cannot_be_compiled(
    tmp_path: Path, broken: dict[str, str]
) -> None:
    done = build(tmp_path / "wheels", {**broken, "PENSTOCK_COMPILE": ""})
    assert done.returncode == 0, done.stderr
    assert "building a plain wheel" in done.stderr
    assert f"cannot compile {listed_modules()[0]}" in done.stderr
    [wheel] = (tmp_path / "wheels").iterdir()
    assert wheel.name.endswith("-py3-none-any.whl")
    names = ZipFile(wheel).namelist()
    assert f"{listed_modules()[0].replace('.', '/')}.py" in names
    assert [name for name in names if name.endswith(".so")] == []


def test_a_failure_is_fatal_where_a_compiled_wheel_is_required(
    tmp_path: Path, broken: dict[str, str]
) -> None:
    done = build(tmp_path / "wheels", {**broken, "PENSTOCK_COMPILE": "1"})
    assert done.returncode != 0
    assert f"cannot compile {listed_modules()[0]}" in done.stderr
    assert list((tmp_path / "wheels").iterdir()) == []
