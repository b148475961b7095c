"""Traces of jobs that other processes run over a store: what runs, how far it is, how it ended.

    remote-log-index-cache/cordwood-jobs/<id>.json     in the first data directory

Traces inform people; nothing else depends on them. So they are not synced, a trace that cannot be
written is left out, and anybody who may write to the directory can write anything: a reader
believes no size and no type. A job writes its trace when something changed, at most once a second,
and at least every 15 seconds; one that was silent for two minutes counts as lost. A job that begins
removes traces older than a week, and all but the newest hundred.

Only a directory of ours gets traces: jobs also read directories that Kafka writes.
"""

import contextlib
import json
import logging
import os
import re
import threading
import uuid
from collections.abc import Iterable
from types import TracebackType
from typing import Final, Self

from cordwood.clock import Clock, SystemClock
from cordwood.errors import CordwoodError
from cordwood.quantities import INT64_MAX, KIB
from cordwood.storage.disk.file_access import FileAccess
from cordwood.storage.files import (
    TEMPORARY_SUFFIX,
    FileSystem,
    RealFileSystem,
    read_whole,
    write_all,
)
from cordwood.value_class import dataclass, replace

logger = logging.getLogger(__name__)

_FOLDER: Final = os.path.join("remote-log-index-cache", "cordwood-jobs")
_OWN_STORE: Final = "cordwood-topics"  # the catalog that each of our stores has
_NAME: Final = re.compile(r"[0-9a-f]{32}\.json(?:\.tmp)?")
_BYTES_MAX: Final = 64 * KIB
_CHARS_MAX: Final = 300
TRACES_MAX: Final = 100
POSITIONS_MAX: Final = 500
LOST_MS: Final = 120_000
_KEPT_MS: Final = 7 * 24 * 3600 * 1000
_STEP_S: Final = 1.0
_BEAT_STEPS: Final = 15

RUNNING: Final = "running"
DONE: Final = "done"
FAILED: Final = "failed"
LOST: Final = "lost"

Position = tuple[str, int, int]  # topic, partition, next offset


@dataclass(frozen=True, slots=True, kw_only=True)
class JobTrace:
    """A job. `total` is 0 if it is not known; `ended_ms` is None while it runs, or if it was lost.

    kind       what it does: compact, export, stream …
    subject    with what, in words
    positions  how far a stream has read
    text       why it failed
    """

    job_id: str
    kind: str
    subject: str
    host: str
    process: int
    started_ms: int
    beat_ms: int
    ended_ms: int | None = None
    has_failed: bool = False
    step: str = ""
    done: int = 0
    total: int = 0
    positions: tuple[Position, ...] = ()
    text: str = ""

    def state(self, now_ms: int) -> str:
        if self.ended_ms is not None:
            return FAILED if self.has_failed else DONE
        return LOST if now_ms - self.beat_ms > LOST_MS else RUNNING


# --- text ------------------------------------------------------------------------------------


def render_trace(trace: JobTrace) -> bytes:
    content = {
        "kind": trace.kind[:_CHARS_MAX],
        "subject": trace.subject[:_CHARS_MAX],
        "host": trace.host[:_CHARS_MAX],
        "process": trace.process,
        "started_ms": trace.started_ms,
        "beat_ms": trace.beat_ms,
        "ended_ms": trace.ended_ms,
        "has_failed": trace.has_failed,
        "step": trace.step[:_CHARS_MAX],
        "done": trace.done,
        "total": trace.total,
        "positions": [[t[:_CHARS_MAX], p, o] for t, p, o in trace.positions[:POSITIONS_MAX]],
        "text": trace.text[:_CHARS_MAX],
    }
    data = json.dumps(content).encode()
    if len(data) > _BYTES_MAX:
        return render_trace(replace(trace, positions=()))
    return data


def parse_trace(job_id: str, data: bytes) -> JobTrace | None:
    """None if it is not a trace."""
    try:
        content = json.loads(data)
    except (ValueError, RecursionError):
        return None
    if not isinstance(content, dict):
        return None
    try:
        return JobTrace(
            job_id=job_id,
            kind=_text(content["kind"]),
            subject=_text(content["subject"]),
            host=_text(content["host"]),
            process=_number(content["process"]),
            started_ms=_number(content["started_ms"]),
            beat_ms=_number(content["beat_ms"]),
            step=_text(content["step"]),
            done=_number(content["done"]),
            total=_number(content["total"]),
            text=_text(content["text"]),
            ended_ms=None if content["ended_ms"] is None else _number(content["ended_ms"]),
            has_failed=content["has_failed"] is True,
            positions=tuple(_positions(content["positions"])),
        )
    except (KeyError, TypeError, ValueError):
        return None


def _text(found: object) -> str:
    if not isinstance(found, str):
        raise TypeError("not a text")
    return found[:_CHARS_MAX]


def _number(found: object) -> int:
    if type(found) is not int or not 0 <= found <= INT64_MAX:
        raise ValueError("not a number of 63 bits")
    return found


