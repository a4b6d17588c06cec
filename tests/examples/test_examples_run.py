"""Examples are promises: each runs as a newcomer would run it, and checks itself."""

import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_the_demo_of_the_log_holds_all_its_steps_and_leaves_nothing_behind(tmp_path: Path) -> None:
    result = subprocess.run(
        [sys.executable, EXAMPLES / "log_demo.py"],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={"TMPDIR": str(tmp_path)},
    )
    assert (result.returncode, result.stderr) == (0, "")
    assert "All steps held" in result.stdout
    assert list(tmp_path.iterdir()) == []
