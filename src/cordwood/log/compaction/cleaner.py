"""The cleaner: decides which log is compacted when, and limits the work.

due          by `compaction_plan`: overdue logs first, then those with the most dirty bytes
threads      log.cleaner.threads logs at a time in each data directory; all share the memory for
             keys. So a directory that hangs does not delay the others
share        after each run the cleaner rests, so that it works at most half the time
bandwidth    log.cleaner.io.max.bytes.per.second, read and written, all threads together
pause        a log is not compacted twice within log.cleaner.backoff.ms
failure      after an I/O error the log is tried again, after a pause that doubles each time.
             After any other failure, such as a damaged segment, the log is not compacted until
             it is opened again or compacted by request
"""

import logging
import os
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from cordwood.clock import Clock
from cordwood.errors import (
    ConfigError,
    DiskFullError,
    LogClosedError,
    LogFailedError,
)
from cordwood.log.compaction.compaction_run import (
    CompactionOutcome,
    CompactionResult,
    CompactionRun,
    CompactionStoppedError,
)
from cordwood.log.compaction.compaction_walk import RunSettings
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.log.rules.compaction_plan import CompactionPlan, filthiest_first
from cordwood.log.rules.interruption import LockHold, insist
from cordwood.quantities import MIB, TimestampMs
from cordwood.value_class import dataclass, field, replace

logger = logging.getLogger(__name__)

_BACKOFF_DOUBLINGS_MAX: Final = 8  # of 15 s: about an hour
_MAP_BYTES_MIN: Final = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanerConfig:
    """The limits of the cleaner. Validated on construction."""

    enable: bool = True
    threads: int = 1
    dedupe_buffer_size: int = 128 * MIB
    io_buffer_load_factor: float = 0.9
    io_max_bytes_per_second: float | None = None  # None: no limit
    backoff_ms: int = 15_000
    time_share_max: float = 0.5

    def __post_init__(self) -> None:
        rules: list[tuple[str, object, bool, str]] = [
            ("threads", self.threads, self.threads >= 1, "must be at least 1"),
            (
                "dedupe.buffer.size",
                self.dedupe_buffer_size,
                self.dedupe_buffer_size >= self.threads * _MAP_BYTES_MIN,
                f"must be at least {_MAP_BYTES_MIN} for each thread",
            ),
            (
                "io.buffer.load.factor",
                self.io_buffer_load_factor,
                0 < self.io_buffer_load_factor < 1,
                "must be above 0 and below 1",
            ),
            (
                "io.max.bytes.per.second",
                self.io_max_bytes_per_second,
                self.io_max_bytes_per_second is None or self.io_max_bytes_per_second > 0,
                "must be above 0",
            ),
            ("backoff.ms", self.backoff_ms, self.backoff_ms >= 0, "must not be negative"),
            (
                "time.share.max",
                self.time_share_max,
                0 < self.time_share_max <= 1,
                "must be above 0 and at most 1",
            ),
        ]
        for key, value, is_kept, rule in rules:
            if not is_kept:
                raise ConfigError(f"log.cleaner.{key}", value, rule)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogCleaning:
    """The state of one log's compaction. Times are wall time; None: never, or unknown."""

    topic: str
    partition: int
    is_running: bool
    progress: float | None  # of the run under way
    runs: int
    bytes_read: int
    bytes_written: int
    bytes_reclaimed: int
    last_result: CompactionResult | None
    last_error: str | None
    is_uncleanable: bool
    not_before_ms: TimestampMs | None  # the log is not compacted before this time


class Throttle:
    """Limits the rate of bytes by making callers wait."""

    def __init__(
        self, bytes_per_second: float | None, clock: Clock, wait: Callable[[float], None]
    ) -> None:
        self._rate = bytes_per_second
        self._clock = clock
        self._wait = wait
        self._lock = threading.Lock()
        self._free_at_s = clock.monotonic()

    def pass_bytes(self, count: int) -> None:
        if self._rate is None or count <= 0:
            return
        with self._lock:
            now_s = self._clock.monotonic()
            self._free_at_s = max(self._free_at_s, now_s) + count / self._rate
            ahead_s = self._free_at_s - now_s
        if ahead_s > 0:
            self._wait(ahead_s)


@dataclass(slots=True)
class _Record:
    """The cleaner's record of one log."""

    log: PartitionLog
    run: CompactionRun | None = None
    runs: int = 0
    failures_in_a_row: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    bytes_reclaimed: int = 0
    last_result: CompactionResult | None = None
    last_error: str | None = None
    is_uncleanable: bool = False
    not_before_s: float = float("-inf")


