"""Decorators for numba kernels, and where their machine code is cached.

Compiling takes seconds, loading cached code a third of a second. The cache is numba's: in
NUMBA_CACHE_DIR, else in `__pycache__` next to the source, else in the user's cache folder. All
workers of a machine share it; files are replaced atomically, so they may race. If none of these is
writable, a private folder in the temporary directory is used.

Only the kernel modules import this one: without numba the import fails, and callers fall back to
plain Python.
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
    """A kernel with one signature, compiled or loaded on import. Other argument types are an error,
    not another compilation."""

    def decorate(function: _Function) -> _Function:
        return cast("_Function", _compile(function, signature))

    return decorate


def inlined(function: _Function) -> _Function:
    """A helper of kernels. Must be in their file, because numba does not track other files."""
    return cast("_Function", njit(nogil=True)(function))


def _compile(function: Callable[..., object], signature: str) -> Any:
    try:
        return njit(signature, nogil=True, cache=True)(function)
    except (RuntimeError, OSError, EOFError, pickle.UnpicklingError):
        # No writable folder, a full disk, or a cache file damaged by a power cut.
        folder = _find_private_folder()
    if folder is not None:
        _config.CACHE_DIR = str(folder)
        try:
            return njit(signature, nogil=True, cache=True)(function)
        except (RuntimeError, OSError, EOFError, pickle.UnpicklingError):
            _config.CACHE_DIR = ""
    return njit(signature, nogil=True)(function)


def _find_private_folder() -> Path | None:
    """Writable by this user only, because cached code is loaded and run."""
    folder = Path(tempfile.gettempdir()) / f"penstock-kernels-{os.getuid()}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        status = folder.lstat()
    except OSError:
        return None
    is_own = stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid()
    return folder if is_own and not status.st_mode & 0o022 else None


def _copy_bytes(
    _context: Any, target: Any, _target_start: Any, source: Any, _source_start: Any, _length: Any
) -> tuple[Any, Callable[..., object]]:
    """Unchecked memcpy between two byte arrays; 5 times as fast as a numba loop over bytes."""

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
