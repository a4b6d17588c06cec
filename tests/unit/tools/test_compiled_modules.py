"""Modules that wheels contain compiled: the list, the build, and its error messages."""

import importlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from zipfile import ZipFile

import pytest
from tests.profile import is_long
from tools.compile_modules import ROOT, CompileFailed, compile_modules, listed_modules


def test_every_listed_module_exists_and_sources_have_no_extension_beside_them() -> None:
    for module in listed_modules():
        assert importlib.import_module(module).__file__ == str(_source_of(module))
    assert list((ROOT / "src").rglob("*.so")) == []


def test_subclasses_of_compiled_classes_are_compiled_with_them() -> None:
    """Compiled code takes an interpreted subclass for another class: `except` does not catch it,
    or a TypeError replaces it. Protocols and NamedTuples are no such classes."""
    compiled = set(map(_source_of, listed_modules()))
    bases = {
        name
        for path in compiled
        for name, of in _classes(path)
        if not {"Protocol", "NamedTuple", "Enum"} & of
    }
    for path in (ROOT / "src").rglob("*.py"):
        for name, of in _classes(path):
            assert path in compiled or not of & bases, f"{path}: {name}"


def test_no_compiled_module_takes_an_attribute_for_none_after_a_call_has_set_it() -> None:
    """mypy still takes `self.x` for None below such an assertion, and compiled code then raises
    TypeError where plain code goes on."""
    for path in map(_source_of, listed_modules()):
        text = path.read_text()
        for indent, name, block in re.findall(
            r"^( +)if (self\.\w+) is None:\n((?:\1 +.*\n)+)", text, re.MULTILINE
        ):
            assert f"{indent}    assert {name} is not None\n" not in block, f"{path}: {name}"


def _source_of(module: str) -> Path:
    return ROOT / "src" / (module.replace(".", "/") + ".py")


def _classes(path: Path) -> Iterator[tuple[str, set[str]]]:
    """Each class with the words of its bases; parsing all sources would take seconds."""
    for name, bases in re.findall(r"^class (\w+)\(([^)]*)\):", path.read_text(), re.MULTILINE):
        yield name, set(re.findall(r"\w+", bases))


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
