# ruff: noqa: A005
"""How long the long tests run: PROFILE is test (the default), verify or release."""

import os


def is_long() -> bool:
    """Whether variants of cases that are already covered run as well."""
    return bool(scaled(test=0, verify=1, release=1))


def scaled(*, test: int, verify: int, release: int) -> int:
    counts = {"test": test, "verify": verify, "release": release}
    return counts[os.environ.get("PROFILE", "test")]
