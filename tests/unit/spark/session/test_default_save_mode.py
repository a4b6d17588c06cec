"""`.save()` without a mode, as a client of Spark Connect sends it."""

from types import SimpleNamespace
from typing import Any

import pytest

from penstock.spark.session.default_save_mode import _wrap_save


def make_writer() -> Any:
    """A writer like Spark Connect's, which notes the mode that it is saved with."""

    class FakeWriter:
        def __init__(self) -> None:
            self._write = SimpleNamespace(source=None, mode=None)
            self.saved: list[tuple[object, ...]] = []

        def format(self, source: str) -> "FakeWriter":
            self._write.source = source
            return self

        def save(
            self,
            path: str | None = None,
            format: str | None = None,  # noqa: A002 (Spark's name)
            mode: str | None = None,
            partitionBy: str | None = None,  # noqa: N803 (Spark's name)
            **options: str,
        ) -> None:
            self.saved.append((self._write.source, mode or self._write.mode, path, options))

    _wrap_save(FakeWriter)
    _wrap_save(FakeWriter)  # once is enough
    return FakeWriter()


@pytest.mark.parametrize("mode", [None, "error", "ErrorIfExists", "default", "append"])
def test_the_default_mode_appends(mode: str | None) -> None:
    writer = make_writer()
    writer.save(format="penstock", mode=mode, topic="orders")
    assert writer.saved == [("penstock", "append", None, {"topic": "orders"})]


@pytest.mark.parametrize(
    ("source", "before", "mode"),
    [
        ("penstock", None, "overwrite"),
        ("penstock", "ignore", None),
        ("parquet", None, None),
        ("parquet", "error", None),
    ],
)
def test_other_modes_and_formats_stay(source: str, before: str | None, mode: str | None) -> None:
    writer = make_writer()
    writer._write.mode = before
    writer.format(source).save("folder", mode=mode)
    assert writer.saved == [(source, mode or before, "folder", {})]
