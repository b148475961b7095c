"""Work for one thread, which takes everything that waits at once."""

import logging
import threading
from collections.abc import Callable
from typing import Final, Generic, Protocol, TypeVar

logger = logging.getLogger(__name__)

Item = TypeVar("Item")
Item_contra = TypeVar("Item_contra", contravariant=True)

_STOP_TIMEOUT_S: Final = 30.0  # a sync that takes longer hangs


class Substitute(Protocol[Item_contra]):
    """Does the work instead of the thread, for a while. Called with the lock of the queue."""

    def put(self, item: Item_contra, *, is_urgent: bool) -> None: ...

    def hurry(self) -> None:
        """Have everything that waits worked on now."""
        ...


class WorkQueue(Generic[Item]):
    """Calls `work` with all items that wait. Any thread may put.

    The thread begins with the first item. Without a thread, `run_here` does the work: for tests
    that must come out the same at every run.
    """

    def __init__(
        self, name: str, work: Callable[[list[Item]], None], *, has_thread: bool = True
    ) -> None:
        self._name = name
        self._work = work
        self._has_thread = has_thread
        self._lock = threading.Lock()
        self._condition = threading.Condition(self._lock)
        self._items: list[Item] = []
        self._is_stopped = False
        self._is_wanted = False  # something urgent waits
        self._is_working = False
        self._thread: threading.Thread | None = None
        self._substitute: Substitute[Item] | None = None

    def put(self, item: Item, *, is_urgent: bool = True) -> bool:
        """Whether the item will be worked on; False after `stop`.

        One that is not urgent waits for the next urgent one, or for `hurry`.
        """
        with self._lock:  # quicker than that of the condition
            if self._is_stopped:
                return False
            if self._substitute is not None:
                self._substitute.put(item, is_urgent=is_urgent)
                return True
            self._items.append(item)
            if self._has_thread:
                self._begin()
                if is_urgent:
                    self._wake()
        return True

    def hurry(self) -> None:
        """Have everything that waits worked on now."""
        with self._condition:
            if self._substitute is not None:
                self._substitute.hurry()
            if self._items and self._has_thread:
                self._begin()
                self._wake()

    def put_here(self, item: Item) -> bool:
        """As `put`, for the thread, even if it has a substitute."""
        with self._condition:
            if self._is_stopped:
                return False
            self._items.append(item)
            if self._has_thread:
                self._begin()
                self._wake()
        return True

    def hand_over(self, substitute: Substitute[Item]) -> None:
        """Give all later items to `substitute`. Waits until the earlier ones are done."""
        with self._condition:
            assert self._substitute is None
            self._substitute = substitute
            if self._items and self._has_thread:
                self._begin()
                self._wake()
            while (self._items or self._is_working) and self._thread and not self._is_stopped:
                self._condition.wait()
            left, self._items = self._items, []
            for item in left:  # there is no thread
                substitute.put(item, is_urgent=True)

    def take_back(self, take_items: Callable[[], list[Item]]) -> None:
        """Do the work again. `take_items` gives what the substitute has not done."""
        with self._condition:
            self._substitute = None
            self._items = take_items() + self._items
            if self._items and self._has_thread and not self._is_stopped:
                self._begin()
                self._wake()

    def _wake(self) -> None:
        self._is_wanted = True
        self._condition.notify_all()

    def _begin(self) -> None:
        """Start the thread. If the system has none to give, the next item tries again."""
        if self._thread is not None:
            return
        thread = threading.Thread(target=self._run, name=self._name, daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            logger.error("%s waits for a thread: %s", self._name, error)
        else:
            self._thread = thread

    def run_here(self) -> bool:
        """Work on what waits, if there is no thread for it; whether there was anything."""
        if self._has_thread:
            return False
        with self._condition:
            items, self._items = self._items, []
        if items:
            self._work(items)
        return bool(items)

    def stop(self, *, finishes: bool = True) -> None:
        """End the thread, after the items that wait unless `finishes` is False."""
        with self._condition:
            self._is_stopped = True
            if not finishes:
                self._items.clear()
            self._condition.notify_all()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(_STOP_TIMEOUT_S)

    def _run(self) -> None:
        while True:
            with self._condition:
                self._is_working = False
                if self._substitute is not None:
                    self._condition.notify_all()  # it may wait for this
                while not (self._is_wanted or self._is_stopped):
                    self._condition.wait()
                self._is_wanted = False
                self._is_working = True
                items, self._items = self._items, []
                if not items and self._is_stopped:
                    return
            if not items:
                continue
            try:
                self._work(items)
            except Exception:  # a bug of ours: the next items are not concerned
                logger.exception("%s failed", self._name)
