"""The version of the jars decides which known vulnerabilities are named."""

import pytest

from penstock.metadata_store.zookeeper.vulnerabilities import find_vulnerability_warning


def warn_of(version: str) -> str:
    jars = ["/jars/zookeeper-jute-3.0.0.jar", f"/jars/zookeeper-{version}.jar"]
    return find_vulnerability_warning(jars) or ""


def test_a_release_is_warned_of_by_what_later_ones_fix() -> None:
    warning = warn_of("3.9.5")
    assert warning.startswith("ZooKeeper 3.9.5 has known vulnerabilities (CVE-2026-59739, ")
    assert "CVE-2026-79993" in warning
    assert "CVE-2026-24281" not in warning
    assert "CVE-2026-24281" in warn_of("3.9.4")
    assert "CVE-2023-44981" in warn_of("3.9.0")


def test_a_release_of_an_older_line_is_warned_of_as_a_whole() -> None:
    assert "ZooKeeper 3.6.3 has vulnerabilities that are fixed in newer" in warn_of("3.6.3")


@pytest.mark.parametrize("version", ["3.9.6", "3.9.10", "3.10.0", "4.0.0"])
def test_a_release_with_all_fixes_is_not_warned_of(version: str) -> None:
    assert warn_of(version) == ""


def test_without_a_version_there_is_nothing_to_say() -> None:
    assert find_vulnerability_warning(["/jars/zookeeper-jute-3.9.5.jar", "/jars/x.jar"]) is None
