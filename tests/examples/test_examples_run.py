"""Every example runs as documented, and checks its own result."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize(
    "name", ["log_demo.py", "broker_demo.py", "delivery/kill_at_the_worst_moment.py"]
)
def test_demo_succeeds_and_cleans_up(name: str, tmp_path: Path) -> None:
    result = subprocess.run(
        [sys.executable, EXAMPLES / name],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={"TMPDIR": str(tmp_path)},
    )
    assert (result.returncode, result.stderr) == (0, "")
    assert "All steps held" in result.stdout
    assert list(tmp_path.iterdir()) == []
