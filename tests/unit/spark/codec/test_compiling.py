"""Where compiled code is cached, and what happens without numba. Each case runs in its own process,
because imports cannot be undone."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.xdist_group("compiling")

KERNEL = """
from penstock.spark.codec.compiling import compiled

@compiled("int64(int64)")
def double(number):
    return 2 * number
"""
CALL = """
import json, kernel
stats = kernel.double.stats
print(json.dumps({
    "result": kernel.double(21),
    "loaded": sum(stats.cache_hits.values()),
    "folder": stats.cache_path,
}))
"""


def run(script: str, folder: Path, **environment: str) -> Any:
    """Return the script's output, parsed as JSON. It can import modules in `folder`."""
    inherited = {name: value for name, value in os.environ.items() if "NUMBA" not in name}
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=folder,
        env=inherited | environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "kernel.py").write_text(KERNEL)
    return tmp_path


def test_code_is_cached_next_to_its_source_for_the_next_process(folder: Path) -> None:
    cache = str(folder / "__pycache__")
    assert run(CALL, folder) == {"result": 42, "loaded": 0, "folder": cache}
    assert run(CALL, folder) == {"result": 42, "loaded": 1, "folder": cache}


def test_numba_cache_dir_is_respected(folder: Path) -> None:
    chosen = folder / "chosen"
    assert run(CALL, folder, NUMBA_CACHE_DIR=str(chosen))["loaded"] == 0
    result = run(CALL, folder, NUMBA_CACHE_DIR=str(chosen))
    assert result["loaded"] == 1
    assert Path(result["folder"]).parent == chosen


@pytest.fixture
def unwritable(folder: Path) -> dict[str, str]:
    """An environment in which neither the source's folder nor the user's can cache code.

    Root may write anywhere, so files occupy the paths of the folders.
    """
    (folder / "__pycache__").touch()
    (folder / "temporary").mkdir()
    nowhere = str(folder / "kernel.py" / "nowhere")
    return {"HOME": nowhere, "XDG_CACHE_HOME": nowhere, "TMPDIR": str(folder / "temporary")}


def test_read_only_installation_caches_code_in_a_private_folder(
    folder: Path, unwritable: dict[str, str]
) -> None:
    assert run(CALL, folder, **unwritable)["loaded"] == 0
    result = run(CALL, folder, **unwritable)
    private = folder / "temporary" / f"penstock-kernels-{os.getuid()}"
    assert (result["loaded"], Path(result["folder"]).parent) == (1, private)
    assert private.stat().st_mode & 0o777 == 0o700


def test_code_is_not_loaded_from_a_folder_writable_by_others(
    folder: Path, unwritable: dict[str, str]
) -> None:
    private = folder / "temporary" / f"penstock-kernels-{os.getuid()}"
    private.mkdir()
    private.chmod(0o777)
    assert run(CALL, folder, **unwritable) == {"result": 42, "loaded": 0, "folder": None}
    assert list(private.iterdir()) == []


DECODE = """
import json, sys
{first}
from penstock.model.ids import TopicPartition
from penstock.protocol.records import Record, build_batch
from penstock.spark.codec import bulk_path
from penstock.spark.codec.decode import Decoder

batch = memoryview(build_batch([Record(0, 1, b"k", b"v")]))
decoder = Decoder(TopicPartition("t", 0), ["key", "offset"], read_committed=False)
bulk_path.PLAIN_BYTES = 0
rows = [chunk.to_pylist() for chunk in decoder.decode(batch, start=0, end=9).batches]
print(json.dumps([str(rows), bulk_path.warm_up()]))
"""


@pytest.mark.parametrize(
    ("first", "environment"),
    [("sys.modules['numba'] = None", {}), ("", {"NUMBA_DISABLE_JIT": "1"})],
)
def test_rows_are_decoded_without_numba(
    folder: Path, first: str, environment: dict[str, str]
) -> None:
    result = run(DECODE.format(first=first), folder, **environment)
    assert result == ["[[{'key': b'k', 'offset': 0}]]", False]


def test_few_rows_do_not_load_numba(folder: Path) -> None:
    script = DECODE.format(first="").replace("bulk_path.PLAIN_BYTES = 0", "")
    script = script.replace("bulk_path.warm_up()", "'numba' in sys.modules")
    assert run(script, folder) == ["[[{'key': b'k', 'offset': 0}]]", False]
