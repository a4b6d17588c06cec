"""`.save()` without a mode appends to topics, as with Spark's own Kafka connector.

Spark refuses its own default mode (`errorifexists`) for every sink written in Python, before the
sink is asked; its Kafka connector is exempt. So the writer of this process asks for `append`.
Invariant: other formats, and other modes, reach Spark unchanged.
"""

from functools import wraps
from typing import Any, Protocol

FORMAT = "penstock"
_DEFAULT_MODES = frozenset((None, "error", "errorifexists", "default"))


class _Writer(Protocol):
    def format(self, source: str) -> Any: ...


def accept_default_mode() -> None:
    """For every session of this process, now and later. Calling it again changes nothing."""
    from pyspark.sql.readwriter import DataFrameWriter

    _wrap_save(DataFrameWriter)


def accept_default_mode_on_connect() -> None:
    """The same for clients of a Spark Connect server, whose packages must be there."""
    from pyspark.sql.connect.readwriter import DataFrameWriter

    _wrap_save(DataFrameWriter)


def _wrap_save(writer: Any) -> None:
    save = writer.save
    if hasattr(save, "__wrapped__"):
        return

    @wraps(save)
    def save_or_append(
        self: _Writer,
        path: str | None = None,
        format: str | None = None,  # noqa: A002 (Spark's name)
        mode: str | None = None,
        *arguments: Any,
        **options: Any,
    ) -> None:
        if format is not None:
            self.format(format)
        if _is_default(mode) and _source(self) == FORMAT and _is_default(_mode(self)):
            mode = "append"
        save(self, path, None, mode, *arguments, **options)

    writer.save = save_or_append


def _is_default(mode: str | None) -> bool:
    return (None if mode is None else mode.lower()) in _DEFAULT_MODES


def _source(writer: Any) -> str | None:
    jvm = getattr(writer, "_jwrite", None)
    return str(jvm.source()) if jvm is not None else writer._write.source  # noqa: SLF001


def _mode(writer: Any) -> str | None:
    """As it was set before `save`."""
    jvm = getattr(writer, "_jwrite", None)
    return str(jvm.curmode().name()) if jvm is not None else writer._write.mode  # noqa: SLF001
