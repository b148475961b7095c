"""The program of a worker process: ``python -m cordwood.broker.processes.worker NEWS CALLS``.

The arguments are descriptors of sockets to the keeper, which starts it; see `keeper_link`. It ends
in order when the keeper asks for it or on SIGTERM, and at once when the keeper is gone: then it
finishes what it can within a few seconds, because its locks keep the next keeper waiting.
"""

import contextlib
import gc
import logging
import os
import signal
import socket
import sys
import threading
from functools import partial
from typing import Final

from cordwood.broker.cluster.control.keeper_link import FrameKind, KeeperCalls, receive_frame
from cordwood.broker.cluster.control.local_control import KeeperNews, begin_partition
from cordwood.broker.cluster.local_joining import ProcessPlace, assemble_process
from cordwood.broker.observing.log_output import configure_logging
from cordwood.broker.processes.held_files import SlotFileSystem
from cordwood.broker.processes.process_task import ProcessTask
from cordwood.broker.processes.start_progress import StartProgress
from cordwood.broker.server import BrokerServer
from cordwood.errors import CordwoodError
from cordwood.log.partition.state.replica_role import OWNED
from cordwood.log.store.store import Store, StoreSetup
from cordwood.log.topics.store_share import StoreShare
from cordwood.storage.disk.file_access import FileAccess

logger = logging.getLogger(__name__)

_GARBAGE_OBJECTS: Final = 20_000
_SWITCH_INTERVAL_S: Final = 0.0005
_LOST_S: Final = 5.0  # how long a worker without its keeper may take to end
_FAILED: Final = 1


class _Ending:
    """Why and when the process ends. The first reason counts."""

    def __init__(self) -> None:
        self.failure: CordwoodError | None = None
        self.is_lost = False
        self._reader, self._writer = os.pipe()

    def request(self) -> None:
        """Any thread may call it, and a signal handler."""
        with contextlib.suppress(OSError):
            os.write(self._writer, b"\0")

    def failed(self, error: CordwoodError) -> None:
        self.failure = error
        self.request()

    def lost(self) -> None:
        self.is_lost = True
        # Whatever hangs: the locks must become free.
        timer = threading.Timer(_LOST_S, os._exit, (_FAILED,))
        timer.daemon = True
        timer.start()
        self.request()

    def wait(self) -> None:
        os.read(self._reader, 1)


def main() -> None:
    news, calls = (socket.socket(fileno=int(argument)) for argument in sys.argv[1:3])
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal tells the keeper, too
    ending = _Ending()
    signal.signal(signal.SIGTERM, lambda *_: ending.request())
    frame = receive_frame(news)
    if frame is None:
        return
    assert frame.kind is FrameKind.TASK, frame.kind
    task = ProcessTask.decode(frame.body)
    configure_logging(task.config.log_output)
    try:
        _run(task, KeeperNews(news), KeeperCalls(calls), ending)
    except (CordwoodError, OSError) as error:
        logger.error("process %d cannot go on: %s", task.index, error)
        sys.exit(_FAILED)
    if ending.failure is not None:
        logger.error("process %d ends: %s", task.index, ending.failure)
        sys.exit(_FAILED)
    if ending.is_lost:
        logger.error("process %d ends, because its keeper is gone", task.index)
        sys.exit(_FAILED)


def _run(task: ProcessTask, news: KeeperNews, calls: KeeperCalls, ending: _Ending) -> None:
    config = task.config
    fs = SlotFileSystem(FileAccess(config.store.log_dir_access), slot=task.index + 1)
    progress = StartProgress(news)
    progress.watch(lambda: fs.opening_steps)
    progress.start()
    store = _open_store(task, fs, calls)
    fs.store_is_open()
    server = BrokerServer(
        store,
        config.broker,
        security=config.security,
        owns_store=True,
        assemble=partial(
            assemble_process,
            ProcessPlace(
                epoch=task.epoch,
                peer_listener=config.peer_listener or config.security.listeners[0].name,
                news=news,
                calls=calls,
                stop=ending.request,
                lost=ending.lost,
            ),
        ),
        listening={name: socket.socket(fileno=fd) for name, fd in task.listening.items()},
        when_failed=ending.failed,
    )
    progress.watch(lambda: 0 if server.member is None else server.member.steps)
    try:
        server.start()
        _settle()
        if server.has_tls:
            signal.signal(signal.SIGHUP, lambda *_: server.reload_certificates())
        ending.wait()
    finally:
        server.stop()


def _open_store(task: ProcessTask, fs: SlotFileSystem, calls: KeeperCalls) -> Store:
    config = task.config
    store = config.store
    return Store(
        store.log_dirs,
        StoreSetup(
            fs=fs,
            defaults=config.topic_defaults,
            free_bytes_min=store.log_dir_free_bytes_min,
            cleaner=store.cleaner,
            opening_threads=store.num_recovery_threads_per_data_dir,
            role=OWNED,
            share=StoreShare(
                count=task.count,
                index=task.index,
                begin=partial(begin_partition, calls),
                security=task.security,
            ),
        ),
    )


def _settle() -> None:
    """As `serve` does for a single process."""
    gc.collect(1)
    gc.freeze()
    gc.set_threshold(_GARBAGE_OBJECTS)
    sys.setswitchinterval(_SWITCH_INTERVAL_S)


if __name__ == "__main__":
    main()
