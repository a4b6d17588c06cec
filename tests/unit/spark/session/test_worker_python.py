"""The launcher for Spark's workers, started as Spark does."""

import os
import subprocess
import sys
from pathlib import Path

from penstock.spark.session.worker_python import make_worker_python, worker_script


def test_packages_precede_sparks_python_path_and_nothing_is_lost(tmp_path: Path) -> None:
    program = tmp_path / "python with spaces"
    program.write_text(worker_script(sys.executable, tmp_path / "own packages"))
    program.chmod(0o700)
    result = subprocess.run(
        [program, "-c", "import sys; print(sys.path[1:3], sys.argv[1:])", "a b"],
        env={**os.environ, "PYTHONPATH": "/spark.zip"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stdout.strip() == f"{[str(tmp_path / 'own packages'), '/spark.zip']} ['a b']"


def test_launcher_is_private_and_runs_this_python() -> None:
    program = make_worker_python()
    assert Path(program).parent.stat().st_mode & 0o077 == 0
    code = "import sys, pyspark; print(sys.prefix, pyspark.__file__)"
    result = subprocess.run([program, "-c", code], capture_output=True, text=True, check=True)
    prefix, pyspark_file = result.stdout.split()
    assert prefix == sys.prefix
    assert pyspark_file.startswith(sys.prefix)
