"""`tools/java.sh` with fake programs on its PATH: nothing is installed."""

import os
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[3] / "tools" / "java.sh"
NOT_FOUND = "Java 17 or newer is needed, and no Java was found"


class Machine:
    """A PATH with `id`, perhaps `apt-get`, and a Python that finds Java once it is installed."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.log = home / "apt.log"
        self.log.touch()
        self._program("python", f'[ -e "{home}/java" ] || {{ echo "{NOT_FOUND}" >&2; exit 1; }}')
        self.become(user=1000)

    def become(self, *, user: int) -> None:
        self._program("id", f"echo {user}")

    def add_apt(self, *, knows: str) -> None:
        self._program(
            "apt-get",
            f'echo "$@" >>"{self.log}"\n'
            f'case "$*" in *" {knows}") touch "{self.home}/java";; *jre*) exit 100;; esac',
        )

    def run(self) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            ["/bin/sh", SCRIPT, self.home / "python"],
            capture_output=True,
            text=True,
            check=False,
            env={"PATH": str(self.home)},
        )

    def _program(self, name: str, body: str) -> None:
        path = self.home / name
        path.write_text(f"#!/bin/sh\nPATH={os.defpath}\n{body}\n")
        path.chmod(0o755)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_an_installed_java_is_kept(machine: Machine) -> None:
    machine.become(user=0)
    machine.add_apt(knows="openjdk-17-jre-headless")
    (machine.home / "java").touch()
    result = machine.run()
    assert (result.returncode, result.stdout, machine.log.read_text()) == (0, "", "")


@pytest.mark.parametrize("package", ["openjdk-17-jre-headless", "default-jre-headless"])
def test_root_installs_the_first_java_that_apt_has(machine: Machine, package: str) -> None:
    machine.become(user=0)
    machine.add_apt(knows=package)
    result = machine.run()
    assert result.returncode == 0
    assert f"Installed {package}." in result.stdout
    assert machine.log.read_text().splitlines()[0].endswith("update")


def test_without_apt_the_error_says_what_to_do(machine: Machine) -> None:
    machine.become(user=0)
    result = machine.run()
    assert result.returncode == 1
    assert NOT_FOUND in result.stderr


def test_without_root_nothing_is_installed_and_the_error_says_what_to_do(machine: Machine) -> None:
    machine.add_apt(knows="openjdk-17-jre-headless")
    result = machine.run()
    assert (result.returncode, machine.log.read_text()) == (1, "")
    assert NOT_FOUND in result.stderr


def test_if_apt_has_no_java_the_error_says_what_to_do(machine: Machine) -> None:
    machine.become(user=0)
    machine.add_apt(knows="nothing-of-the-kind")
    result = machine.run()
    assert result.returncode == 1
    assert NOT_FOUND in result.stderr
