"""The inbox of a store: other processes put requests for changes here, and find the answers.

It is in the first data directory, below a name that Kafka ignores:

    remote-log-index-cache/cordwood-inbox/
        <id>/           files of a request, written before it: under its own id, or under other
                        ids, which the request names
        <id>.request    a requested change
        <id>.claimed    the same, after the owner has claimed it
        <id>.progress   the owner's progress with a long change, updated while it works
        <id>.answer     the outcome; the requester removes it
        <id>.beat       a sign of life of a job that stages files: see `staging_run`

An id is 32 hex digits. Every file gets its name by an atomic rename, so it is whole or absent.
The owner renames `.request` to `.claimed`, or the requester removes it; only one of both can
succeed, so a withdrawn request is never made. A request that is `.claimed` before it is claimed
was claimed by an earlier owner, who may have made the change or not; see `earlier_try.py`. Nothing
here is synced: the logs and the ledger hold what must survive a power cut, and a lost request is
repeated.

Anyone who may write to the directory can leave anything here. Only regular files of a bounded
size are read.
"""

import contextlib
import json
import logging
import os
import re
import uuid
from types import NoneType
from typing import Final, NamedTuple

from cordwood.errors import CordwoodError, FormatError
from cordwood.log.inbox.store_change import (
    ChangeAnswer,
    ChangeRequest,
    check_file_name,
    check_id,
    parse_answer,
    render_answer,
    render_request,
)
from cordwood.log.rules.work_progress import WorkDone
from cordwood.quantities import MIB, TimestampMs
from cordwood.storage.files import (
    TEMPORARY_SUFFIX,
    DirectoryEntry,
    FileSystem,
    read_whole,
    write_all,
)

logger = logging.getLogger(__name__)

_INBOX: Final = os.path.join("remote-log-index-cache", "cordwood-inbox")
_REQUEST: Final = ".request"
_CLAIMED: Final = ".claimed"
_ANSWER: Final = ".answer"
_PROGRESS: Final = ".progress"
_NAME: Final = re.compile(r"([0-9a-f]{32})(\.(?:request|claimed|answer|progress|beat)(?:\.tmp)?)?")
_REQUEST_BYTES_MAX: Final = 16 * MIB
_REQUESTS_AT_ONCE: Final = 1000
_PROGRESS_BYTES_MAX: Final = 4096

LEFTOVER_MS: Final = 24 * 3600 * 1000  # its requester has given up long ago
LOST_RUN_MS: Final = 600 * 1000  # twenty beats of a job; clocks of machines differ by less
RUN_MARK: Final = "run-"  # begins the name of the file that says to which job staged files belong


class Beat(NamedTuple):
    """A progress report of the owner. `number` grows with each report."""

    number: int
    work: WorkDone


class Claimed(NamedTuple):
    """A claimed request: its content, or why it cannot be read.

    `is_repeated`: an earlier owner claimed it and did not answer.
    """

    content: bytes | CordwoodError | OSError
    is_repeated: bool


def new_request_id() -> str:
    return uuid.uuid4().hex


def inbox_directory(path: str) -> str:
    """The inbox of the store whose first data directory is `path`."""
    return os.path.join(os.path.abspath(path), _INBOX)


def staging_directory(path: str, request_id: str) -> str:
    """The directory for the files of a request. Their writer makes it."""
    return os.path.join(inbox_directory(path), check_id(request_id))


