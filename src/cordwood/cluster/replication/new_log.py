"""The new log of a replica, which is filled beside the old one and then takes its place.

A move to another data directory and a rebuild fill it in different ways. They begin and end alike:

    MAKING     an empty log is made
    WAITING    others are filled first
    COPYING    it is filled
    PARTING    only in a move: the old log has no role any more, and the rest is copied
    SWAPPING   the new log takes the place of the old one (`log.topics.replica_swap`)
    OVER       done, given up or failed
"""

from collections.abc import Callable
from enum import Enum, auto
from typing import Protocol

from cordwood.cluster.replication.partition_replica import PartitionReplica
from cordwood.cluster.replication.replication_ports import T, Timer
from cordwood.log.partition.partition_log import PartitionLog


class Phase(Enum):
    """See the head of this module."""

    MAKING = auto()
    WAITING = auto()
    COPYING = auto()
    PARTING = auto()
    SWAPPING = auto()
    OVER = auto()


class NewLogFiles(Protocol):
    """The files of a new log. Every method may wait for the disk and may raise."""

    def begin(self) -> PartitionLog:
        """An empty log, beside the old one or in another data directory."""
        ...

    def swap(self) -> PartitionLog:
        """Close both logs; the new one takes the place of the old one and is opened there."""
        ...

    def give_up(self) -> None:
        """Remove the new log. Safe to repeat, and without `begin`."""
        ...


class NewLog:
    """Owned by a `ReplicaMove` or a `ReplicaRebuild`, and called in the loop of replicas.

    `when_made` is called once it is there. `when_over` is called once: with the log that took the
    place of the old one, with the reason of a failure, or with None if it was given up.
    """

    def __init__(
        self,
        replica: PartitionReplica,
        files: NewLogFiles,
        *,
        when_made: Callable[[], None],
        when_over: Callable[[PartitionLog | str | None], None],
    ) -> None:
        self.phase = Phase.MAKING
        self._log: PartitionLog | None = None
        self._replica = replica
        self._site = replica.site
        self._files = files
        self._when_made = when_made
        self._when_over = when_over
        self._timer: Timer | None = None

    @property
    def log(self) -> PartitionLog:
        """Once it is made."""
        assert self._log is not None
        return self._log

    @property
    def is_filling(self) -> bool:
        return self.phase in (Phase.COPYING, Phase.PARTING)

    def make(self) -> None:
        def made(log: PartitionLog) -> None:
            self._log, self.phase = log, Phase.WAITING
            self._when_made()

        self.work(self._files.begin, made)

    def begin(self, fill: Callable[[], None]) -> None:
        """Its turn has come."""
        if self.phase is Phase.WAITING:
            self.phase = Phase.COPYING
            fill()

    def work(self, job: Callable[[], T], go_on: Callable[[T], None]) -> None:
        """Have the disk do something; then go on, or end if it could not."""

        def done(result: T | Exception) -> None:
            if self.phase is Phase.OVER:
                return
            if isinstance(result, Exception):
                self.end(f"{result}" or repr(result))
            else:
                go_on(result)

        self._site.node.disk.run(self._site.log, job, done)

    def pause(self, delay_s: float, go_on: Callable[[], None]) -> None:
        """Go on after a while, if it is still being filled."""

        def resume() -> None:
            if self.is_filling:
                go_on()

        self._timer = self._site.node.scheduler.call_later(delay_s, resume)

    def swap(self, prepare: Callable[[], None] = lambda: None) -> None:
        """Let it take the place of the old log. `prepare` is called before, off the loop."""
        self.phase = Phase.SWAPPING

        def swap() -> PartitionLog:
            prepare()
            return self._files.swap()

        self.work(swap, self.end)

    def give_up(self) -> None:
        """Stop, unless the swap is under way; the old log goes on."""
        if self.phase not in (Phase.SWAPPING, Phase.OVER):
            self.end(None)

    def end(self, outcome: PartitionLog | str | None) -> None:
        self.phase = Phase.OVER
        if self._timer is not None:
            self._timer.cancel()
        # If the swap failed half-way, the next start finishes it.
        if isinstance(outcome, PartitionLog) or self._site.log.is_closed:
            self._when_over(outcome)
            return

        def given_up(_result: object) -> None:
            self._replica.resume()
            self._when_over(outcome)

        self._site.node.disk.run(self._site.log, self._files.give_up, given_up)
