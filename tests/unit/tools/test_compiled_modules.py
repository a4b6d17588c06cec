"""Modules that wheels contain compiled: the list, the build, and its error messages."""

import importlib
import os
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest
from tests.profile import is_long
from tools.compile_modules import ROOT, CompileFailed, compile_modules, listed_modules


def test_every_listed_module_exists_and_sources_have_no_extension_beside_them() -> None:
    for module in listed_modules():
        path = importlib.import_module(module).__file__
        assert path == str(ROOT / "src" / (module.replace(".", "/") + ".py"))
    assert list((ROOT / "src").rglob("*.so")) == []


def test_a_module_that_cannot_be_compiled_is_named_in_the_error(tmp_path: Path) -> None:
    with pytest.raises(CompileFailed, match=r"penstock\.missing_module"):
        compile_modules(tmp_path / "copy", ["penstock.missing_module"])


@pytest.mark.skipif(not is_long(), reason="builds wheels in environments of their own")
@pytest.mark.parametrize(("wish", "extensions"), [("1", True), ("0", False)])
def test_a_wheel_contains_the_extensions_unless_disabled(
    tmp_path: Path, wish: str, extensions: bool
) -> None:
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--wheel-dir", str(tmp_path)]
    environment = {**os.environ, "PENSTOCK_COMPILE": wish}
    done = subprocess.run(
        [*command, "--no-cache-dir", str(ROOT)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if "No matching distribution" in done.stdout + done.stderr:
        pytest.skip("the build's requirements cannot be had here")
    assert done.returncode == 0, done.stdout + done.stderr
    [wheel] = tmp_path.glob("*.whl")
    names = ZipFile(wheel).namelist()
    for module in listed_modules():
        stem = module.replace(".", "/")
        assert f"{stem}.py" in names
        assert any(name.startswith(f"{stem}.c") for name in names) == extensions
