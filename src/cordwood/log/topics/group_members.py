"""Which reader of a group holds which partition, among the readers of one store.

A partition moves in steps. The rule (`share_partitions`) says whose it is to be. The reader that
holds it commits what it has handled and gives it up. Then the other one takes it. So two readers
never hold the same partition, and a reader that is busy with a record is not interrupted.
"""

import itertools
import threading
from collections import deque
from collections.abc import Callable
from uuid import UUID

from cordwood.log.rules.fork_refusal import is_forked
from cordwood.log.rules.partition_shares import share_partitions
from cordwood.value_class import dataclass, field


@dataclass(slots=True, kw_only=True)
class _Sharing:
    """The readers of one topic in one group. Its owner's lock guards it."""

    partition_count: int = 0
    readers: list[int] = field(default_factory=list)  # in the order in which they came
    wanted: dict[int, int] = field(default_factory=dict)  # partition: whose it is to be
    holders: dict[int, int] = field(default_factory=dict)  # partition: who has it
    round: int = 0  # changes with `wanted`


class GroupMembers:
    """The readers of all groups of a store. Any thread may use it.

    Invariant: a partition has at most one holder, and the holder is a reader that has not left.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._sharings: dict[tuple[str, UUID], _Sharing] = {}
        self._numbers = itertools.count(1)
        self._lost: deque[Membership] = deque()
        self._listeners: tuple[Callable[[], None], ...] = ()
        self.beginning = threading.Lock()  # held while a group's first positions are committed

    def join(self, group: str, topic_id: UUID) -> "Membership":
        with self._changed:
            self._remove_lost()
            sharing = self._sharings.setdefault((group, topic_id), _Sharing())
            member = Membership(self, (group, topic_id), next(self._numbers))
            sharing.readers.append(member.number)
            self._share(sharing)
            return member

    def is_due(self, member: "Membership", partition_count: int) -> bool:
        """Whether the member should compare what it holds with what it is to hold."""
        if self._lost:
            with self._changed:
                self._remove_lost()
        sharing = self._sharings[member.key]
        return sharing.round != member.round or sharing.partition_count != partition_count

    def wanted(self, member: "Membership", partition_count: int) -> tuple[int, frozenset[int]]:
        """The number of the present round, and the partitions that are to be the member's."""
        with self._changed:
            self._remove_lost()
            sharing = self._sharings[member.key]
            if partition_count != sharing.partition_count:
                sharing.partition_count = partition_count
                self._share(sharing)
            share = frozenset(p for p, who in sharing.wanted.items() if who == member.number)
            return sharing.round, share

    def take(self, member: "Membership", partition: int) -> bool:
        """Hold a partition. False if another one still holds it, or it is to be another one's."""
        with self._changed:
            sharing = self._sharings[member.key]
            if sharing.wanted.get(partition) != member.number:
                return False
            return sharing.holders.setdefault(partition, member.number) == member.number

    def give_up(self, member: "Membership", partition: int) -> None:
        with self._changed:
            del self._sharings[member.key].holders[partition]
            self._tell()

    def wait(self, timeout_s: float) -> None:
        """Wait until a reader came, left or gave up a partition, at most that long."""
        with self._changed:
            self._changed.wait(timeout_s)

    def leave(self, member: "Membership") -> None:
        """Give up everything. Safe to repeat."""
        with self._changed:
            self._remove(member)

    def lose(self, member: "Membership") -> None:
        """The same for a reader that nobody closed. Takes no lock: the collector calls it."""
        if not is_forked(self):
            self._lost.append(member)

    def _remove_lost(self) -> None:
        while self._lost:
            self._remove(self._lost.popleft())

    def _remove(self, member: "Membership") -> None:
        sharing = self._sharings.get(member.key)
        if sharing is None or member.number not in sharing.readers:
            return
        sharing.readers.remove(member.number)
        sharing.holders = {p: who for p, who in sharing.holders.items() if who != member.number}
        self._share(sharing)
        if not sharing.readers:
            del self._sharings[member.key]

    def _share(self, sharing: _Sharing) -> None:
        sharing.wanted = share_partitions(sharing.readers, sharing.partition_count, sharing.wanted)
        sharing.round += 1
        self._tell()

    def add_listener(self, listener: Callable[[], None]) -> None:
        """Have `listener` called when a reader came, left or gave up a partition.

        It is called with the lock held, in any thread, so it must not wait.
        """
        with self._changed:
            self._listeners = (*self._listeners, listener)

    def remove_listener(self, listener: Callable[[], None]) -> None:
        """Forget one that was added. Safe to repeat."""
        with self._changed:
            self._listeners = tuple(each for each in self._listeners if each != listener)

    def _tell(self) -> None:
        """Wake everybody who waits. The caller holds the lock."""
        self._changed.notify_all()
        for listener in self._listeners:
            listener()


class Membership:
    """One reader's place among the others. `round` is the last one that the reader has followed."""

    def __init__(self, members: GroupMembers, key: tuple[str, UUID], number: int) -> None:
        self.members = members
        self.key = key
        self.number = number
        self.round = -1
