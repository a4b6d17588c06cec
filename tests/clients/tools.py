"""Programs that client tests need and pip does not provide: found, or installed where that is
allowed.

`python -m tests.clients.tools` installs all of them ahead of a test run.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.clients.java_clients import VERSIONS, resolve_java_clients
from tests.interop.kafka_jars import (
    CACHE_ROOT,
    KafkaUnavailableError,
    Say,
    locked,
    resolve_kafka_jars,
)

APT_TIMEOUT_S = 180


class ToolMissingError(Exception):
    """A program is missing and cannot be installed; the message says how to get it."""


def get_kcat(say: Say, *, cache_root: Path = CACHE_ROOT) -> str:
    """The path of kcat; installed from Debian's package where permitted, because PyPI has none."""
    if shutil.which("kcat") is None:
        cache_root.mkdir(parents=True, exist_ok=True)
        with locked(cache_root / ".apt.lock"):
            _install_kcat(say)
    path = shutil.which("kcat")
    if path is None:
        raise ToolMissingError(
            "`kcat` is not on the path; install it (Debian: apt-get install kcat)"
        )
    return path


def _install_kcat(say: Say) -> None:
    may_install = os.geteuid() == 0 and shutil.which("apt-get") is not None
    if shutil.which("kcat") is not None or not may_install:
        return
    say("kcat: installing Debian's package, once ...")
    if _apt_get("install", "-y", "--no-install-recommends", "kcat"):
        return
    _apt_get("update")  # the package lists may be old or absent
    _apt_get("install", "-y", "--no-install-recommends", "kcat")


def _apt_get(*arguments: str) -> bool:
    try:
        done = subprocess.run(
            ["apt-get", "-q", *arguments],
            env=os.environ | {"DEBIAN_FRONTEND": "noninteractive"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=APT_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


def _fetch_all() -> None:
    def say(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    print(get_kcat(say))
    print(resolve_kafka_jars(say).jars)
    for version in VERSIONS:
        print(resolve_java_clients(version, say).jars)


if __name__ == "__main__":
    try:
        _fetch_all()
    except (ToolMissingError, KafkaUnavailableError) as error:
        sys.exit(f"skipped: {error}")
