"""A pipeline declared in Python, read into the same tree as YAML. Lines are those of the file.

    pipeline = declare(
        sources={"clicks": {"topic": "clicks"}},
        sinks={"out": {"from": "clicks", "topic": "copied"}},
    )

Entries have the names of the YAML file; where that has the import path of a function, a function
may stand. Running the file declares the pipeline; it must not start Spark.
"""

import ast
import importlib.util
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from penstock.spark.pipeline.problems import PipelineInvalid, Problem
from penstock.spark.pipeline.tree import list_node, mapping_node, scalar_node

_PACKAGE = "penstock.spark.pipeline"
_DECLARE = "declare"


class Declaration(NamedTuple):
    """What a Python file declares."""

    entries: Mapping[str, Any]


class PythonTree(NamedTuple):
    root: Any
    functions: Mapping[str, Callable[..., Any]]  # by the import path that stands in the tree


def is_pipeline_python(text: str) -> bool:
    """Whether the file declares a pipeline of ours; other files are Spark's declarative ones."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return False
    imported = (node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom))
    return any(
        node.module == _PACKAGE and _DECLARE in {alias.name for alias in node.names}
        for node in imported
    )


def read_python_tree(file: str, text: str) -> PythonTree:
    """Runs the file. Raises PipelineInvalid if it fails or declares nothing."""
    module = _run(file)
    declared = [
        (name, value) for name, value in vars(module).items() if isinstance(value, Declaration)
    ]
    if len(declared) != 1:
        message = f"one `pipeline = {_DECLARE}(...)` is expected, not {len(declared)}"
        raise PipelineInvalid(file, [Problem(1, message)])
    name, declaration = declared[0]
    call = _find_call(text, name)
    converter = _Converter()
    keywords = {} if call is None else {key.arg: key.value for key in call.keywords if key.arg}
    line = 1 if call is None else call.lineno
    entries = [
        (
            scalar_node(key, keywords[key].lineno if key in keywords else line),
            converter.node(value, keywords.get(key), line),
        )
        for key, value in declaration.entries.items()
        if value is not None
    ]
    return PythonTree(mapping_node(entries, line), converter.functions)


def _run(file: str) -> Any:
    """The file as a module of its own name, which its functions keep."""
    path = Path(file)
    name = path.stem if path.stem.isidentifier() else "penstock_pipeline_file"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    folder = str(path.parent.absolute())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # the file is the user's: it may raise anything
        line = _line_of(error, file)
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise PipelineInvalid(file, [Problem(line, f"the file fails: {reason}")]) from None
    return module


def _line_of(error: BaseException, file: str) -> int:
    if isinstance(error, SyntaxError) and error.lineno:
        return error.lineno
    line, frame = 1, error.__traceback__
    while frame is not None:
        if frame.tb_frame.f_code.co_filename == file:
            line = frame.tb_lineno
        frame = frame.tb_next
    return line


def _find_call(text: str, name: str) -> ast.Call | None:
    """The call whose result the file gives this name."""
    for node in ast.parse(text).body:
        targets = node.targets if isinstance(node, ast.Assign) else []
        names = [target.id for target in targets if isinstance(target, ast.Name)]
        if name in names and isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            return node.value
    return None


class _Converter:
    def __init__(self) -> None:
        self.functions: dict[str, Callable[..., Any]] = {}

    def node(self, value: Any, written: ast.expr | None, line: int) -> Any:
        line = line if written is None else written.lineno
        if isinstance(value, Mapping):
            return self._mapping(value, written, line)
        if isinstance(value, Sequence) and not isinstance(value, str):
            items = written.elts if isinstance(written, ast.List | ast.Tuple) else ()
            places: list[ast.expr | None] = list(items) if len(items) == len(value) else []
            places = places or [None] * len(value)
            nodes = [self.node(*pair, line) for pair in zip(value, places, strict=True)]
            return list_node(nodes, line)
        if callable(value):
            path = f"{value.__module__}:{getattr(value, '__qualname__', type(value).__name__)}"
            self.functions[path] = value
            return scalar_node(path, line)
        return scalar_node(value, line)

    def _mapping(self, value: Mapping[Any, Any], written: ast.expr | None, line: int) -> Any:
        keys: dict[Any, tuple[int, ast.expr]] = {}
        if isinstance(written, ast.Dict):
            for key, entry in zip(written.keys, written.values, strict=True):
                if isinstance(key, ast.Constant):
                    keys[key.value] = (key.lineno, entry)
        entries = []
        for name, entry_value in value.items():
            key_line, given = _place_of(name, keys, line)
            entries.append((scalar_node(name, key_line), self.node(entry_value, given, key_line)))
        return mapping_node(entries, line)


def _place_of(
    name: Any, keys: Mapping[Any, tuple[int, ast.expr]], line: int
) -> tuple[int, ast.expr | None]:
    return keys.get(name, (line, None))
