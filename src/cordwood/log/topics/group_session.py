"""A member of a group: the partitions that it holds, how far it is, and what it commits.

Each partition has three offsets: ``committed <= handled <= next``. `next` moves when a record is
given out, `handled` when the caller asks for the record after it, `committed` when the store has
written `handled`. After a crash the group continues at `committed`. So a record may be given out
twice, but none is skipped: at least once.

A session gives out no records and waits for nothing but the disk. `GroupReader` gives them to a
thread, `cordwood.aio` to a task.
"""

import logging
import weakref
from collections.abc import Callable
from functools import partial
from typing import Final, Literal, NamedTuple
from uuid import UUID

from cordwood.clock import Clock
from cordwood.errors import ConfigError, LogClosedError, OffsetOutOfRangeError, TopicDeletedError
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.log.reading.log_source import readable_end
from cordwood.log.reading.merged_logs import TURN_OFFSETS_MAX
from cordwood.log.rules.fork_refusal import is_forked, refuse_after_fork
from cordwood.log.rules.isolation import READ_UNCOMMITTED, Isolation, is_committed_only
from cordwood.log.rules.lifetime import Lifetime
from cordwood.log.topics.committed_offsets import CommittedOffsets
from cordwood.log.topics.group_members import GroupMembers
from cordwood.log.topics.topic import Topic
from cordwood.quantities import Offset
from cordwood.value_class import dataclass

logger = logging.getLogger(__name__)

