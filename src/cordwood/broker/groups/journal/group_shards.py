"""The partitions of ``__consumer_offsets`` that this broker leads: it coordinates their groups.

A shard is one partition in one leader epoch. It is loaded when this broker leads and knows what
earlier leaders committed, and unloaded when another epoch begins. Whatever a group writes says in
which epoch it was loaded: if that has passed, it is refused, and nothing is acknowledged that the
next coordinator may not have.
"""

from collections.abc import Callable
from concurrent.futures import Future
from typing import Protocol

from cordwood.format.groups.group_offsets import group_partition
from cordwood.protocol.error_code import ErrorCode
from cordwood.quantities import LeaderEpoch, Offset


class Commitments(Protocol):
    """Waits until records are on all replicas that count. Any thread may call it."""

    def refusal(self, partition: int, led_in: LeaderEpoch) -> ErrorCode | None:
        """Why records of that leadership cannot be committed now; None if they can."""
        ...

    def await_committed(self, partition: int, end: Offset, led_in: LeaderEpoch) -> Future[bool]:
        """True once records below `end` are committed; False if the leadership ends before."""
        ...


class GroupShards:
    """Belongs to the control loop. `count` is the number of partitions; None: no topic yet."""

    def __init__(self, count: Callable[[], int | None], commitments: Commitments) -> None:
        self.commitments = commitments
        self._count = count
        self._epochs: dict[int, LeaderEpoch] = {}
        self._loaded: set[int] = set()

    def number_of(self, group_id: str) -> int | None:
        """The partition of a group; None while the topic does not exist."""
        count = self._count()
        return None if count is None else group_partition(group_id, count)

    def refusal(self, group_id: str) -> ErrorCode | None:
        """Why this broker does not coordinate a group; None if it does."""
        number = self.number_of(group_id)
        if number is None:
            return ErrorCode.coordinator_not_available
        if number not in self._epochs:
            return ErrorCode.not_coordinator
        if number not in self._loaded:
            return ErrorCode.coordinator_load_in_progress
        return None

    def led_in(self, group_id: str) -> tuple[int, LeaderEpoch] | None:
        """The shard of a group; None if this broker does not coordinate it."""
        number = self.number_of(group_id)
        if number is None or number not in self._loaded:
            return None
        return number, self._epochs[number]

    def begin(self, number: int, epoch: LeaderEpoch) -> None:
        """This broker leads the partition, and is about to load it."""
        self._epochs[number] = epoch
        self._loaded.discard(number)

    def is_current(self, number: int, epoch: LeaderEpoch) -> bool:
        return self._epochs.get(number) == epoch

    @property
    def is_loading(self) -> bool:
        """Whether a partition that this broker leads is not loaded yet."""
        return len(self._loaded) < len(self._epochs)

    def is_led(self, number: int) -> bool:
        return number in self._epochs

    def finish_load(self, number: int) -> None:
        self._loaded.add(number)

    def end(self, number: int) -> None:
        """Another epoch began."""
        self._epochs.pop(number, None)
        self._loaded.discard(number)
