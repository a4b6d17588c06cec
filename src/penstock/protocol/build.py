"""Which build runs: the listed modules compiled by mypyc, or every source as it is.

`pyproject.toml` lists them; they are compiled together or not at all, so one of them tells.
"""

from typing import Literal

from penstock.protocol import record_walk

Build = Literal["compiled", "plain"]


def find_build() -> Build:
    return "plain" if record_walk.__file__.endswith(".py") else "compiled"