FirstPosition = Literal["start", "end"]
COMMIT_INTERVAL_MS: Final = 5000  # Kafka's auto.commit.interval.ms


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderSurroundings:
    """What the readers of a store share."""

    offsets: CommittedOffsets
    members: GroupMembers
    clock: Clock
    lifetime: Lifetime
    find_topic: Callable[[str], Topic[PartitionLog]]
    topic_id: Callable[[str], UUID | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderOptions:
    """How a reader reads. Validated on construction."""

    start: FirstPosition = "start"
    commit_interval_ms: int = COMMIT_INTERVAL_MS
    idle_timeout_ms: int | None = None
    isolation: Isolation = READ_UNCOMMITTED

    def __post_init__(self) -> None:
        if self.start not in ("start", "end"):
            raise ConfigError("start", self.start, "must be 'start' or 'end'")
        if not _is_duration(self.commit_interval_ms):
            raise ConfigError("commit_interval_ms", self.commit_interval_ms, "must be 0 or more")
        if self.idle_timeout_ms is not None and not _is_duration(self.idle_timeout_ms):
            raise ConfigError("idle_timeout_ms", self.idle_timeout_ms, "must be 0 or more, or None")
        is_committed_only(self.isolation)  # raises for an unknown one


def _is_duration(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value >= 0


class Unread(NamedTuple):
    """Records of a held partition that nobody was given yet: offsets in [start, stop)."""

    log: PartitionLog
    start: Offset
    stop: Offset


@dataclass(slots=True, kw_only=True)
class _Position:
    """Where the member is in a partition that it holds."""

    next: Offset
    handled: Offset
    committed: Offset | None


class GroupSession:
    """One member of a group. One thread at a time uses it; any thread may call `stop`."""

    def __init__(
        self, group: str, topic: str, surroundings: ReaderSurroundings, options: ReaderOptions
    ) -> None:
        self.group = group
        self.topic = topic
        self.options = options
        self.clock = surroundings.clock
        self.is_stopping = False
        self.is_closed = False
        self._around = surroundings
        self._members = surroundings.members
        self._log_topic = surroundings.find_topic(topic)
        self._held: dict[int, _Position] = {}
        self._awaited: frozenset[int] = frozenset()  # its own, but another reader holds them yet
        self._commit_at_s = self._next_commit_s()
        if options.start == "end":
            self._begin_at_end()
        self._membership = self._members.join(group, self._log_topic.topic_id)
        self._abandoned = weakref.finalize(self, self._members.lose, self._membership)
        self._abandoned.atexit = False
        refuse_after_fork(self, f"the reader of group {group!r}")

    @property
    def is_inherited(self) -> bool:
        """Whether this process is a fork of the one that opened it. Then it refuses."""
        return is_forked(self)

    @property
    def partitions(self) -> list[int]:
        """The partitions that are held now."""
        return sorted(self._held)

    def is_live(self) -> bool:
        """False once it is to end. Raises if the topic was deleted."""
        if self._around.lifetime.is_closing or self.is_stopping:
            return False
        if not self._has_topic():
            raise TopicDeletedError(self.topic)
        return True

    def _has_topic(self) -> bool:
        return self._around.topic_id(self.topic) == self._log_topic.topic_id

    # --- reading -----------------------------------------------------------------------------

    def log(self, number: int) -> PartitionLog:
        """The log of a partition."""
        return self._log_topic.partition(number)

    def unread(self, number: int, offsets_max: int | None = None) -> Unread | None:
        """What one turn of a held partition may give out; None if there is nothing.

        A turn ends at an end that was seen when it began, so the other partitions get theirs.
        """
        log = self.log(number)
        end = readable_end(log.source, self.options.isolation)
        if end is None:
            raise LogClosedError(log.name)
        start = self._held[number].next
        stop = min(end.offset, Offset(start + (offsets_max or TURN_OFFSETS_MAX)))
        return Unread(log, start, stop) if start < stop else None

    def give_out(self, number: int, offset: int) -> None:
        """The record with that offset is given out, and not handled yet."""
        self._held[number].next = Offset(offset + 1)

    def handle(self, number: int) -> None:
        """The record of that partition that was given out last was handled."""
        position = self._held[number]
        position.handled = position.next

    def mark_handled(self) -> None:
        """Every record given out was handled."""
        for position in self._held.values():
            position.handled = position.next

    def finish_turn(self, number: int, stop: Offset) -> None:
        """All records below `stop` were handled; offsets up to it have no record any more."""
        position = self._held[number]
        position.next = position.handled = stop

    def step_over(self, number: int, error: OffsetOutOfRangeError) -> None:
        """Retention was faster than the reader: go on with the first record that is left."""
        following = self._held[number].next
        if not following < error.start:
            raise error
        self._warn_of_gap(number, following, error.start)
        self.finish_turn(number, error.start)

    def wait(self, number: int | None, timeout_s: float) -> None:
        """Wait for a record of a held partition; with None, for a partition."""
        if number is None:
            self._members.wait(timeout_s)
            return
        source = self.log(number).source
        end = readable_end(source, self.options.isolation)
        if end is not None:
            source.wait_beyond(max(self._held[number].next, end.high_watermark), timeout_s)

    def listen(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Have `listener` called when readers come or go. It must not wait for anything.

        Returns the call that ends this. It does not keep the session alive.
        """
        self._members.add_listener(listener)
        return partial(self._members.remove_listener, listener)

    # --- sharing -----------------------------------------------------------------------------

    @property
    def is_rebalance_due(self) -> bool:
        """Whether it must stop giving out records, because partitions are to move, or to stop."""
        return self.is_stopping or self._members.is_due(
            self._membership, self._log_topic.partition_count
        )

    @property
    def is_awaiting(self) -> bool:
        """Whether another reader has yet to give up a partition. Look again after each turn."""
        return bool(self._awaited)

    def rebalance(self) -> None:
        """Give up partitions that are to be another reader's; take those that are free."""
        number_of_round, wanted = self._members.wanted(
            self._membership, self._log_topic.partition_count
        )
        surplus = [number for number in self._held if number not in wanted]
        self.commit_handled(surplus)
        for number in surplus:
            del self._held[number]
            self._members.give_up(self._membership, number)
        self._membership.round = number_of_round
        self._awaited = wanted - self._held.keys()
        self.take_awaited()

    def take_awaited(self) -> None:
        """Take the partitions that other readers have given up meanwhile."""
        for number in sorted(self._awaited):
            if self._members.take(self._membership, number):
                try:
                    self._held[number] = self._position_in(number)
                except BaseException:
                    self._members.give_up(self._membership, number)
                    raise
                self._awaited -= {number}

    def _position_in(self, number: int) -> _Position:
        """Where the group continues in a partition; at its start if it has committed nothing."""
        view = self.log(number).view()
        committed = self._committed().get(number)
        if committed is None:
            return _Position(next=view.start, handled=view.start, committed=None)
        first = Offset(min(max(committed, view.start), view.high_watermark))
        if first != committed:
            self._warn_of_gap(number, committed, first)
        return _Position(next=first, handled=first, committed=committed)

    def _committed(self) -> dict[int, Offset]:
        found = self._around.offsets.of_group(self.group)
        return {
            place[1]: committed.offset
            for place, committed in found.items()
            if place[0] == self.topic and committed.is_position
        }

    def _begin_at_end(self) -> None:
        """Commit the ends of a topic that the group never read.

        So nothing that comes after this moment is missed, even if the reader crashes before its
        first record. Partitions that are added later are read from their start.
        """
        with self._members.beginning:
            if self._committed():
                return
            ends = {log.partition: log.high_watermark for log in self._log_topic.partitions}
            self._write(ends)

    def _warn_of_gap(self, number: int, committed: Offset, first: Offset) -> None:
        logger.warning(
            "group %s: %s-%d has no offset %d; continuing at %d",
            *(self.group, self.topic, number, committed, first),
        )

    # --- committing --------------------------------------------------------------------------

    @property
    def is_commit_due(self) -> bool:
        """Whether `commit_interval_ms` has passed since the last commit, and there is something."""
        if self.clock.monotonic() < self._commit_at_s:
            return False
        if any(position.handled != position.committed for position in self._held.values()):
            return True
        self._commit_at_s = self._next_commit_s()
        return False

    def commit(self) -> None:
        """Commit every record given out so far. Durable on return."""
        self._around.lifetime.check_open()
        if self.is_closed:
            raise LogClosedError(f"the reader of group {self.group!r}")
        if not self._has_topic():
            raise TopicDeletedError(self.topic)
        self.mark_handled()
        self.commit_handled()

    def commit_handled(self, numbers: list[int] | None = None) -> None:
        """Commit the positions of these partitions; of all if None."""
        changed = {
            number: self._held[number].handled
            for number in (self._held if numbers is None else numbers)
            if self._held[number].handled != self._held[number].committed
        }
        self._write(changed)
        for number, offset in changed.items():
            self._held[number].committed = offset
        if numbers is None:
            self._commit_at_s = self._next_commit_s()

    def _write(self, offsets: dict[int, Offset]) -> None:
        """Commit for the topic that was opened: a later topic of that name ignores it."""
        if offsets and self._has_topic():
            self._around.offsets.commit(
                self.group,
                {(self.topic, number): (offset, "") for number, offset in offsets.items()},
                topic_id=self._log_topic.topic_id,
            )

    def _next_commit_s(self) -> float:
        return self.clock.monotonic() + self.options.commit_interval_ms / 1000

    # --- closing -----------------------------------------------------------------------------

    def stop(self) -> None:
        """Give out no further record. Any thread may call it."""
        self.is_stopping = True

    def close(self) -> None:
        """Commit every record given out, then leave the group. Safe to repeat.

        If the store was closed before, there is nothing to commit with.
        """
        if self.is_closed:
            return
        try:
            self.mark_handled()
            self.commit_handled()
        except LogClosedError:
            if not self._around.lifetime.is_closing:
                raise
        finally:
            self.leave()

    def leave(self) -> None:
        """Leave the group and commit nothing. Safe to repeat."""
        self.is_closed = self.is_stopping = True
        self._abandoned.detach()
        self._members.leave(self._membership)
        self._held.clear()
        self._awaited = frozenset()
