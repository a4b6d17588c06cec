"""Chooses how records are decoded and encoded: with compiled kernels, or in plain Python.

Loading numba and the kernels costs a process half a second or more. A worker with a few hundred
rows is done long before that, so kernels are loaded once enough bytes have been processed.
"""

from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from importlib import import_module
from types import ModuleType

import numpy as np
import numpy.typing as npt

from penstock.spark.codec import decode_plain, encode_plain
from penstock.spark.codec.byte_columns import ByteColumn
from penstock.spark.codec.open_batch import OpenBatch, RowColumns
from penstock.spark.codec.row_columns import RowChunk
from penstock.spark.codec.visible_batches import FetchedBatch, OffsetBounds

# 40,000 rows of 100 bytes: a tenth of a second of plain Python. A large fetch passes it at once.
PLAIN_BYTES = 4 * 1024 * 1024

DecodeBatches = Callable[
    [memoryview, Sequence[FetchedBatch], OffsetBounds, Sequence[str]], Iterator[RowChunk]
]
WriteRows = Callable[
    [OpenBatch, RowColumns, npt.NDArray[np.int64], int, int], tuple[int, int]
]  # how many rows fit, and how many bytes of the batch are used
PartitionKeys = Callable[[ByteColumn, int], npt.NDArray[np.int32]]


class BulkPath(Enum):
    COMPILED = "compiled"
    PLAIN = "plain"


class _Process:
    """The kernels this process has loaded, and the bytes it has seen."""

    def __init__(self) -> None:
        self.seen_bytes = 0
        self.modules: dict[str, ModuleType | None] = {}

    def find(self, name: str) -> ModuleType | None:
        """The module of kernels, or None if numba is missing or unusable."""
        if name not in self.modules:
            try:
                self.modules[name] = import_module(name)
            except ImportError:
                self.modules[name] = None
        return self.modules[name]


_process = _Process()
_DECODE = "penstock.spark.codec.decode_compiled"
_ENCODE = "penstock.spark.codec.encode_compiled"


def choose_decoder(path: BulkPath | None, new_bytes: int) -> DecodeBatches:
    module = _find_compiled(_DECODE, path, new_bytes)
    return decode_plain.decode_batches if module is None else module.decode_batches


def choose_encoder(path: BulkPath | None, new_bytes: int) -> WriteRows:
    module = _find_compiled(_ENCODE, path, new_bytes)
    return encode_plain.write_rows if module is None else module.write_rows


def choose_key_partitioner(path: BulkPath | None, new_bytes: int) -> PartitionKeys:
    module = _find_compiled(_ENCODE, path, new_bytes)
    return encode_plain.partition_keys if module is None else module.partition_keys


def warm_up() -> bool:
    """Load every kernel now, compiling those that are not cached. False: there are none."""
    modules = [_process.find(name) for name in (_DECODE, _ENCODE)]
    return None not in modules


def _find_compiled(name: str, path: BulkPath | None, new_bytes: int) -> ModuleType | None:
    if path is BulkPath.PLAIN:
        return None
    _process.seen_bytes += new_bytes
    if path is None and _process.seen_bytes <= PLAIN_BYTES and name not in _process.modules:
        return None
    module = _process.find(name)
    if module is None and path is BulkPath.COMPILED:
        raise RuntimeError(
            "compiled kernels need numba, which cannot be imported: pip install 'penstock[spark]'"
        )
    return module
