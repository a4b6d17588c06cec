"""CRC-32C, as in record batches and Kafka's snapshots: `crc32c(data, value=0)`.

On import, the package `crc32c` reads its own version and builds a command line, which adds 27 ms to
a broker's start. So only its compiled module is loaded here, unregistered, and `import crc32c`
elsewhere is unaffected.
"""

from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from crc32c import crc32c

__all__ = ["crc32c"]


def _find_compiled() -> ModuleType | None:
    """None: the package has another layout."""
    package = PathFinder.find_spec("crc32c")
    places = None if package is None else package.submodule_search_locations
    spec = None if places is None else PathFinder.find_spec("crc32c._crc32c", places)
    if spec is None or spec.loader is None:
        return None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


_compiled = _find_compiled()
if _compiled is not None and hasattr(_compiled, "crc32c"):
    crc32c = _compiled.crc32c
else:
    from crc32c import crc32c
