"""The memory that large frames may hold while they are received: one limit for all connections.

A frame takes memory in shares, as its bytes arrive, so what a client announces costs nothing. Then
many frames may be half received when the memory is used up, and none of them could go on. This is
avoided with the banker's algorithm: a share is lent only if all frames that hold memory could
still be received, one after the other, whatever they announced.
"""

from collections.abc import Callable
from threading import Lock


class FrameMemory:
    """What one frame holds. Only the budget changes it.

    Invariant: ``0 <= held <= size``.
    """

    __slots__ = ("held", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        self.held = 0

    @property
    def rest(self) -> int:
        return self.size - self.held


class MemoryBudget:
    """Bytes that are lent out and given back. A frame that finds too few left waits.

    Invariants: ``0 <= lent <= limit``, and the frames that hold memory can be put in an order in
    which each finds its rest free once those before it have given theirs back. Any thread may use
    it. No frame may be larger than the limit.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._lent = 0
        self._size_max = 0  # of all frames so far
        self._lock = Lock()
        self._holders: set[FrameMemory] = set()
        self._waiting: dict[FrameMemory, tuple[int, Callable[[], None]]] = {}

    @property
    def lent(self) -> int:
        return self._lent

    @property
    def is_short(self) -> bool:
        """Whether a frame waits for memory."""
        return bool(self._waiting)

    def take(self, frame: FrameMemory, count: int, when_granted: Callable[[], None]) -> bool:
        """True: `count` more bytes are lent. False: `when_granted` is called when they are."""
        assert 0 < count <= frame.rest <= self._limit, (count, frame.rest)
        with self._lock:
            self._size_max = max(self._size_max, frame.size)
            if self._lend(frame, count):
                return True
            self._waiting[frame] = (count, when_granted)
            return False

    def give_back(self, frame: FrameMemory) -> None:
        """Give back all that `frame` holds; it waits for no more. Safe to repeat."""
        granted: list[Callable[[], None]] = []
        with self._lock:
            self._waiting.pop(frame, None)
            self._holders.discard(frame)
            self._lent -= frame.held
            frame.held = 0
            # If the one with the least to come must wait, the others may wait too: each return
            # brings it closer.
            for waiting in sorted(self._waiting, key=_rest):
                count, when_granted = self._waiting[waiting]
                if not self._lend(waiting, count):
                    break
                del self._waiting[waiting]
                granted.append(when_granted)
        for when_granted in granted:
            when_granted()

    def _lend(self, frame: FrameMemory, count: int) -> bool:
        free = self._limit - self._lent
        if count > free:
            return False
        can_finish = frame.rest <= free
        frame.held += count
        if not can_finish and not self._is_safe(frame, free - count):
            frame.held -= count
            return False
        self._lent += count
        self._holders.add(frame)
        return True

    def _is_safe(self, frame: FrameMemory, free: int) -> bool:
        """Whether all holders and `frame` can be received one after the other."""
        if free >= self._size_max:
            return True
        for holder in sorted(self._holders | {frame}, key=_rest):
            if holder.rest > free:
                return False
            free += holder.held
        return True


def _rest(frame: FrameMemory) -> int:
    return frame.rest
