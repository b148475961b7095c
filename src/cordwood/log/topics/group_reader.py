"""A reader of a group: it resumes where the group stopped, and commits what was handled.

Each partition has three offsets: ``committed <= handled <= next``. `next` moves when a record is
given out, `handled` when the caller asks for the record after it, `committed` when the store has
written `handled`. After a crash the group continues at `committed`. So a record may be given out
twice, but none is skipped: at least once.
"""

import logging
import threading
import weakref
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Final, Literal, Self
from uuid import UUID

from cordwood.clock import Clock
from cordwood.errors import ConfigError, LogClosedError, OffsetOutOfRangeError, TopicDeletedError
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.log.reading.merged_logs import TopicRecord, labelled
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

# A partition with many records gives way to the others after so many offsets.
_TURN_OFFSETS_MAX: Final = 10_000
_PAUSE_S_MIN: Final = 0.001
_PAUSE_S_MAX: Final = 0.02


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
        if self.commit_interval_ms < 0:
            raise ConfigError("commit_interval_ms", self.commit_interval_ms, "must be 0 or more")
        if self.idle_timeout_ms is not None and self.idle_timeout_ms < 0:
            raise ConfigError("idle_timeout_ms", self.idle_timeout_ms, "must be 0 or more, or None")
        is_committed_only(self.isolation)  # raises for an unknown one


@dataclass(slots=True, kw_only=True)
class _Position:
    """Where the reader is in a partition that it holds."""

    next: Offset
    handled: Offset
    committed: Offset | None


