"""A broker's process starts with few imports and without garbage collection."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPT = """
import gc, json, os, signal, sys
from penstock.server.lean_start import start_broker
from penstock.config.raw_config import RawConfig

def on_ready(broker):
    frozen = gc.get_freeze_count()
    print(json.dumps([gc.isenabled(), frozen, len(gc.get_objects()), sorted(sys.modules)]))
    os.kill(os.getpid(), signal.SIGTERM)

settings = {"log.dirs": sys.argv[1], "listeners": "PLAINTEXT://127.0.0.1:0"}
raw_config = RawConfig.from_mapping(settings, where="test")
sys.exit(start_broker(raw_config, on_ready=on_ready))
"""


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return what a broker's process reports when it is ready."""
    directory: Path = tmp_path_factory.mktemp("data")
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(directory)], capture_output=True, check=True
    )
    return json.loads(done.stdout.splitlines()[-1])  # printed after the broker's own lines


@pytest.mark.parametrize(
    "name",
    [
        "penstock.apis.admin.create_topics",
        "penstock.apis.data.fetch",
        "penstock.storage.compaction",
        "kio",
        "hypothesis",
        "crc32c",
        "argparse",
        "difflib",
        "importlib.metadata",
    ],
)
def test_modules_that_the_first_clients_do_not_need_are_not_imported(
    started: Any, name: str
) -> None:
    assert name not in started[3]


def test_modules_are_frozen_so_that_no_collection_scans_them(started: Any) -> None:
    is_enabled, frozen, others, _ = started
    assert is_enabled
    assert frozen > 10 * others
