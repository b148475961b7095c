"""A system that has no more threads, for one object only."""

import threading
from types import TracebackType
from unittest.mock import patch


class ThreadShortage:
    """While it lasts, no thread starts that would run a method of `owner`. Others do."""

    def __init__(self, owner: object) -> None:
        start = threading.Thread.start

        def start_if_permitted(thread: threading.Thread) -> None:
            if getattr(getattr(thread, "_target", None), "__self__", None) is owner:
                raise RuntimeError("can't start new thread")
            start(thread)

        self._patch = patch.object(threading.Thread, "start", start_if_permitted)

    def __enter__(self) -> None:
        self._patch.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._patch.stop()