def _positions(found: object) -> Iterable[Position]:
    if not isinstance(found, list) or len(found) > POSITIONS_MAX:
        raise TypeError("positions")
    for topic, partition, offset in found:
        if not isinstance(topic, str):
            raise TypeError("topic")
        yield topic[:_CHARS_MAX], _number(partition), _number(offset)


# --- files -----------------------------------------------------------------------------------


def read_traces(fs: FileSystem, path: str) -> list[JobTrace]:
    """The traces of the store whose first data directory is `path`, the newest first."""
    folder = os.path.join(path, _FOLDER)
    found: list[JobTrace] = []
    for name in _trace_names(fs, folder)[: 2 * TRACES_MAX]:
        if name.endswith(TEMPORARY_SUFFIX):
            continue
        with contextlib.suppress(OSError, CordwoodError):
            data = read_whole(fs, os.path.join(folder, name), limit=_BYTES_MAX)
            trace = parse_trace(name.partition(".")[0], data)
            if trace is not None:
                found.append(trace)
    return sorted(found, key=lambda trace: -trace.started_ms)[:TRACES_MAX]


def _trace_names(fs: FileSystem, folder: str) -> list[str]:
    try:
        entries = fs.list(folder)
    except OSError:
        return []
    return [e.name for e in entries if not e.is_directory and _NAME.fullmatch(e.name)]


class JobTracer:
    """Writes the trace of one job from a thread of its own. Any thread may call `note` and `end`.

    It never raises because of the file: a job must not fail because its trace cannot be written.
    """

    def __init__(
        self,
        path: str,
        *,
        kind: str,
        subject: str,
        fs: FileSystem | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._fs = RealFileSystem(FileAccess.of_store(path)) if fs is None else fs
        self._clock = SystemClock() if clock is None else clock
        self._folder = os.path.join(path, _FOLDER)
        self._is_possible = self._fs.exists(os.path.join(path, _OWN_STORE))
        now_ms = self._clock.now_ms()
        self._trace = JobTrace(
            job_id=uuid.uuid4().hex,
            kind=kind,
            subject=subject,
            host=os.uname().nodename,
            process=os.getpid(),
            started_ms=now_ms,
            beat_ms=now_ms,
        )
        self._lock = threading.Lock()
        self._is_changed = False
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="cordwood-job-trace", daemon=True)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.end(problem=None if error is None else str(error) or type(error).__name__)

    def start(self) -> None:
        if not self._is_possible:
            return
        self._clean()
        self._write()
        self._thread.start()

    def note(
        self,
        step: str = "",
        *,
        done: int = 0,
        total: int = 0,
        positions: Iterable[Position] | None = None,
    ) -> None:
        """What the job does now. Cheap: the file is written later."""
        with self._lock:
            known = self._trace.positions
            new = known if positions is None else tuple(positions)[:POSITIONS_MAX]
            self._trace = replace(self._trace, step=step, done=done, total=total, positions=new)
            self._is_changed = True

    def end(self, problem: str | None = None) -> None:
        """The job has ended; with `problem`, it failed. Safe to repeat: the first one counts."""
        if self._ended.is_set():
            return
        self._ended.set()
        if not self._is_possible:
            return
        if self._thread.is_alive():
            self._thread.join(_STEP_S)
        with self._lock:
            self._trace = replace(
                self._trace,
                ended_ms=self._clock.now_ms(),
                has_failed=problem is not None,
                text=problem or "",
            )
        self._write()

    def _beat(self) -> None:
        steps = 0
        while not self._ended.wait(_STEP_S):
            steps += 1
            with self._lock:
                is_due = self._is_changed or steps >= _BEAT_STEPS
            if is_due:
                steps = 0
                self._write()

    def _write(self) -> None:
        with self._lock:
            self._is_changed = False
            self._trace = replace(self._trace, beat_ms=self._clock.now_ms())
            trace = self._trace
        path = os.path.join(self._folder, f"{trace.job_id}.json")
        temporary = path + TEMPORARY_SUFFIX
        try:
            self._fs.make_directory(self._folder)
            file = self._fs.create(temporary, exclusive=False)
            try:
                write_all(file, 0, render_trace(trace))
            finally:
                file.close()
            self._fs.rename(temporary, path)
        except OSError as error:
            logger.debug("cannot write the trace of a job: %s", error)

    def _clean(self) -> None:
        """Remove old traces, and all but the newest."""
        names = _trace_names(self._fs, self._folder)
        known: list[tuple[int, str]] = []
        for name in names:
            with contextlib.suppress(OSError):
                path = os.path.join(self._folder, name)
                known.append((self._fs.modified_ms(path), path))
        known.sort(reverse=True)
        oldest_ms = self._clock.now_ms() - _KEPT_MS
        for number, (modified_ms, path) in enumerate(known):
            if number >= TRACES_MAX - 1 or modified_ms < oldest_ms:
                with contextlib.suppress(OSError):
                    self._fs.remove(path)
