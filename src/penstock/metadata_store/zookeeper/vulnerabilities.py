"""Known vulnerabilities of the ZooKeeper server that we start, by the version of its jar.

A table of this release of Penstock; nothing is asked over a network. Servers that run already are
their operator's.
"""

import re
from collections.abc import Iterable
from pathlib import Path

_JAR = re.compile(r"zookeeper-(\d+)\.(\d+)\.(\d+).*\.jar")
_LINE = (3, 9)  # the one in PySpark
# By the patch release of the line that fixed them.
_FIXED_IN = {
    "CVE-2023-44981": 1,
    "CVE-2024-23944": 2,
    "CVE-2024-51504": 3,
    "CVE-2025-58457": 4,
    "CVE-2026-24281": 5,
    "CVE-2026-24308": 5,
    "CVE-2026-59739": 6,
    "CVE-2026-59969": 6,
    "CVE-2026-79993": 6,
    "CVE-2026-84439": 6,
    "CVE-2026-84501": 6,
}


def find_vulnerability_warning(jars: Iterable[str]) -> str | None:
    """One line for whoever starts a server from these jars."""
    names = [Path(jar).name for jar in jars]
    version = next((match for name in names if (match := _JAR.fullmatch(name))), None)
    if version is None:
        return None
    major, minor, patch = map(int, version.groups())
    text = f"ZooKeeper {major}.{minor}.{patch}"
    remedy = "docs/security.md says what they mean here; --zookeeper names a server of your own"
    if (major, minor) < _LINE:
        return f"{text} has vulnerabilities that are fixed in newer versions; {remedy}"
    missing = [name for name, fixed_in in _FIXED_IN.items() if patch < fixed_in]
    if (major, minor) > _LINE or not missing:
        return None
    return f"{text} has known vulnerabilities ({', '.join(missing)}); {remedy}"
