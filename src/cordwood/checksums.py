"""CRC-32C, the checksum of Kafka's batches: the function of the package `crc32c`.

The package looks up its own version while it is imported: 20 ms in each process, a tenth of what
it takes to open a store. So its extension module is loaded without the package around it. If it
has another form some day, the package is imported as usual.
"""

from collections.abc import Callable
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from typing import TYPE_CHECKING, Any

__all__ = ["crc32c"]


def _extension_function() -> Callable[..., Any] | None:
    package = PathFinder.find_spec("crc32c")
    if package is None or package.submodule_search_locations is None:
        return None
    found = PathFinder.find_spec("crc32c._crc32c", package.submodule_search_locations)
    if found is None or found.loader is None:
        return None
    module = module_from_spec(found)
    found.loader.exec_module(module)
    return getattr(module, "crc32c", None)


if TYPE_CHECKING:
    from crc32c import crc32c
else:
    crc32c = _extension_function()
    if crc32c is None:
        from crc32c import crc32c
