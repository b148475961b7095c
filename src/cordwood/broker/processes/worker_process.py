"""One worker as the supervisor sees it: its process, its connections, its threads.

serving   reads what the worker tells and asks, and answers; ends when the worker is gone
sending   writes news. A worker that does not read them for long is killed: its next life gets
          the whole image

The supervisor calls `beat` at intervals. A worker that is ready and leaves a ping unanswered for
`SILENT_BEATS_MAX` of them is killed. One that is not ready yet may take as long as it needs, if it
tells that it makes progress: it is killed after `STARTING_BEATS_MAX` without any.
"""

import errno
import logging
import os
import selectors
import signal
import socket
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Final

from cordwood.broker.cluster.control.keeper_link import (
    FrameKind,
    encode_frame,
    receive_frame,
    send_frame,
)
from cordwood.broker.processes.keeper import Keeper
from cordwood.broker.processes.process_task import ProcessTask
from cordwood.errors import CordwoodError
from cordwood.quantities import MIB

logger = logging.getLogger(__name__)

_UNSENT_BYTES_MAX: Final = 256 * MIB
BEAT_S: Final = 5.0
# A minute. A ping passes through the loops of the worker: on a busy machine they turn late, by
# seconds, and a disk may hold them up for longer. Beats are counted, not seconds: if this process
# was paused too, the worker has as many beats to answer.
SILENT_BEATS_MAX: Final = 12
# Five minutes. Recovery reads small parts of files, and each of them is progress. But one sync of
# what the last life had written may hold up everything, on a slow disk for minutes.
STARTING_BEATS_MAX: Final = 60


