"""What Py4J says to the root logger is not printed; what others say there is."""

import logging
from pathlib import Path

import py4j.java_gateway
import pytest

from penstock.spark.pipeline.launch import _log_into


@pytest.mark.parametrize(
    ("file", "is_shown"), [(py4j.java_gateway.__file__, False), (__file__, True)]
)
def test_only_py4js_records_are_kept_from_the_root_logger(
    tmp_path: Path, file: str, is_shown: bool
) -> None:
    root = logging.getLogger()
    before = root.filters[:]
    try:
        _log_into(tmp_path / "spark.log")
        record = root.makeRecord("root", logging.ERROR, file, 1, "a connection", (), None)
        assert bool(root.filter(record)) is is_shown
    finally:
        root.filters[:] = before
