"""Assembles the Python source of encoders and decoders and compiles it once.

The source consists of field names and numbers from the schemas, never of anything that a peer sent.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


class FunctionSource:
    """One function under construction, with the objects it refers to."""

    def __init__(self, head: str, **names: object) -> None:
        self._lines = [head]
        self._depth = 1
        self._names = names
        self._count = 0

    def line(self, text: str) -> None:
        self._lines.append("    " * self._depth + text)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        self.line(head)
        self._depth += 1
        yield
        self._depth -= 1

    def name(self, value: object, hint: str) -> str:
        """The name under which the function refers to this object."""
        name = self.fresh(hint)
        self._names[name] = value
        return name

    def fresh(self, hint: str) -> str:
        self._count += 1
        return f"{hint}_{self._count}"

    @property
    def has_body(self) -> bool:
        return len(self._lines) > 1

    def text(self) -> str:
        return "\n".join(self._lines) + "\n"

    def compile(self, function: str, origin: str) -> Callable[..., Any]:
        scope: dict[str, Any] = dict(self._names)
        exec(compile(self.text(), f"<{origin}>", "exec"), scope)  # noqa: S102 - see the top
        compiled: Callable[..., Any] = scope[function]
        return compiled
