"""A reader of a group for a thread: it resumes where the group stopped, and commits by itself."""

import threading
from collections.abc import Generator, Iterator
from types import TracebackType
from typing import Final, Self

from cordwood.errors import LogClosedError, OffsetOutOfRangeError
from cordwood.log.reading.merged_logs import TopicRecord, labelled
from cordwood.log.topics.group_session import GroupSession

_PAUSE_S_MIN: Final = 0.001
_PAUSE_S_MAX: Final = 0.02


class GroupReader:
    """The records of a topic for one member of a group, as they arrive.

    Iterate it inside a ``with`` block. One thread uses it; only `stop` may be called by any thread.
    Open a reader for each thread, and they share the partitions. It commits every
    `commit_interval_ms`, when it gives up a partition, and at the end of the block. If the block
    raises, it does not commit: the group gets the records since the last commit again.
    """

    def __init__(self, session: GroupSession) -> None:
        self.group = session.group
        self.topic = session.topic
        self._session = session
        self._turn = threading.Lock()

    def __repr__(self) -> str:
        if self._session.is_inherited:
            state = "of another process"
        else:
            state = "closed" if self.is_closed else f"partitions={self.partitions}"
        return f"GroupReader({self.group!r}, {self.topic!r}, {state})"

    @property
    def partitions(self) -> list[int]:
        """The partitions that this reader holds now. It takes them when it is iterated."""
        return self._session.partitions

    @property
    def is_closed(self) -> bool:
        """Whether the reader has left the group."""
        return self._session.is_closed

    # --- records -----------------------------------------------------------------------------

    def __iter__(self) -> Iterator[TopicRecord]:
        """Records of the partitions that the reader holds; waits for new ones.

        Ends when the store is closed, after `stop`, or after `idle_timeout_ms` without a record.
        Asking for the next record says that the one before it was handled. Raises
        `TopicDeletedError` when the topic is deleted.
        """
        session, turn = self._session, self._turn
        if session.is_closed:  # raises in a forked child
            raise LogClosedError(repr(self))
        if not turn.acquire(blocking=False):
            raise RuntimeError(f"{self!r} is already being iterated; open a reader for each thread")
        try:
            session.mark_handled()
            yield from self._arriving()
        except LogClosedError:
            if session.is_live():
                raise
        finally:
            turn.release()

    def _arriving(self) -> Iterator[TopicRecord]:
        session = self._session
        clock, idle_timeout_ms = session.clock, session.options.idle_timeout_ms
        quiet_since_s, pause_s = clock.monotonic(), _PAUSE_S_MIN
        while session.is_live():
            if session.is_rebalance_due:
                session.rebalance()
            elif session.is_awaiting:
                session.take_awaited()
            has_news = False
            for number in session.partitions:
                has_news = (yield from self._turn_of(number)) or has_news
                if session.is_rebalance_due:
                    break
            if session.is_commit_due:
                session.commit_handled()
            now_s = clock.monotonic()
            if has_news:
                quiet_since_s, pause_s = now_s, _PAUSE_S_MIN
                continue
            left_s = pause_s
            if idle_timeout_ms is not None:
                left_s = min(pause_s, quiet_since_s + idle_timeout_ms / 1000 - now_s)
                if left_s <= 0:
                    return
            self._wait(left_s)
            pause_s = min(pause_s * 2, _PAUSE_S_MAX)

    def _turn_of(self, number: int) -> Generator[TopicRecord, None, bool]:
        """One turn of a partition. Ends early if partitions must be given up.

        Returns whether it moved: it also moves over gaps, where no record is left.
        """
        session = self._session
        try:
            unread = session.unread(number)
            if unread is None:
                return session.is_stopping
            isolation = session.options.isolation
            for record in unread.log.read(unread.start, stop=unread.stop, isolation=isolation):
                session.give_out(number, record.offset)
                yield labelled(record, number)
                session.handle(number)
                if session.is_commit_due:
                    session.commit_handled()
                if session.is_rebalance_due:
                    return True
            session.finish_turn(number, unread.stop)
        except OffsetOutOfRangeError as error:
            session.step_over(number, error)
        return True

    def _wait(self, timeout_s: float) -> None:
        """Wait for a record of one of the partitions, or for a partition."""
        session = self._session
        numbers = session.partitions
        if not numbers:
            session.wait(None, timeout_s)
            return
        number = numbers[int(session.clock.monotonic() / _PAUSE_S_MAX) % len(numbers)]
        session.wait(number, timeout_s)

    # --- committing and closing --------------------------------------------------------------

    def commit(self) -> None:
        """Commit every record given out so far, also the one being handled. Durable on return."""
        self._session.commit()

    def stop(self) -> None:
        """End the iteration after the record being handled. Any thread may call it."""
        self._session.stop()

    def close(self) -> None:
        """Commit every record given out, then leave the group. Safe to repeat.

        If the store was closed before, there is nothing to commit with: the records since the last
        commit come again.
        """
        if not self._session.is_inherited:
            self._session.close()

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
        elif not self._session.is_inherited:
            self._session.leave()
