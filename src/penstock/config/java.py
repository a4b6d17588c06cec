"""Finds this machine's Java, for ZooKeeper's servers and for Spark.

Runs a Java only if it has no `release` file to tell its version. The user's choice comes first:
JAVA_HOME, then the `java` of the PATH, then the usual directories.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

MINIMUM = 17  # required by Spark 4
FOLDERS = (  # one Java in each
    "/usr/lib/jvm/*",
    "/usr/java/*",
    "/opt/java/*",
    "/opt/jdk*",
    "~/.sdkman/candidates/java/*",
    "/Library/Java/JavaVirtualMachines/*/Contents/Home",
)
_ASK_TIMEOUT_S = 20.0
_RELEASE_LINE = re.compile(r'^JAVA_VERSION="(?P<version>[^"]+)"', re.MULTILINE)
_ANSWER = re.compile(r'version "(?P<version>[^"]+)"')
_NUMBERS = re.compile(r"(?:1\.)?(?P<release>\d+)")  # Java 8 calls itself 1.8


class JavaMissing(Exception):
    """No Java is recent enough; the message lists what was seen and how to install one."""


class JavaHome(NamedTuple):
    home: str  # the value for JAVA_HOME
    command: str  # the executable
    release: int  # 17, 21, ...


def find_java(
    minimum: int = MINIMUM,
    *,
    environment: Mapping[str, str] = os.environ,
    folders: Sequence[str] = FOLDERS,
) -> JavaHome:
    """The first Java of at least release `minimum`, or JavaMissing."""
    seen: list[str] = []
    for home in _homes(environment, folders):
        release = _find_release(home)
        if release is not None and release >= minimum:
            return JavaHome(str(home), str(_command_of(home)), release)
        seen.append(f"{home} ({'no working Java' if release is None else f'Java {release}'})")
    raise JavaMissing(
        f"Java {minimum} or newer is needed, and "
        f"{'only this was found: ' + ', '.join(seen) if seen else 'no Java was found'}; install "
        f"one (Debian, Ubuntu: apt install openjdk-17-jre-headless; others: "
        f"https://adoptium.net) or point JAVA_HOME at one"
    )


def _homes(environment: Mapping[str, str], folders: Sequence[str]) -> Iterator[Path]:
    """Candidate homes, each once, the user's choice first."""
    seen: set[Path] = set()
    for home in _places(environment, folders):
        real = home.resolve()
        if real not in seen:
            seen.add(real)
            yield home


def _places(environment: Mapping[str, str], folders: Sequence[str]) -> Iterator[Path]:
    chosen = environment.get("JAVA_HOME")
    if chosen:
        yield Path(chosen)  # named in the message even if it is empty
    on_path = shutil.which("java", path=environment.get("PATH", os.defpath))
    if on_path is not None:
        yield Path(on_path).resolve().parent.parent
    for pattern in folders:
        path = Path(pattern).expanduser()
        root = Path(path.anchor)
        homes = sorted(root.glob(str(path.relative_to(root))))
        yield from (home for home in homes if _command_of(home).exists())


def _command_of(home: Path) -> Path:
    return home / "bin" / "java"


def _find_release(home: Path) -> int | None:
    """None: there is no working Java."""
    command = _command_of(home)
    if not os.access(command, os.X_OK):
        return None
    text = _read_release_file(home) or _ask(command)
    numbers = None if text is None else _NUMBERS.match(text)
    return None if numbers is None else int(numbers["release"])


def _read_release_file(home: Path) -> str | None:
    try:
        release = _RELEASE_LINE.search((home / "release").read_text(errors="replace"))
    except OSError:
        return None
    return None if release is None else release["version"]


def _ask(command: Path) -> str | None:
    """Run the Java, which is slow; needed because old and copied ones have no release file."""
    try:
        answer = subprocess.run(
            [command, "-version"], capture_output=True, text=True, timeout=_ASK_TIMEOUT_S
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    version = _ANSWER.search(answer.stderr + answer.stdout)
    return None if version is None else version["version"]
