"""Programs of ours in JavaScript and Go, built with their pinned packages into `.cache/outside/`.

npm and Go fetch packages by name from the registries they are configured for. Invariant: an
existing cache directory is complete; it is filled under another name and renamed.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from tests.interop.kafka_jars import Say, filled_then_renamed, locked, short_hash
from tests.outside.attempt import Unavailable

HERE = Path(__file__).parent
NODE = HERE / "node"
GO = HERE / "go"
GO_OLDER = HERE / "go_older"  # on packages that are older than those of the programs in GO
CACHE_ROOT = HERE.parents[1] / ".cache" / "outside"
BUILD_TIMEOUT_S = 600

_GO_PACKAGES = {
    "kafkago": "github.com/segmentio/kafka-go",
    "sarama": "github.com/IBM/sarama",
    "franzgo": "github.com/twmb/franz-go",
}


KAFKA_EXPORTER = "github.com/danielqsj/kafka_exporter@v1.9.0"


class ProgramDoesNotBuild(Exception):
    """Our own program does not compile, which is no reason to skip."""


def find_npm_version(package: str) -> str:
    dependencies: dict[str, str] = json.loads((NODE / "package.json").read_text())["dependencies"]
    return dependencies[package]


def find_go_version(program: str) -> str:
    line = rf"^\s+{re.escape(_GO_PACKAGES[program])} v(\S+)$"
    match = re.search(line, (GO / "go.mod").read_text(), flags=re.MULTILINE)
    assert match is not None, f"go.mod does not name {_GO_PACKAGES[program]}"
    return match[1]


def resolve_kafkajs(say: Say) -> tuple[list[str], dict[str, str]]:
    """The command and the environment of the kafkajs program."""
    node, npm = _get_program("node"), _get_program("npm")
    sources = [NODE / name for name in ("package.json", "package-lock.json")]
    modules = CACHE_ROOT / f"node-{_hash_of(sources)}"
    with _cache_locked():
        if not modules.is_dir():
            say(f"kafkajs {find_npm_version('kafkajs')}: fetching with npm, once ...")
            with filled_then_renamed(modules) as target:
                for source in sources:
                    shutil.copy(source, target)
                command = [npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
                _run(command, target, "npm cannot fetch kafkajs")
    return [node, str(NODE / "smoke.js")], {"NODE_PATH": str(modules / "node_modules")}


def resolve_go_program(program: str, say: Say) -> list[str]:
    """The command of one Go program; all of them are built together."""
    go = _get_program("go")
    sources = sorted([*GO.rglob("*.go"), GO / "go.mod", GO / "go.sum"])
    programs = CACHE_ROOT / f"go-{_hash_of(sources)}"
    with _cache_locked():
        if not programs.is_dir():
            say("kafka-go, sarama, franz-go: fetching and building with Go, once (minutes) ...")
            with filled_then_renamed(programs) as target:
                _run([go, "mod", "download"], GO, "Go cannot fetch the clients")
                try:
                    _run([go, "build", "-o", f"{target}/", "./..."], GO, "they do not build")
                except Unavailable as error:
                    raise ProgramDoesNotBuild(str(error)) from error
    return [str(programs / program)]


def resolve_older_member(say: Say) -> list[str]:
    """The command of a member of a group in ZooKeeper, with wvanbergen's consumergroup."""
    go = _get_program("go")
    sources = sorted([*GO_OLDER.rglob("*.go"), GO_OLDER / "go.mod", GO_OLDER / "go.sum"])
    programs = CACHE_ROOT / f"go-older-{_hash_of(sources)}"
    with _cache_locked():
        if not programs.is_dir():
            say("wvanbergen/kafka: fetching and building with Go, once ...")
            with filled_then_renamed(programs) as target:
                _run([go, "mod", "download"], GO_OLDER, "Go cannot fetch the older client")
                try:
                    _run([go, "build", "-o", f"{target}/", "./..."], GO_OLDER, "it does not build")
                except Unavailable as error:
                    raise ProgramDoesNotBuild(str(error)) from error
    return [str(programs / "member")]


def resolve_kafka_exporter(say: Say) -> str:
    """The unmodified program."""
    go = _get_program("go")
    programs = CACHE_ROOT / f"kafka_exporter-{short_hash(KAFKA_EXPORTER)}"
    with _cache_locked():
        if not programs.is_dir():
            say(f"{KAFKA_EXPORTER}: fetching and building with Go, once (minutes) ...")
            with filled_then_renamed(programs) as target:
                command = ["env", f"GOBIN={target}", go, "install", KAFKA_EXPORTER]
                _run(command, target, "Go cannot fetch kafka_exporter")
    return str(programs / "kafka_exporter")


def _get_program(name: str) -> str:
    path = shutil.which(name)
    if path is None:
        raise Unavailable(f"`{name}` is not on the path; install it to run this")
    return path


def _hash_of(sources: Sequence[Path]) -> str:
    return short_hash(*(source.read_text() for source in sources))


def _cache_locked() -> AbstractContextManager[None]:
    CACHE_ROOT.mkdir(parents=True, exist_ok=True)
    return locked(CACHE_ROOT / ".lock")


def _run(command: Sequence[str], folder: Path, complaint: str) -> None:
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=BUILD_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise Unavailable(f"{complaint}: nothing after {BUILD_TIMEOUT_S} s") from error
    if done.returncode != 0:
        raise Unavailable(f"{complaint}: {done.stdout[-600:]}")
