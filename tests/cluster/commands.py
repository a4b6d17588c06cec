"""Runs `penstock` commands against a cluster, as processes of their own."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from penstock.testing import Cluster

PENSTOCK = Path(sys.executable).parent / "penstock"
TIMEOUT_S = 300


def command(cluster: Cluster, *arguments: str) -> list[str]:
    return [str(PENSTOCK), *arguments, "--bootstrap", cluster.bootstrap_servers]


def run(cluster: Cluster, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(cluster, *arguments),
        check=False,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        input=stdin,
    )


def begin(cluster: Cluster, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command(cluster, *arguments),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
    )


def json_lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def fill(cluster: Cluster, topic: str, partitions: int, kib: int) -> None:
    """Writes so many records of a KiB to each partition."""
    for partition in range(partitions):
        lines = "\n".join("x" * 1023 for _ in range(kib))
        done = run(cluster, "produce", topic, "--partition", str(partition), stdin=lines)
        assert done.returncode == 0, done.stderr
