"""Compiles the modules listed in pyproject.toml with mypyc, in a copy of the sources.

`python tools/compile_modules.py DIRECTORY` copies src to DIRECTORY and puts an extension module
beside each listed source there: put DIRECTORY first in PYTHONPATH to run the compiled build.
Nothing is written to src, so that no extension ever hides an edited source. The wheel's build hook
calls this, too. It needs mypy, setuptools and a C compiler; without them it fails and says why.
"""

import shutil
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
# The listed modules import only typed modules, and the rest of the package is not compiled.
_FLAGS = ["--follow-imports=silent", "--ignore-missing-imports", "--python-version=3.11"]
_COMPILE = """
import sys
from mypyc.build import mypycify
from setuptools import setup

flags, paths = sys.argv[1].split(), sys.argv[2:]
setup(
    name="penstock-compiled",
    script_args=["--quiet", "build_ext", "--inplace"],
    ext_modules=mypycify([*flags, *paths], opt_level="3"),
    packages=[],
)
"""


class CompileFailed(Exception):
    """mypyc or the C compiler failed; the message ends with what it printed."""


def listed_modules() -> list[str]:
    """The modules to compile, as pyproject.toml lists them for the build hook."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    hooks = settings["tool"]["hatch"]["build"]["targets"]["wheel"]["hooks"]
    modules: list[str] = hooks["custom"]["modules"]
    return modules


def compile_modules(directory: Path, modules: Sequence[str]) -> list[Path]:
    """Copies src to `directory`, which must not exist, and compiles there; returns the extension
    modules."""
    ignored = shutil.ignore_patterns("__pycache__", "*.so")
    shutil.copytree(ROOT / "src", directory, ignore=ignored)
    front = directory / "penstock" / "__init__.py"
    front.write_text("")  # otherwise mypy follows its imports: 12 seconds more
    paths = [module.replace(".", "/") + ".py" for module in modules]
    done = subprocess.run(
        [sys.executable, "-c", _COMPILE, " ".join(_FLAGS), *paths],
        cwd=directory,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    shutil.copy(ROOT / "src" / "penstock" / "__init__.py", front)
    shutil.rmtree(directory / "build", ignore_errors=True)
    shutil.rmtree(directory / ".mypy_cache", ignore_errors=True)
    built = sorted(directory.rglob("*.so"))
    if done.returncode or not built:
        raise CompileFailed(f"cannot compile {', '.join(modules)}:\n{done.stdout[-2000:]}")
    return built


if __name__ == "__main__":
    target = Path(sys.argv[1]).absolute()
    shutil.rmtree(target, ignore_errors=True)
    try:
        for extension in compile_modules(target, listed_modules()):
            print(extension)
    except CompileFailed as error:
        sys.exit(str(error))
