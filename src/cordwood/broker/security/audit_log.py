"""The audit log: security events as lines of JSON, to a file, a logger and a topic.

Nothing that happens here delays a client. A report puts the event into a bounded queue. One thread
takes events from there and writes them. If the disk is full or slow, events are dropped and
counted, and the next line that can be written says how many.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from cordwood.broker.config.audit_config import AuditConfig
from cordwood.broker.security.audit_file import AuditFile
from cordwood.broker.security.audit_rates import EventRates
from cordwood.broker.security.audit_record import audit_line, rate_key, with_dropped
from cordwood.broker.security.security_events import SecurityEvent
from cordwood.clock import Clock
from cordwood.value_class import dataclass

logger = logging.getLogger(__name__)
audit_logger = logging.getLogger("cordwood.audit")

_QUEUE_BYTES_MAX: Final = 4 * 1024 * 1024
_LINE_OVERHEAD: Final = 100  # bytes of a text besides its characters
_BATCH_MAX: Final = 500
_FAILURE_LOG_S: Final = 60.0
_STOP_S: Final = 2.0


class AuditTarget(Protocol):
    """Takes lines. Called by the thread of the audit log; may block, and raise `Exception`s."""

    def write(self, lines: Sequence[str]) -> None: ...

    def close(self) -> None: ...


class LoggerTarget:
    """The logger ``cordwood.audit``, at level INFO."""

    def write(self, lines: Sequence[str]) -> None:
        for line in lines:
            audit_logger.info("%s", line)

    def close(self) -> None:
        return


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditCounts:
    """Events since the start: written to at least one target, dropped, and left out."""

    written: int
    dropped: int
    left_out: int


class AuditLog:
    """Any thread may report. `stop` is for the owner.

    Its thread starts with the first event. At most `_QUEUE_BYTES_MAX` bytes wait for it.
    """

    def __init__(self, config: AuditConfig, clock: Clock, targets: Sequence[AuditTarget]) -> None:
        self._clock = clock
        self._targets = list(targets)
        self._rates = EventRates(config.audit_events_per_second)
        self._changed = threading.Condition()
        self._queue: deque[str] = deque()
        self._queued_bytes = 0
        self._written = 0
        self._dropped = 0
        self._untold = 0  # dropped since the last line
        self._is_stopping = False
        self._failed_s: dict[int, float] = {}  # when the failure of a target was logged last
        self._thread: threading.Thread | None = None

    def report(self, event: SecurityEvent) -> None:
        if len(self._targets) == 1 and not audit_logger.isEnabledFor(logging.INFO):
            return  # there is only the logger, and nobody reads it
        try:
            self._report(event)
        except Exception:  # a bug of ours must not fail what is reported
            logger.exception("an audit event could not be queued")

    def _report(self, event: SecurityEvent) -> None:
        key = rate_key(event)
        with self._changed:
            left_out: int | None = 0
            if key is not None:
                left_out = self._rates.take(key.kind, time.monotonic(), source=key.source)
            if left_out is None:
                return
            if self._queued_bytes >= _QUEUE_BYTES_MAX or self._is_stopping:
                self._dropped += 1
                self._untold += 1
                return
        line = audit_line(event, self._clock.now_ms(), left_out=left_out)
        with self._changed:
            self._queue.append(line)
            self._queued_bytes += len(line) + _LINE_OVERHEAD
            if self._thread is None and not self._is_stopping:
                self._thread = threading.Thread(
                    target=self._run, name="cordwood-audit", daemon=True
                )
                self._thread.start()
            self._changed.notify()

    def counts(self) -> AuditCounts:
        with self._changed:
            return AuditCounts(
                written=self._written, dropped=self._dropped, left_out=self._rates.left_out
            )

    def stop(self, timeout_s: float = _STOP_S) -> None:
        """Write what is queued, for so long at most."""
        with self._changed:
            self._is_stopping = True
            self._changed.notify()
            thread = self._thread
        if thread is not None:
            thread.join(timeout_s)
            if thread.is_alive():
                logger.warning("audit events could not be written within %.1f s", timeout_s)

    # --- the thread --------------------------------------------------------------------------

    def _run(self) -> None:
        while lines := self._next():
            is_written = [self._write(at, lines) for at in range(len(self._targets))]
            with self._changed:
                if any(is_written):
                    self._written += len(lines)
                if not all(is_written):
                    self._dropped += len(lines)
                    self._untold += len(lines)
        for target in self._targets:
            target.close()

    def _next(self) -> list[str]:
        """The next lines, at least one; none when the log stops."""
        with self._changed:
            while not self._queue and not self._is_stopping:
                self._changed.wait()
            lines = [self._queue.popleft() for _ in range(min(len(self._queue), _BATCH_MAX))]
            self._queued_bytes -= sum(map(len, lines)) + _LINE_OVERHEAD * len(lines)
            if lines and self._untold:
                lines[0] = with_dropped(lines[0], self._untold)
                self._untold = 0
            return lines

    def _write(self, at: int, lines: Sequence[str]) -> bool:
        target = self._targets[at]
        try:
            target.write(lines)
        except Exception as error:
            now_s = time.monotonic()
            if now_s - self._failed_s.get(at, -_FAILURE_LOG_S) >= _FAILURE_LOG_S:
                self._failed_s[at] = now_s
                logger.error("%d audit events were not written: %s", len(lines), error)
            return False
        self._failed_s.pop(at, None)
        return True


def audit_targets(
    config: AuditConfig, topic: Callable[[str], AuditTarget] | None = None
) -> list[AuditTarget]:
    """What the configuration names, and the logger. `topic` makes a target of a topic."""
    targets: list[AuditTarget] = [LoggerTarget()]
    if config.audit_file is not None:
        targets.append(AuditFile(config.audit_file))
    if config.audit_topic is not None and topic is not None:
        targets.append(topic(config.audit_topic))
    return targets
