"""Keeps Spark's Python workers from searching the whole heap for garbage after every task.

Spark keeps a worker for the next tasks and calls `gc.collect()` between two of them. That looks at
every object of the imported packages, a few hundred thousand of them: 20 ms and more of processor
time for each task, for which the next task waits. Objects that are frozen are not looked at.
"""

import gc
import sys
from typing import Final

_WORKER: Final = "pyspark.daemon"
_FREEZES_MAX: Final = 3  # what is imported late is frozen by the second or third task

_freezes = 0


def settle_heap() -> None:
    """In the first tasks of a worker: let its garbage collector forget what is there by now.

    Tasks call it when they begin. Frozen objects are freed as always when nothing refers to them;
    only those in cycles stay, which a few calls at the beginning bound. Does nothing elsewhere.
    """
    global _freezes  # noqa: PLW0603 - one heap for each process
    if _freezes >= _FREEZES_MAX or not _is_worker():
        return
    if _freezes == 0:
        gc.collect()  # later Spark has just done so
    _freezes += 1
    gc.freeze()


def _is_worker() -> bool:
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return spec is not None and spec.name == _WORKER