class WorkerProcess:
    """One life of a worker. Made by the supervisor; any thread may call it."""

    def __init__(
        self,
        task: ProcessTask,
        keeper: Keeper,
        *,
        when_ready: Callable[[int], None],
        when_ended: Callable[["WorkerProcess", int], None],
    ) -> None:
        """Make the process; nothing is heard of it before `start`.

        `when_ended` gets its exit code, after it was waited for. Raises `OSError` if the system
        has no process or descriptor to give.
        """
        self.index = task.index
        self._keeper = keeper
        self._when_ready = when_ready
        self._when_ended = when_ended
        self._wanted = threading.Condition()
        self._unsent: deque[bytes] = deque()
        self._unsent_bytes = 0
        self._is_subscribed = False
        self._is_watched = True  # until it is asked to end, or is killed
        self._is_ready = False
        self._is_asked = False
        self._silent_beats = 0
        self._is_over = False
        self.has_hung = False  # it was killed because nothing was heard of it
        with ExitStack() as undo, ExitStack() as theirs:
            self._news, news = socket.socketpair()
            theirs.enter_context(news)
            undo.enter_context(self._news)
            self._calls, calls = socket.socketpair()
            theirs.enter_context(calls)
            undo.enter_context(self._calls)
            fds = [news.fileno(), calls.fileno(), *task.listening.values()]
            self._process = subprocess.Popen(_command(fds[:2]), pass_fds=fds, cwd=os.getcwd())
            undo.pop_all()
        self._put(encode_frame(FrameKind.TASK, task.encode()))

    def start(self) -> None:
        """Serve it. The owner has noted it before, or it would miss what is told meanwhile.

        Raises `OSError` if the system has no thread to give; then it has ended.
        """
        try:
            self._begin(self._serve, "serving")
        except RuntimeError as error:
            self.kill()
            self._waited()
            self._close()
            raise OSError(errno.EAGAIN, str(error)) from error
        try:
            self._begin(self._send, "sending")
        except RuntimeError as error:
            logger.error("process %d cannot be told anything; ending it: %s", self.index, error)
            self.kill()  # `_serve` notices

    def _begin(self, work: Callable[[], None], name: str) -> None:
        threading.Thread(target=work, name=f"cordwood-{name}-{self.index}", daemon=True).start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def tell(self, kind: FrameKind, body: bytes) -> None:
        """Send news, if the worker has the image that they follow."""
        if self._is_subscribed:
            self._put(encode_frame(kind, body))

    def stop(self) -> None:
        """Ask it to end in order."""
        self._is_watched = False
        self._put(encode_frame(FrameKind.STOP))

    def kill(self) -> None:
        """End it at once."""
        self.signal(signal.SIGKILL)

    def signal(self, number: int) -> None:
        """Send a signal, unless the process has ended: `Popen` knows if it was waited for."""
        self._process.send_signal(number)

    def beat(self) -> None:
        """Ask whether it works; kill it if nothing was heard of it for long. For one thread."""
        with self._wanted:
            if not self._is_watched or self._is_over:
                return
            is_ready = self._is_ready
            is_due = is_ready and not self._is_asked
            self._is_asked = is_ready
            self._silent_beats = 0 if is_due else self._silent_beats + 1
            limit = SILENT_BEATS_MAX if is_ready else STARTING_BEATS_MAX
            is_hung = self._silent_beats >= limit
            self._is_watched = not is_hung
        if is_due:
            self._put(encode_frame(FrameKind.PING))
        elif is_hung:
            logger.error(
                "process %d (pid %d) %s for %.0f s; killing it",
                self.index,
                self.pid,
                "has not answered" if is_ready else "is not ready and has made no progress",
                limit * BEAT_S,
                extra={"facts": {"event": "process hangs", "process": self.index}},
            )
            self.has_hung = True
            self.kill()

    def _answered(self) -> None:
        with self._wanted:
            self._is_asked = False

    def _progressed(self) -> None:
        with self._wanted:
            if not self._is_ready:
                self._silent_beats = 0

    def _became_ready(self) -> None:
        with self._wanted:
            self._is_ready = True
            self._silent_beats = 0

    # --- sending -----------------------------------------------------------------------------

    def _put(self, frame: bytes) -> None:
        with self._wanted:
            if self._is_over:
                return
            self._unsent.append(frame)
            self._unsent_bytes += len(frame)
            is_deaf = self._unsent_bytes > _UNSENT_BYTES_MAX
            self._wanted.notify()
        if is_deaf:
            logger.error("process %d (pid %d) does not listen; ending it", self.index, self.pid)
            self.kill()

    def _send(self) -> None:
        while True:
            with self._wanted:
                while not self._unsent and not self._is_over:
                    self._wanted.wait()
                if self._is_over:
                    return
                frame = self._unsent.popleft()
                self._unsent_bytes -= len(frame)
            try:
                self._news.sendall(frame)
            except OSError:
                return  # it has ended, or ends: `_serve` notices

    # --- serving -----------------------------------------------------------------------------

    def _serve(self) -> None:
        with selectors.DefaultSelector() as ready:
            for connection in (self._news, self._calls):
                ready.register(connection, selectors.EVENT_READ)
            is_there = True
            while is_there:
                for key, _ in ready.select():
                    assert isinstance(key.fileobj, socket.socket)
                    is_there = is_there and self._take(key.fileobj)
        code = self._waited()
        self._close()  # the next life needs descriptors
        self._when_ended(self, code)

    def _close(self) -> None:
        self._news.close()
        self._calls.close()

    def _waited(self) -> int:
        """Wait until the process has ended; return its exit code."""
        code = self._process.wait()
        with self._wanted:
            self._is_over = True
            self._wanted.notify()
        return code

    def _take(self, connection: socket.socket) -> bool:
        """Serve one frame; False if the worker is gone."""
        try:
            frame = receive_frame(connection)
            if frame is None:
                return False
            match frame.kind:
                case FrameKind.OPENED:
                    self._keeper.subscribe(self._subscribe)
                case FrameKind.READY:
                    self._when_ready(self.index)
                    self._became_ready()
                case FrameKind.WORKING:
                    self._progressed()
                case FrameKind.PONG:
                    self._answered()
                case _:
                    kind, body = self._answer(frame.kind, frame.body)
                    send_frame(connection, kind, body)
        except OSError:
            return False
        except Exception:  # it, or we, cannot go on: its next life begins again
            logger.exception("process %d (pid %d) is ended", self.index, self.pid)
            self.kill()
            return False
        return True

    def _subscribe(self, kind: FrameKind, body: bytes) -> None:
        self._is_subscribed = True
        self.tell(kind, body)

    def _answer(self, kind: FrameKind, body: bytes) -> tuple[FrameKind, bytes]:
        try:
            if kind is FrameKind.BEGIN:
                return FrameKind.ANSWER, self._keeper.begin_partition(body)
            return FrameKind.ANSWER, self._keeper.serve(body)
        except OSError as error:
            return FrameKind.REFUSAL, f"{error.errno or 0} {error}".encode()
        except CordwoodError as error:
            return FrameKind.REFUSAL, str(error).encode()
        except Exception:
            logger.exception("a request of process %d failed", self.index)
            return FrameKind.REFUSAL, b"the request failed; see the log of the keeper"


def _command(fds: Sequence[int]) -> list[str]:
    module = "cordwood.broker.processes.worker"
    return [sys.executable, "-m", module, *map(str, fds)]
