"""How fast throttled replicas are copied: Kafka's limits for leaders and followers (KIP-73).

A topic lists its throttled replicas: ``*``, or ``partition:broker``. All of them share one limit in
bytes per second, one for what this broker sends as a leader and one for what it fetches. Bytes of
every listed replica count. Only those that are not in sync are held up: a limit must never push a
replica out of the in-sync set, nor hold up a high watermark.

The room of a limit grows by the limit each second, up to one second of it. Batches are sent whole,
so a copy may take more than the room. Then the next copy waits until the room is paid back, and in
the long run the limit holds exactly. Replicas in sync take room, too, but owe ten seconds at most:
a replica that is behind goes on soon after their load has ended.
"""

from typing import Final

from cordwood.quantities import INT64_MAX

NO_LIMIT: Final = INT64_MAX
_ROOM_S: Final = 1.0
_OWED_MAX_S: Final = 10.0
_WAIT_MIN_S: Final = 0.01
_WAIT_MAX_S: Final = 1.0  # a limit may be raised meanwhile
_WINDOWS: Final = 11  # of one second, as in Kafka: ten whole ones and the current one
_EVERY_REPLICA: Final = "*"


class ReplicationQuota:
    """One limit. Belongs to the loop of the replicas.

    Any thread may set `limit`, in bytes per second, and ask for `rate`.
    """

    __slots__ = ("_counted_s", "_room", "_sizes", "_started_s", "_windows", "limit")

    def __init__(self, limit: int = NO_LIMIT) -> None:
        self.limit = limit
        self._room = 0.0
        self._counted_s: float | None = None  # when `_room` was worked out; None: it is full
        self._started_s: float | None = None
        self._windows = [-1] * _WINDOWS  # which second each entry of `_sizes` counts
        self._sizes = [0] * _WINDOWS

    def room(self, now_s: float) -> int:
        """How many bytes may be copied now; zero or less: the limit is used up."""
        limit = self.limit
        if limit >= NO_LIMIT:
            return NO_LIMIT
        full = limit * _ROOM_S
        if self._counted_s is None:
            self._room = full
        else:
            grown = (now_s - self._counted_s) * limit
            self._room = min(self._room + max(grown, 0.0), full)
        self._counted_s = now_s
        return int(self._room)

    def wait_s(self, now_s: float) -> float:
        """How long to wait before the next look, if the limit is used up."""
        room = self.room(now_s)
        if room > 0:
            return 0.0
        owed_s = (1 - room) / self.limit if self.limit else _WAIT_MAX_S
        return min(max(owed_s, _WAIT_MIN_S), _WAIT_MAX_S)

    def count(self, size: int, now_s: float, *, is_in_sync: bool) -> None:
        """`size` bytes of a throttled replica are copied."""
        self._measure(size, now_s)
        if self.limit >= NO_LIMIT:
            self._counted_s = None
            return
        self.room(now_s)
        left = self._room - size
        if is_in_sync:
            left = max(left, min(self._room, -self.limit * _OWED_MAX_S))
        self._room = left

    def _measure(self, size: int, now_s: float) -> None:
        if self._started_s is None:
            self._started_s = now_s
        window = int(now_s)
        at = window % _WINDOWS
        if self._windows[at] != window:
            self._windows[at], self._sizes[at] = window, 0
        self._sizes[at] += size

    def rate(self, now_s: float) -> float:
        """Bytes per second of throttled replicas, over the last ten seconds. Any thread."""
        started_s = self._started_s
        if started_s is None:
            return 0.0
        now = int(now_s)
        counted = zip(self._windows, self._sizes, strict=True)
        total = sum(size for window, size in counted if now - _WINDOWS < window <= now)
        over_s = min(now_s - started_s, _WINDOWS - 1 + now_s - now)
        return total / max(over_s, 1.0)


class ThrottledReplica:
    """Whether a topic lists one replica. Owned by a role, and called in its loop.

    The answer is kept as long as the list is the same object: lists may be long, and fetches ask.
    """

    __slots__ = ("_found", "_is_found", "_own")

    def __init__(self, *, partition: int, node_id: int) -> None:
        self._own = f"{partition}:{node_id}"
        self._found: tuple[str, ...] = ()
        self._is_found = False

    def is_in(self, listed: tuple[str, ...]) -> bool:
        if listed is not self._found:
            self._found = listed
            self._is_found = _EVERY_REPLICA in listed or self._own in listed
        return self._is_found


class ReplicationQuotas:
    """The limits of one broker: what it sends to followers, what it fetches from leaders, and what
    it copies between its own data directories.
    """

    __slots__ = ("follower", "leader", "moves")

    def __init__(self) -> None:
        self.leader = ReplicationQuota()
        self.follower = ReplicationQuota()
        self.moves = ReplicationQuota()