@dataclass(slots=True)
class _Turn:
    """The cleaner's work in one data directory."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    rests_until_s: float = float("-inf")


def _directory_of(log: PartitionLog) -> str:
    return os.path.dirname(log.directory)


class Cleaner:
    """Compacts the logs of a store. Any thread may call it."""

    def __init__(
        self,
        logs: Callable[[], Iterable[PartitionLog]],
        clock: Clock,
        config: CleanerConfig | None = None,
        *,
        directory_count: int = 1,
        secret: Callable[[], bytes] = lambda: os.urandom(16),
    ) -> None:
        """The logs lie in `directory_count` data directories, which are worked on side by side."""
        self.config = config or CleanerConfig()
        self._logs = logs
        self._clock = clock
        self._secret = secret
        self._stop = threading.Event()
        self._throttle = Throttle(self.config.io_max_bytes_per_second, clock, self._wait)
        self._records: dict[tuple[str, int], _Record] = {}
        self._lock = threading.Lock()
        self._directory_count = directory_count
        self._turns: defaultdict[str, _Turn] = defaultdict(_Turn)  # by data directory

    def reconfigure(self, config: CleanerConfig) -> None:
        """Use another configuration, from the next log on."""
        self._throttle = Throttle(config.io_max_bytes_per_second, self._clock, self._wait)
        self.config = config

    # --- running -------------------------------------------------------------------------------

    def run_due(self, directory: str) -> list[CompactionResult]:
        """Compact the logs of a data directory that are due; one result for each that was tried.

        Does nothing while the cleaner rests from earlier work in this directory.
        """
        turn = self._turn_in(directory)
        if not self.config.enable or self._clock.monotonic() < turn.rests_until_s:
            return []
        with turn.lock:
            now_ms = self._clock.now_ms()
            plans: list[tuple[PartitionLog, CompactionPlan]] = []
            for log in self._logs():
                is_wanted = log.config.is_compacted and _directory_of(log) == directory
                plan = self._plan(log, now_ms) if is_wanted and self._may_be_tried(log) else None
                if plan is not None:
                    plans.append((log, plan))
            return self._run_all(turn, plans, now_ms)

    def _plan(self, log: PartitionLog, now_ms: TimestampMs) -> CompactionPlan | None:
        """None if the log cannot be looked at: it is tried again, and the others go on."""
        try:
            return log.compaction.plan(now_ms)
        except Exception as error:
            record = self._record_of(log)
            logger.warning("compaction of %s cannot be planned: %r", log.name, error)
            record.failures_in_a_row += 1
            with self._lock:
                record.last_error = f"{type(error).__name__}: {error}"
                record.not_before_s = self._clock.monotonic() + self._pause_s(record)
            return None

    def run_now(self, logs: Sequence[PartitionLog], *, force: bool) -> list[CompactionResult]:
        """Compact those of these logs that are due, even if they failed before.

        With `force`, compact each of them, and seal the active segments first to include them.
        """
        results: list[CompactionResult] = []
        for directory in dict.fromkeys(map(_directory_of, logs)):
            turn = self._turn_in(directory)
            with turn.lock:
                plans = []
                for log in [log for log in logs if _directory_of(log) == directory]:
                    self._record_of(log).is_uncleanable = False
                    if force and log.config.is_compacted:
                        log.roll()
                    log.syncing.sync_pending()  # only sealed, durable segments are compacted
                    plans.append((log, log.compaction.plan(self._clock.now_ms(), force=force)))
                results += self._run_all(turn, plans, self._clock.now_ms())
        return results

    def stop(self) -> None:
        """Start nothing more, and make running compactions end early, leaving no files."""
        self._stop.set()
        for turn in list(self._turns.values()):
            with turn.lock:
                pass

    def _run_all(
        self,
        turn: _Turn,
        plans: Sequence[tuple[PartitionLog, CompactionPlan]],
        now_ms: TimestampMs,
    ) -> list[CompactionResult]:
        by_name = {(plan.topic, plan.partition): log for log, plan in plans}
        due = filthiest_first(plan for _, plan in plans)
        work = [(by_name[plan.topic, plan.partition], plan) for plan in due]
        if not work or self._stop.is_set():
            return []
        started_s = self._clock.monotonic()
        threads = min(self.config.threads, len(work))
        if threads == 1:
            results = [self._run_one(log, plan, now_ms) for log, plan in work]
        else:
            with ThreadPoolExecutor(threads, thread_name_prefix="cordwood-cleaner") as pool:
                results = list(pool.map(lambda item: self._run_one(item[0], item[1], now_ms), work))
        ended_s = self._clock.monotonic()
        share = self.config.time_share_max
        turn.rests_until_s = ended_s + (ended_s - started_s) * (1 - share) / share
        return [result for result in results if result is not None]

    def _run_one(
        self, log: PartitionLog, plan: CompactionPlan, now_ms: TimestampMs
    ) -> CompactionResult | None:
        record = self._record_of(log)
        hold = LockHold(log.compaction.lock)
        try:
            if self._stop.is_set() or not hold.take(timeout_s=0):
                return None
            started_s = self._clock.monotonic()
            record.run = run = CompactionRun(log, plan, self._settings(), now_ms=now_ms)
            result = self._attempt(run, record)
        finally:
            if hold:
                record.run = None
                insist(hold.release)
        self._note(record, result, self._clock.monotonic() - started_s)
        return record.last_result

    def _settings(self) -> RunSettings:
        config = self.config
        return RunSettings(
            map_bytes=max(
                config.dedupe_buffer_size // (config.threads * self._directory_count),
                _MAP_BYTES_MIN,
            ),
            load_factor=config.io_buffer_load_factor,
            secret=self._secret(),
            pace=self._pace,
        )

    def _attempt(self, run: CompactionRun, record: _Record) -> CompactionResult:
        try:
            result = run.run()
        except (CompactionStoppedError, LogClosedError):
            return run.result(CompactionOutcome.STOPPED)
        except (OSError, DiskFullError, LogFailedError) as error:
            record.failures_in_a_row += 1
            logger.warning("compacting %s failed and will be tried again: %s", run.log.name, error)
            return run.result(CompactionOutcome.FAILED, error=f"{type(error).__name__}: {error}")
        except Exception as error:  # whatever it is: the other logs are not concerned
            record.failures_in_a_row += 1
            record.is_uncleanable = True
            logger.exception("%s cannot be compacted and stays as it is", run.log.name)
            return run.result(CompactionOutcome.FAILED, error=f"{type(error).__name__}: {error}")
        record.failures_in_a_row = 0
        return result

    def _pause_s(self, record: _Record) -> float:
        doublings = min(record.failures_in_a_row, _BACKOFF_DOUBLINGS_MAX)
        return self.config.backoff_ms / 1000 * 2.0**doublings

    def _note(self, record: _Record, result: CompactionResult, duration_s: float) -> None:
        pause_s = self._pause_s(record)
        # If the keys did not fit into the map, the rest is due at once.
        if result.outcome is CompactionOutcome.MAP_FULL:
            pause_s = 0.0
        with self._lock:
            record.runs += 1
            record.bytes_read += result.bytes_read
            record.bytes_written += result.bytes_written
            record.bytes_reclaimed += result.bytes_reclaimed
            record.last_error = result.error
            record.last_result = replace(result, duration_s=duration_s)
            record.not_before_s = self._clock.monotonic() + pause_s

    # --- looking -------------------------------------------------------------------------------

    def status(self) -> list[LogCleaning]:
        """The state of every compacted log."""
        return [
            self._status_of(self._record_of(log)) for log in self._logs() if log.config.is_compacted
        ]

    def _status_of(self, record: _Record) -> LogCleaning:
        run = record.run
        wait_s = record.not_before_s - self._clock.monotonic()
        with self._lock:
            return LogCleaning(
                topic=record.log.topic,
                partition=record.log.partition,
                is_running=run is not None,
                progress=None if run is None else run.progress,
                runs=record.runs,
                bytes_read=record.bytes_read + (0 if run is None else run.bytes_read),
                bytes_written=record.bytes_written + (0 if run is None else run.bytes_written),
                bytes_reclaimed=(
                    record.bytes_reclaimed + (0 if run is None else run.bytes_reclaimed)
                ),
                last_result=record.last_result,
                last_error=record.last_error,
                is_uncleanable=record.is_uncleanable,
                not_before_ms=(
                    TimestampMs(self._clock.now_ms() + int(wait_s * 1000)) if wait_s > 0 else None
                ),
            )

    @property
    def rests_for_s(self) -> float:
        """How long the cleaner still rests, to keep to its share of time."""
        now_s = self._clock.monotonic()
        return max([turn.rests_until_s - now_s for turn in list(self._turns.values())] + [0.0])

    def _turn_in(self, directory: str) -> _Turn:
        with self._lock:
            return self._turns[directory]

    def _record_of(self, log: PartitionLog) -> _Record:
        with self._lock:
            record = self._records.get((log.topic, log.partition))
            if record is None or record.log is not log:  # a topic deleted and created again
                record = self._records[log.topic, log.partition] = _Record(log)
            return record

    def _may_be_tried(self, log: PartitionLog) -> bool:
        record = self._record_of(log)
        return (
            not record.is_uncleanable
            and not log.is_closed
            and log.state.failure is None
            and self._clock.monotonic() >= record.not_before_s
        )

    # --- pace ----------------------------------------------------------------------------------

    def _pace(self, count: int) -> None:
        if self._stop.is_set():
            raise CompactionStoppedError
        self._throttle.pass_bytes(count)

    def _wait(self, seconds: float) -> None:
        if self._stop.wait(seconds):
            raise CompactionStoppedError