class GroupReader:
    """The records of a topic for one member of a group, as they arrive.

    Iterate it inside a ``with`` block. One thread uses it; only `stop` may be called by any thread.
    Open a reader for each thread, and they share the partitions. It commits every
    `commit_interval_ms`, when it gives up a partition, and at the end of the block. If the block
    raises, it does not commit: the group gets the records since the last commit again.
    """

    def __init__(
        self, group: str, topic: str, surroundings: ReaderSurroundings, options: ReaderOptions
    ) -> None:
        self.group = group
        self.topic = topic
        self._around = surroundings
        self._options = options
        self._clock = surroundings.clock
        self._members = surroundings.members
        self._log_topic = surroundings.find_topic(topic)
        self._held: dict[int, _Position] = {}
        self._turn = threading.Lock()
        self._commit_at_s = self._next_commit_s()
        self._is_stopping = False
        self._is_closed = False
        if options.start == "end":
            self._begin_at_end()
        self._membership = self._members.join(group, self._log_topic.topic_id)
        self._abandoned = weakref.finalize(self, self._members.lose, self._membership)
        self._abandoned.atexit = False
        refuse_after_fork(self, f"the reader of group {group!r}")

    def __repr__(self) -> str:
        state = "closed" if self._is_closed else f"partitions={self.partitions}"
        return f"GroupReader({self.group!r}, {self.topic!r}, {state})"

    @property
    def partitions(self) -> list[int]:
        """The partitions that this reader holds now. It takes them when it is iterated."""
        return sorted(self._held)

    @property
    def is_closed(self) -> bool:
        """Whether the reader has left the group."""
        return self._is_closed

    # --- records -----------------------------------------------------------------------------

    def __iter__(self) -> Iterator[TopicRecord]:
        """Records of the partitions that the reader holds; waits for new ones.

        Ends when the store is closed, after `stop`, or after `idle_timeout_ms` without a record.
        Asking for the next record says that the one before it was handled. Raises
        `TopicDeletedError` when the topic is deleted.
        """
        turn = self._turn
        if not turn.acquire(blocking=False):
            raise RuntimeError(f"{self!r} is already being iterated; open a reader for each thread")
        try:
            if self._is_closed:
                raise LogClosedError(repr(self))
            self._mark_handled()
            yield from self._arriving()
        finally:
            turn.release()

    def _arriving(self) -> Iterator[TopicRecord]:
        quiet_since_s, pause_s = self._clock.monotonic(), _PAUSE_S_MIN
        while self._is_live():
            if self._is_rebalance_due():
                self._rebalance()
            has_news = False
            for number in self.partitions:
                before = self._held[number].next
                yield from self._new_records(number)
                # It also moves over gaps, where no record is left.
                has_news = has_news or self._is_stopping or self._held[number].next != before
                if self._is_rebalance_due():
                    break
            now_s = self._clock.monotonic()
            if now_s >= self._commit_at_s:
                self._commit_handled()
            if has_news:
                quiet_since_s, pause_s = self._clock.monotonic(), _PAUSE_S_MIN
                continue
            left_s = pause_s
            if self._options.idle_timeout_ms is not None:
                idle_s = self._options.idle_timeout_ms / 1000
                left_s = min(pause_s, quiet_since_s + idle_s - now_s)
                if left_s <= 0:
                    return
            self._wait(left_s)
            pause_s = min(pause_s * 2, _PAUSE_S_MAX)

    def _new_records(self, number: int) -> Iterator[TopicRecord]:
        """One turn of a partition. Ends early if partitions must be given up."""
        position = self._held[number]
        try:
            log = self._log_topic.partition(number)
            source = log.source
            is_stable = is_committed_only(self._options.isolation)
            end = source.last_stable_offset if is_stable else source.high_watermark
            if end <= position.next:
                return
            stop = min(end, Offset(position.next + _TURN_OFFSETS_MAX))
            records = log.read(position.next, stop=stop, isolation=self._options.isolation)
            for record in records:
                position.next = Offset(record.offset + 1)
                yield labelled(record, number)
                position.handled = position.next
                if self._clock.monotonic() >= self._commit_at_s:
                    self._commit_handled()
                if self._is_rebalance_due():
                    return
            # What is left up to `stop` was compacted away, or marks the ends of transactions.
            position.next = position.handled = stop
        except OffsetOutOfRangeError as error:
            self._step_over(number, error)
        except LogClosedError:
            if self._is_live():
                raise

    def _step_over(self, number: int, error: OffsetOutOfRangeError) -> None:
        """Retention was faster than the reader: go on with the first record that is left."""
        position = self._held[number]
        if not position.next < error.start:
            raise error
        self._warn_of_gap(number, position.next, error.start)
        position.next = position.handled = error.start

    def _wait(self, timeout_s: float) -> None:
        """Wait for a record, or for a partition."""
        if not self._held:
            self._members.wait(timeout_s)
            return
        numbers = self.partitions
        number = numbers[int(self._clock.monotonic() / _PAUSE_S_MAX) % len(numbers)]
        source = self._log_topic.partition(number).source
        try:
            source.wait_beyond(max(self._held[number].next, source.high_watermark), timeout_s)
        except LogClosedError:
            if self._is_live():
                raise

    def _is_live(self) -> bool:
        """False once it is to end. Raises if the topic was deleted."""
        if self._around.lifetime.is_closing or self._is_stopping:
            return False
        if not self._has_topic():
            raise TopicDeletedError(self.topic)
        return True

    def _has_topic(self) -> bool:
        return self._around.topic_id(self.topic) == self._log_topic.topic_id

    # --- sharing -----------------------------------------------------------------------------

    def _is_rebalance_due(self) -> bool:
        """Whether the reader must stop giving out records and look at its partitions again."""
        return self._is_stopping or self._members.is_due(
            self._membership, self._log_topic.partition_count
        )

    def _rebalance(self) -> None:
        """Give up partitions that are to be another reader's; take those that are free."""
        number_of_round, wanted = self._members.wanted(
            self._membership, self._log_topic.partition_count
        )
        surplus = [number for number in self._held if number not in wanted]
        self._commit_handled(surplus)
        for number in surplus:
            del self._held[number]
            self._members.give_up(self._membership, number)
        for number in sorted(wanted - self._held.keys()):
            if self._members.take(self._membership, number):
                self._held[number] = self._position_in(number)
        if wanted == self._held.keys():  # else look again: another reader must give up first
            self._membership.round = number_of_round

    def _position_in(self, number: int) -> _Position:
        """Where the group continues in a partition; at its start if it has committed nothing."""
        view = self._log_topic.partition(number).view()
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

    def commit(self) -> None:
        """Commit every record given out so far, also the one being handled. Durable on return."""
        self._around.lifetime.check_open()
        if self._is_closed:
            raise LogClosedError(repr(self))
        if not self._has_topic():
            raise TopicDeletedError(self.topic)
        self._mark_handled()
        self._commit_handled()

    def _mark_handled(self) -> None:
        for position in self._held.values():
            position.handled = position.next

    def _commit_handled(self, numbers: list[int] | None = None) -> None:
        """Commit the positions of these partitions; of all if None."""
        changed = {
            number: self._held[number]
            for number in (self._held if numbers is None else numbers)
            if self._held[number].handled != self._held[number].committed
        }
        self._write({number: position.handled for number, position in changed.items()})
        for position in changed.values():
            position.committed = position.handled
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
        return self._clock.monotonic() + self._options.commit_interval_ms / 1000

    # --- closing -----------------------------------------------------------------------------

    def stop(self) -> None:
        """End the iteration after the record being handled. Any thread may call it."""
        self._is_stopping = True

    def close(self) -> None:
        """Commit every record given out, then leave the group. Safe to repeat.

        If the store was closed before, there is nothing to commit with: the records since the last
        commit come again.
        """
        if is_forked(self) or self._is_closed:
            return
        try:
            self._mark_handled()
            self._commit_handled()
        except LogClosedError:
            if not self._around.lifetime.is_closing:
                raise
        finally:
            self._leave()

    def _leave(self) -> None:
        self._is_closed = self._is_stopping = True
        self._abandoned.detach()
        self._members.leave(self._membership)
        self._held.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self.close()
        elif not is_forked(self) and not self._is_closed:
            self._leave()
