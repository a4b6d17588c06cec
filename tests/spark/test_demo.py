"""`make demo` with fewer clicks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.profile import is_long
from tests.spark.local_spark import quick_start

DEMO = Path(__file__).parents[2] / "examples" / "clickstream" / "demo.py"


@pytest.mark.skipif(
    not is_long(), reason="`make demo`; test_pipeline runs the same kind of pipeline"
)
@pytest.mark.usefixtures("java")
def test_demo_succeeds_and_cleans_up(tmp_path: Path) -> None:
    kept = {name: value for name, value in os.environ.items() if name in ("PATH", "JAVA_HOME")}
    result = subprocess.run(
        [sys.executable, DEMO],
        capture_output=True,
        text=True,
        check=False,
        timeout=500,
        env={**kept, **quick_start(), "CLICKS": "5000", "TMPDIR": str(tmp_path)},
    )
    assert result.returncode == 0, result.stderr[-2000:]
    assert "5,000 clicks were sent" in result.stdout
    assert "All steps held" in result.stdout
    assert list(tmp_path.glob("tmp*")) == []
