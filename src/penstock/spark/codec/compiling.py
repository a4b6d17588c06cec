"""Kernels compiled with numba: their decorators, and where the machine code is kept.

Compiling takes seconds, loading kept code a third of one. Code is kept where numba keeps it: in
NUMBA_CACHE_DIR, else in `__pycache__` beside the source, else in the user's cache folder; all
workers of a machine find it there, and files are replaced whole, so they may race. Where none of
these can be written, a private folder of the temporary directory is used.

Only the modules of kernels import this one: without numba the import fails, and callers of kernels
go the plain way.
"""

import os
import pickle
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

_config: Any = numba.config
_generate_memcpy: Any = cgutils.raw_memcpy
_Function = TypeVar("_Function", bound=Callable[..., object])

if _config.DISABLE_JIT:
    raise ImportError("NUMBA_DISABLE_JIT is set: kernels cannot run as Python")


def compiled(signature: str) -> Callable[[_Function], _Function]:
    """A kernel with one signature, compiled or loaded at once: other types are an error, not
    another compilation."""

    def decorate(function: _Function) -> _Function:
        return cast("_Function", _compile(function, signature))

    return decorate


def inlined(function: _Function) -> _Function:
    """A part of kernels. It stands in their file: numba does not see when others change."""
    return cast("_Function", njit(nogil=True)(function))


def _compile(function: Callable[..., object], signature: str) -> Any:
    try:
        return njit(signature, nogil=True, cache=True)(function)
    except (RuntimeError, OSError, EOFError, pickle.UnpicklingError):
        # No place to write to, a full disk, or a file that a power cut has damaged.
        folder = _find_private_folder()
    if folder is not None:
        _config.CACHE_DIR = str(folder)
        try:
            return njit(signature, nogil=True, cache=True)(function)
        except (RuntimeError, OSError, EOFError, pickle.UnpicklingError):
            _config.CACHE_DIR = ""
    return njit(signature, nogil=True)(function)


def _find_private_folder() -> Path | None:
    """Nobody else may write there: kept code is loaded and run."""
    folder = Path(tempfile.gettempdir()) / f"penstock-kernels-{os.getuid()}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
    except OSError:
        return None
    is_own = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()
    return folder if is_own and not found.st_mode & 0o022 else None


def _copy_bytes(
    _context: Any, target: Any, _target_start: Any, source: Any, _source_start: Any, _length: Any
) -> tuple[Any, Callable[..., object]]:
    """memcpy between two arrays of bytes, unchecked: 5 times as fast as numba's loop over bytes."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> object:
        target_value, target_start, source_value, source_start, length = arguments
        to = context.make_array(signature.args[0])(context, builder, target_value).data
        origin = context.make_array(signature.args[2])(context, builder, source_value).data
        _generate_memcpy(
            builder,
            builder.gep(to, [target_start]),
            builder.gep(origin, [source_start]),
            length,
            1,
        )
        return context.get_dummy_value()

    return types.void(target, types.int64, source, types.int64, types.int64), generate


copy_bytes = cast("Callable[[Any, int, Any, int, int], None]", intrinsic(_copy_bytes))
