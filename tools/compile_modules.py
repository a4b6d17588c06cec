"""Compiles the modules listed in pyproject.toml with mypyc, in a copy of the sources.

`python tools/compile_modules.py DIRECTORY` copies src to DIRECTORY and puts an extension module
beside each listed source there, unless that was done for the same sources before: put DIRECTORY
first in PYTHONPATH to run the compiled build. Nothing is written to src, so that no extension ever
hides an edited source. The wheel's build hook calls this, too. It needs mypy, setuptools and a C
compiler; without them it fails and says why, or with `--or-plain` leaves no DIRECTORY and says that
the plain build runs.
"""

import hashlib
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import time
import tomllib
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
GROUP = "penstock"  # names the library with all compiled code: penstock__mypyc
# The listed modules import only typed modules, and the rest of the package is not compiled.
_FLAGS = ["--follow-imports=silent", "--ignore-missing-imports", "--python-version=3.11"]
_COMPILE = """
import os, sys
from mypyc.build import mypycify
from setuptools import setup

group, level, flags, paths = sys.argv[1], sys.argv[2], sys.argv[3].split(), sys.argv[4:]
setup(
    name="penstock-compiled",
    script_args=["--quiet", "build_ext", "--inplace", f"--parallel={os.cpu_count()}"],
    ext_modules=mypycify(
        [*flags, *paths], opt_level=level, debug_level="0", group_name=group
    ),
    packages=[],
)
"""
_STAMP = "compiled-from"  # in a compiled copy: the digest of what it was made from


class CompileFailed(Exception):
    """mypyc or the C compiler failed; the message ends with what it printed."""


def listed_modules() -> list[str]:
    """The modules to compile, as pyproject.toml lists them for the build hook."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    hooks = settings["tool"]["hatch"]["build"]["targets"]["wheel"]["hooks"]
    modules: list[str] = hooks["custom"]["modules"]
    return modules


def find_obstacle() -> str | None:
    """Why nothing can be compiled here; None: there is a C compiler."""
    compiler = os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc"
    if shutil.which(shlex.split(compiler)[0]) is None:
        return f"no C compiler ({compiler}); Debian: apt-get install gcc"
    if not Path(sysconfig.get_path("include"), "Python.h").exists():
        return "no Python.h; Debian: apt-get install python3-dev"
    return None


def source_digest() -> str:
    """Names what a compiled copy is made from: all sources, because listed modules use the types
    of others, and the copy has the others as well."""
    from importlib.metadata import version

    digest = hashlib.sha256(f"{sys.version} {version('mypy')}".encode())
    for path in [*sorted(ROOT.glob("src/**/*.py")), ROOT / "pyproject.toml", Path(__file__)]:
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def is_current(directory: Path) -> bool:
    stamp = directory / _STAMP
    return stamp.exists() and stamp.read_text() == source_digest()


def compile_modules(directory: Path, modules: Sequence[str], *, level: str = "3") -> list[Path]:
    """Copies src to `directory`, which must not exist, and compiles there, with the C compiler's
    optimisation `level`; returns the extension modules."""
    ignored = shutil.ignore_patterns("__pycache__", "*.so")
    shutil.copytree(ROOT / "src", directory, ignore=ignored)
    front = directory / "penstock" / "__init__.py"
    front.write_text("")  # otherwise mypy follows its imports: 12 seconds more
    paths = [module.replace(".", "/") + ".py" for module in modules]
    done = subprocess.run(
        [sys.executable, "-c", _COMPILE, GROUP, level, " ".join(_FLAGS), *paths],
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
        others = f" and {len(modules) - 1} others" if len(modules) > 1 else ""
        raise CompileFailed(f"cannot compile {modules[0]}{others}:\n{done.stdout[-2000:]}")
    return built


def keep_compiled(directory: Path, *, level: str = "3") -> bool:
    """Has `directory` be a compiled copy of the current sources; false: it was one already."""
    if is_current(directory):
        return False
    shutil.rmtree(directory, ignore_errors=True)
    partial = directory.with_name(f"{directory.name}.{os.getpid()}")
    try:
        compile_modules(partial, listed_modules(), level=level)
        (partial / _STAMP).write_text(source_digest())
        partial.rename(directory)
    except OSError:
        if not is_current(directory):  # another process has made it meanwhile
            raise
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return True


def main(arguments: Sequence[str]) -> str:
    """The line to print; raises CompileFailed."""
    may_be_plain = "--or-plain" in arguments
    [target] = [Path(word).absolute() for word in arguments if not word.startswith("--")]
    obstacle = find_obstacle()
    if obstacle is None:
        started_s = time.monotonic()
        try:
            is_new = keep_compiled(target)
        except CompileFailed:
            if not may_be_plain:
                raise
            obstacle = f"compiling failed; python tools/compile_modules.py {target} says why"
        else:
            took = f", {time.monotonic() - started_s:.0f} s" if is_new else ""
            count = len(listed_modules())
            return f"the compiled build runs: {count} modules compiled in {target}{took}"
    if not may_be_plain:
        raise CompileFailed(obstacle)
    shutil.rmtree(target, ignore_errors=True)
    return f"the plain build runs, about half as fast: {obstacle}"


if __name__ == "__main__":
    try:
        print(main(sys.argv[1:]))
    except CompileFailed as error:
        sys.exit(str(error))
