"""The compiled build of the listed modules, for tests: built once, cached by hash."""

import hashlib
import importlib
import importlib.util
import os
import shlex
import shutil
import sys
import sysconfig
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader
from importlib.metadata import version
from pathlib import Path
from types import ModuleType

import pytest
from tools.compile_modules import ROOT, compile_modules, listed_modules

_CACHE = ROOT / ".cache" / "compiled"


def compiled_directory(temporary: Path) -> Path:
    """A copy of src with extension modules; skips with a message where there is no C compiler."""
    if not _can_compile():
        pytest.skip("no C compiler, or no Python.h: the compiled build cannot be tested here")
    digest = hashlib.sha256(f"{sys.version} {version('mypy')}".encode())
    for path in [*sorted(ROOT.glob("src/**/*.py")), ROOT / "tools" / "compile_modules.py"]:
        digest.update(path.read_bytes())
    kept = _CACHE / digest.hexdigest()[:16]
    if not kept.exists():
        built = temporary / "compiled"
        compile_modules(built, listed_modules())
        _CACHE.mkdir(parents=True, exist_ok=True)
        partial = _CACHE / f"{kept.name}.{os.getpid()}"
        shutil.copytree(built, partial)
        try:
            partial.rename(kept)
        except OSError:  # another worker has built it meanwhile
            shutil.rmtree(partial)
    return kept


def _can_compile() -> bool:
    compiler = os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc"
    header = Path(sysconfig.get_path("include"), "Python.h")
    return shutil.which(shlex.split(compiler)[0]) is not None and header.exists()


def load_compiled(directory: Path, module: str) -> ModuleType:
    """Loads the compiled module; the plain one stays in sys.modules."""
    path = directory / module.replace(".", "/")
    plain = importlib.import_module(module)
    group = f"{module}__mypyc"  # holds the compiled code, and is looked up by this name
    try:
        if group not in sys.modules:
            sys.modules[group] = _load(group, f"{path}__mypyc")
        return _load(module, str(path))
    finally:
        sys.modules[module] = plain


def _load(name: str, stem: str) -> ModuleType:
    loader = ExtensionFileLoader(name, stem + EXTENSION_SUFFIXES[0])
    spec = importlib.util.spec_from_loader(name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module