class ChangeInbox:
    """Both sides of the inbox: any number of requesters, and one owner, who holds the lock."""

    def __init__(self, fs: FileSystem, path: str) -> None:
        self._fs = fs
        self.directory = inbox_directory(path)

    # --- who asks ----------------------------------------------------------------------------

    def submit(self, request_id: str, request: ChangeRequest) -> None:
        self._fs.make_directory(self.directory)
        self._put(self._path(request_id, _REQUEST), render_request(request))

    def take_answer(self, request_id: str) -> ChangeAnswer | None:
        """Read and remove the answer; None if there is none yet."""
        path = self._path(request_id, _ANSWER)
        try:
            content = read_whole(self._fs, path, limit=_REQUEST_BYTES_MAX)
        except FileNotFoundError:
            return None
        self._remove(path)
        return parse_answer(content)

    def progress(self, request_id: str) -> Beat | None:
        """The last progress report of the owner; None if there is none."""
        try:
            content = read_whole(
                self._fs, self._path(request_id, _PROGRESS), limit=_PROGRESS_BYTES_MAX
            )
            number, done, total = json.loads(content)
        except FileNotFoundError:
            return None
        except (ValueError, TypeError, RecursionError, FormatError):
            return None  # not a progress report
        if type(number) is not int or type(done) is not int or type(total) not in (int, NoneType):
            return None
        return Beat(number, WorkDone(done, total))

    def withdraw(self, request_id: str) -> bool:
        """Take a request back; False if the owner has claimed it."""
        try:
            self._fs.remove(self._path(request_id, _REQUEST))
        except FileNotFoundError:
            return False
        self.discard_files(request_id)
        return True

    # --- who owns the store ------------------------------------------------------------------

    def has_requests(self) -> bool:
        """A cheap check: one system call if the inbox was never used."""
        return bool(self._fs.exists(self.directory) and self.waiting())

    def waiting(self) -> list[str]:
        """The ids of unanswered requests, including those that an earlier owner claimed."""
        found = set()
        for entry in self._entries():
            name = _NAME.fullmatch(entry.name)
            if name is not None and name[2] in (_REQUEST, _CLAIMED) and not entry.is_directory:
                found.add(name[1])
        return sorted(found)[:_REQUESTS_AT_ONCE]

    def claim(self, request_id: str) -> Claimed | None:
        """Claim a request; None if it was withdrawn."""
        claimed = self._path(request_id, _CLAIMED)
        is_repeated = False
        try:
            self._fs.rename(self._path(request_id, _REQUEST), claimed)
        except FileNotFoundError:
            is_repeated = True
        try:
            content = read_whole(self._fs, claimed, limit=_REQUEST_BYTES_MAX)
        except FileNotFoundError:
            return None
        except (CordwoodError, OSError) as error:
            return Claimed(error, is_repeated)
        return Claimed(content, is_repeated)

    def note_progress(self, request_id: str, beat: int, work: WorkDone) -> None:
        """Report progress to the requester. A failure does not matter."""
        with contextlib.suppress(OSError):
            content = json.dumps([beat, work.done, work.total]).encode()
            self._put(self._path(request_id, _PROGRESS), content)

    def last_beat_ms(self, request_id: str) -> TimestampMs | None:
        """When an owner last reported progress; None if there was no report."""
        try:
            return TimestampMs(self._fs.modified_ms(self._path(request_id, _PROGRESS)))
        except OSError:
            return None

    def file_path(self, request_id: str, name: str) -> str:
        """The path of a file of a request."""
        try:
            return os.path.join(self._path(request_id, ""), check_file_name(name))
        except ValueError as error:
            raise FormatError(str(error)) from error

    def answer(self, request_id: str, answer: ChangeAnswer) -> None:
        """Answer a claimed request. Its files are removed first, as the requester expects."""
        self.discard_files(request_id)
        self._put(self._path(request_id, _ANSWER), render_answer(answer))
        self._remove(self._path(request_id, _CLAIMED))
        self._remove(self._path(request_id, _PROGRESS))

    def forget(self, request_id: str) -> None:
        """Drop a claimed request without an answer."""
        with contextlib.suppress(OSError):
            self._remove(self._path(request_id, _CLAIMED))
            self._remove(self._path(request_id, _PROGRESS))

    def discard_files(self, request_id: str) -> None:
        """Remove a directory of staged files. If that fails, `sweep` removes it later."""
        with contextlib.suppress(OSError):
            self._fs.remove_tree(self._path(request_id, ""))

    def sweep(self, now_ms: TimestampMs, *, older_than_ms: int = LEFTOVER_MS) -> int:
        """Remove leftovers that did not change for `older_than_ms`; return how many.

        Files of a job that died are leftovers after `LOST_RUN_MS`.
        """
        removed = 0
        for entry in self._entries():
            name = _NAME.fullmatch(entry.name)
            path = os.path.join(self.directory, entry.name)
            is_request = name is not None and name[2] in (_REQUEST, _CLAIMED)
            if name is None or (is_request and not entry.is_directory):
                continue
            try:
                age_ms = now_ms - self._changed_ms(path, entry.is_directory)
                is_lost = entry.is_directory and age_ms >= LOST_RUN_MS
                if age_ms < older_than_ms and not (is_lost and self._is_of_dead_run(path, now_ms)):
                    continue
                if entry.is_directory:
                    self._fs.remove_tree(path)
                else:
                    self._fs.remove(path)
                removed += 1
            except OSError as error:
                logger.debug("cannot remove %s: %s", path, error)
        return removed

    def _is_of_dead_run(self, path: str, now_ms: TimestampMs) -> bool:
        """Whether a directory belongs to a job that has stopped to beat, and to no request."""
        if any(self._fs.exists(path + suffix) for suffix in (_REQUEST, _CLAIMED)):
            return False
        marks = [
            entry.name.removeprefix(RUN_MARK)
            for entry in self._fs.list(path)
            if entry.name.startswith(RUN_MARK)
        ]
        return bool(marks) and all(self._is_dead(run_id, now_ms) for run_id in marks)

    def _is_dead(self, run_id: str, now_ms: TimestampMs) -> bool:
        if _NAME.fullmatch(run_id) is None:
            return False
        try:
            beat_ms = self._fs.modified_ms(os.path.join(self.directory, f"{run_id}.beat"))
        except FileNotFoundError:
            return True
        return now_ms - beat_ms >= LOST_RUN_MS

    def _changed_ms(self, path: str, is_directory: bool) -> int:
        if not is_directory:
            return self._fs.modified_ms(path)
        files = [
            os.path.join(path, entry.name)
            for entry in self._fs.list(path)
            if not entry.is_directory
        ]
        if not files:
            return self._fs.modified_ms(path)
        return max(self._fs.modified_ms(file) for file in files)

    # --- files -------------------------------------------------------------------------------

    def _entries(self) -> list[DirectoryEntry]:
        try:
            return self._fs.list(self.directory)
        except FileNotFoundError:
            return []

    def _path(self, request_id: str, suffix: str) -> str:
        return os.path.join(self.directory, check_id(request_id) + suffix)

    def _put(self, path: str, content: bytes) -> None:
        temporary = path + TEMPORARY_SUFFIX
        file = self._fs.create(temporary, exclusive=False)
        try:
            write_all(file, 0, content)
        finally:
            file.close()
        self._fs.rename(temporary, path)

    def _remove(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._fs.remove(path)
