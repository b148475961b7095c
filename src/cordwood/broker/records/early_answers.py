"""Lookups that count records which were acknowledged before they were durable.

A produce with acks=1 is answered when the kernel has its records, and readers see them after the
next sync (`durability=disk`). A client that asks where the log ends right after its answer expects
its own records to be counted. So the question waits for that sync, and the produce does not. The
sync is under way already: the produce requested it.
"""

from collections.abc import Callable, Collection, Iterable
from concurrent.futures import Executor
from typing import Final

from cordwood.broker.net.loop.event_loop import EventLoop
from cordwood.broker.net.requests.request import Deferred, Response
from cordwood.broker.records.log_watch import LogWatch
from cordwood.log.partition.partition_log import PartitionLog

_WAIT_S: Final = 10.0  # clients give up after 30 s or more; a sync that takes longer is refused

# Called with the logs whose acknowledged records are still not visible.
FindAnswer = Callable[[Collection[PartitionLog]], Response]
WhenVisible = Callable[[Iterable[PartitionLog], FindAnswer], Response | Deferred]


class EarlyAnswers:
    """Waits for acknowledged records to become visible."""

    def __init__(self, loop: EventLoop, watch: LogWatch, workers: Executor) -> None:
        self._loop = loop
        self._watch = watch
        self._workers = workers

    def when_visible(
        self, logs: Iterable[PartitionLog], find_answer: FindAnswer
    ) -> Response | Deferred:
        """The answer of `find_answer`, once all that was acknowledged in `logs` is visible.

        Any thread may call it. If it has to wait, a worker calls `find_answer`.
        """
        unseen = {log for log in logs if log.promises.are_ahead_of_readers}
        if not unseen:
            return find_answer(())
        reply = Deferred()

        def answer() -> None:
            try:
                reply.resolve(find_answer(waiter.unseen))
            except Exception as error:
                reply.fail(error)

        waiter = _Waiter(unseen, lambda: self._workers.submit(answer))
        self._loop.call_soon(lambda: self._wait(waiter))
        return reply

    def _wait(self, waiter: "_Waiter") -> None:
        """In the data loop."""
        timer = self._loop.call_later(_WAIT_S, waiter.finish)
        waiter.when_finished = timer.cancel
        for log in tuple(waiter.unseen):
            self._watch.await_promise(log, log.promises.acknowledged_end, waiter)


class _Waiter:
    """One lookup. Belongs to the data loop until it is finished."""

    def __init__(self, unseen: set[PartitionLog], answer: Callable[[], object]) -> None:
        self.unseen = unseen
        self.when_finished: Callable[[], None] | None = None
        self._answer = answer
        self._is_finished = False

    def promise_settled(self, log: PartitionLog) -> None:
        if self._is_finished:
            return
        if log.state.failure is None:
            self.unseen.discard(log)
            if self.unseen:
                return
        self.finish()

    def finish(self) -> None:
        """All is visible, or will not be, or it took too long."""
        if not self._is_finished:
            self._is_finished = True
            if self.when_finished is not None:
                self.when_finished()
            self._answer()
