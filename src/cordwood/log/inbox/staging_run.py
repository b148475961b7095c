"""A job that stages many files over a long time, and says all the while that it lives.

    <inbox>/<run>.beat          touched every half minute by the process that runs the job
    <inbox>/<id>/run-<run>      in each directory of staged files: the job that they belong to

If the job is killed, its beat stops. Its files are then of no use to anybody, and the owner of the
store, or the next job, removes them after ten minutes: see `ChangeInbox.sweep`. Without a beat they
would stay for a day, and a job that is killed again and again would fill the disk.
"""

import contextlib
import os
import threading
from types import TracebackType
from typing import Final, Self

from cordwood.log.inbox.change_inbox import RUN_MARK, inbox_directory, new_request_id
from cordwood.storage.files import FileSystem, write_all

BEAT_S: Final = 30.0


class StagingRun:
    """The beat of one job. A context manager; a thread of its own touches the file."""

    def __init__(self, fs: FileSystem, path: str) -> None:
        self.run_id = new_request_id()
        self._fs = fs
        self._directory = inbox_directory(path)
        self._file = os.path.join(self._directory, f"{self.run_id}.beat")
        self._ended = threading.Event()
        self._thread = threading.Thread(
            target=self._keep_beating, name="cordwood-staging-beat", daemon=True
        )

    def __enter__(self) -> Self:
        self._fs.make_directory(self._directory)
        self.beat()
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ended.set()
        self._thread.join()
        with contextlib.suppress(OSError):
            self._fs.remove(self._file)

    def beat(self) -> None:
        """Write the file again, which sets its time by the clock of its file system."""
        file = self._fs.create(self._file, exclusive=False)
        try:
            write_all(file, 0, b"\n")
        finally:
            file.close()

    def _keep_beating(self) -> None:
        while not self._ended.wait(BEAT_S):
            with contextlib.suppress(OSError):  # a full disk: one beat of many
                self.beat()


def mark_staging(fs: FileSystem, directory: str, run_id: str) -> None:
    """Note in a directory of staged files which job they belong to."""
    path = os.path.join(directory, f"{RUN_MARK}{run_id}")
    with contextlib.suppress(OSError):  # then the files count as leftovers after a day
        fs.create(path, exclusive=False).close()
