"""Python functions that a pipeline names by import path, `package.module:function`.

Checking a path imports nothing: it looks into the module's text beside the pipeline's file.
Loading imports the module. Modules beside the file travel to Spark's workers with the function, so
that workers need not find them.
"""

import ast
import importlib
import importlib.util
import inspect
import re
import sys
import typing
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from penstock.spark.pipeline.problems import listed, suggest

_PATH = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")
_TYPES = {
    "bool": "BOOLEAN",
    "int": "BIGINT",
    "float": "DOUBLE",
    "str": "STRING",
    "bytes": "BINARY",
    "date": "DATE",
    "datetime": "TIMESTAMP",
}


class NoFunction(ValueError):
    """The path leads to no function that can be used; the message says why."""


def find_mistake(path: str, read_file: Callable[[str], str]) -> str | None:
    """What is wrong with the path; None if nothing can be said against it without importing."""
    if not _PATH.fullmatch(path):
        return f"{path!r} is not an import path: write module:function, as in shop.scoring:score"
    module, _, name = path.partition(":")
    text = _find_text(module, read_file)
    if text is None:
        top = module.partition(".")[0]
        if _is_installed(top):
            return None
        return (
            f"there is no module {module}: it is looked for beside the pipeline's file "
            f"({module.replace('.', '/')}.py) and among the installed packages"
        )
    try:
        names = list(_defined(ast.parse(text)))
    except SyntaxError as error:
        return f"module {module} is not valid Python: line {error.lineno}: {error.msg}"
    if name in names or "*" in names:
        return None
    return f"module {module} has no {name!r}{suggest(name, names)}; it has: {listed(names) or '-'}"


def _find_text(module: str, read_file: Callable[[str], str]) -> str | None:
    stem = module.replace(".", "/")
    for name in (f"{stem}.py", f"{stem}/__init__.py"):
        try:
            return read_file(name)
        except (OSError, UnicodeDecodeError):
            continue
    return None


def _is_installed(top: str) -> bool:
    try:
        return importlib.util.find_spec(top) is not None
    except (ImportError, ValueError):
        return False


def _defined(tree: ast.Module) -> Iterator[str]:
    """Names that a module's top level binds; `*` if it imports what only an import tells."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Assign):
            yield from (target.id for target in node.targets if isinstance(target, ast.Name))
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id
        elif isinstance(node, ast.Import | ast.ImportFrom):
            yield from ((alias.asname or alias.name) for alias in node.names)
        elif isinstance(node, ast.If | ast.Try | ast.With):
            yield "*"


def load_function(path: str, folder: Path) -> Callable[..., Any]:
    """Imports the module, from `folder` first."""
    module_name, _, name = path.partition(":")
    beside = str(folder.absolute())
    if beside not in sys.path:
        sys.path.insert(0, beside)
    try:
        module = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:  # the module is the user's: it may raise anything
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise NoFunction(f"module {module_name} cannot be imported: {reason}") from None
    function = getattr(module, name, None)
    if not callable(function):
        raise NoFunction(f"module {module_name} has no function {name!r}")
    return typing.cast("Callable[..., Any]", function)


def travel_with_functions(folder: Path) -> None:
    """Has modules that are beside the pipeline's file pickled with the functions that use them."""
    from pyspark.cloudpickle import register_pickle_by_value

    for name, module in list(sys.modules.items()):
        if is_beside(name, getattr(module, "__file__", None), folder):
            register_pickle_by_value(module)  # type: ignore[no-untyped-call]


def is_beside(name: str, file: str | None, folder: Path) -> bool:
    """Whether a module or its outermost package is in the folder itself: a checkout of a package
    that lies deeper in it is installed, like all others."""
    if not file:
        return False
    top, inside, path = name.partition(".")[0], folder.absolute(), Path(file).absolute()
    return path == inside / f"{top}.py" or inside / top in path.parents


def return_type_of(function: Callable[..., Any]) -> str:
    """Spark's type for the function's annotation. Raises NoFunction if there is none."""
    try:
        annotation = typing.get_type_hints(function).get("return")
    except (NameError, TypeError):
        annotation = inspect.signature(function).return_annotation
    kinds = [kind for kind in typing.get_args(annotation) if kind is not type(None)]
    kind = kinds[0] if len(kinds) == 1 else annotation
    spark_type = _TYPES.get(getattr(kind, "__name__", str(kind)))
    if spark_type is None:
        raise NoFunction(
            "its result has no type that Spark knows: annotate it (-> float), or give `returns:`, "
            "as in {python: shop.scoring:score, returns: DOUBLE}"
        )
    return spark_type
