"""The compiled build of the listed modules, for tests: made once, found again by a digest."""

import importlib
import importlib.util
import sys
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader
from pathlib import Path
from types import ModuleType

import pytest
from tests.profile import is_long
from tools.compile_modules import (
    GROUP,
    ROOT,
    find_obstacle,
    is_current,
    keep_compiled,
    source_digest,
)

_BUILT = ROOT / "build" / "compiled"  # what `make compiled-build` leaves
_CACHE = ROOT / ".cache" / "compiled"
# mypyc's code behaves alike whatever the C compiler does with it, and this takes half as long.
_LEVEL = "3" if is_long() else "0"


def compiled_directory() -> Path:
    """A copy of src with extension modules; skips with a message where there is no C compiler."""
    obstacle = find_obstacle()
    if obstacle is not None:
        pytest.skip(f"the compiled build cannot be tested here: {obstacle}")
    if is_current(_BUILT):
        return _BUILT
    kept = _CACHE / f"{source_digest()}-{_LEVEL}"
    kept.parent.mkdir(parents=True, exist_ok=True)
    keep_compiled(kept, level=_LEVEL)
    return kept


def load_compiled(directory: Path, module: str) -> ModuleType:
    """Loads the compiled module, which imports no other one; the plain one stays in
    sys.modules."""
    plain = importlib.import_module(module)
    library = f"{GROUP}__mypyc"  # holds the compiled code, and is looked up by this name
    try:
        if library not in sys.modules:
            sys.modules[library] = _load(library, directory / library)
        return _load(module, directory / module.replace(".", "/"))
    finally:
        sys.modules[module] = plain


def _load(name: str, stem: Path) -> ModuleType:
    loader = ExtensionFileLoader(name, f"{stem}{EXTENSION_SUFFIXES[0]}")
    spec = importlib.util.spec_from_loader(name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module
