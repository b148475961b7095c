"""Appends of many tasks, written together by a few threads.

Each log has a queue. While a thread writes and syncs what was queued, further appends gather for
the next round. So a thousand tasks that append at once need one or two syncs, and no thread waits
for a task.

An append that is cancelled before a thread takes it is not written. After that it is written all
the same: the task is not told where.
"""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from cordwood.errors import LogClosedError
from cordwood.log.partition.appends.group_commit import PendingAppend
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.log.rules.appended import Appended
from cordwood.log.rules.fork_refusal import refuse_after_fork

_Waiting = tuple[PendingAppend, "asyncio.Future[Appended]"]


class AppendDispatcher:
    """The queues of one store. Tasks of any loop may call `append`.

    A forked child has none of the threads, and is refused.
    """

    def __init__(self, threads: int, name: str) -> None:
        """`name` is that of the store, for errors."""
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="cordwood-aio-append")
        self._lock = threading.Lock()
        self._queues: dict[PartitionLog, list[_Waiting]] = {}  # of the logs that a thread serves
        refuse_after_fork(self, name)

    def append(self, log: PartitionLog, item: PendingAppend) -> "asyncio.Future[Appended]":
        """Queue a prepared record. The result has its place, once its durability is reached."""
        future: asyncio.Future[Appended] = asyncio.get_running_loop().create_future()
        with self._lock:
            queue = self._queues.get(log)
            if queue is not None:
                queue.append((item, future))
                return future
            self._queues[log] = [(item, future)]
        self._submit(log)
        return future

    def _submit(self, log: PartitionLog) -> None:
        """Have a thread serve the queue of a log. Logs take turns: none keeps a thread."""
        try:
            self._pool.submit(self._serve, log)
        except RuntimeError:  # stopped
            with self._lock:
                waiting = self._queues.pop(log)
            self._tell(log, waiting, LogClosedError(log.name))

    def _serve(self, log: PartitionLog) -> None:
        """Append all that is queued for a log now."""
        with self._lock:
            taken, self._queues[log] = self._queues[log], []
        waiting = [(item, future) for item, future in taken if not future.cancelled()]
        failure: BaseException | None = None
        try:
            if waiting:
                log.appending.commit_all([item for item, _ in waiting])
        except BaseException as error:  # whatever it is, the tasks must not wait for ever
            failure = error
        self._tell(log, waiting, failure)
        with self._lock:
            if not self._queues[log]:
                del self._queues[log]
                return
        self._submit(log)

    def _tell(
        self, log: PartitionLog, waiting: list[_Waiting], failure: BaseException | None
    ) -> None:
        by_loop: dict[asyncio.AbstractEventLoop, list[_Waiting]] = {}
        for each in waiting:
            by_loop.setdefault(each[1].get_loop(), []).append(each)
        for loop, of_loop in by_loop.items():
            # The loop may be closed, and then nobody waits any more.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(_answer, log.partition, of_loop, failure)

    def stop(self) -> None:
        """Finish what was queued, and end the threads."""
        self._pool.shutdown(wait=True)


def _answer(partition: int, waiting: list[_Waiting], failure: BaseException | None) -> None:
    """Tell the tasks what became of their appends. In the loop."""
    for item, future in waiting:
        if future.done():
            continue
        error = item.error or (None if item.is_served else failure)
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(Appended(partition, item.offset, item.batch.max_timestamp))
