"""Counts requests, bytes and connections, without locks on the hot path.

Each thread that counts has its own numbers, which only it changes. A reader adds them up. So
counting costs a few hundred nanoseconds, never waits and loses nothing. Threads come and go: the
numbers of those that ended are kept in one sum.
"""

import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from time import monotonic

from cordwood.log.rules.duration_histogram import DurationHistogram, HistogramView
from cordwood.value_class import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestCounts:
    """All counts since the start, at one moment."""

    latencies: Mapping[int, HistogramView]  # by API key: from received to sent
    errors: Mapping[tuple[int, int], int]  # by (API key, error code)
    bytes_received: int
    bytes_sent: int
    connections_accepted: int
    connections_refused: int
    handshakes_failed: int = 0


class ThreadCounts:
    """The counts of one thread, which only that thread changes; or those of threads that ended."""

    __slots__ = (
        "accepted",
        "errors",
        "handshakes_failed",
        "latencies",
        "received",
        "refused",
        "sent",
    )

    def __init__(self) -> None:
        self.latencies: dict[int, DurationHistogram] = {}
        self.errors: dict[tuple[int, int], int] = {}
        self.received = 0
        self.sent = 0
        self.accepted = 0
        self.refused = 0
        self.handshakes_failed = 0

    def answered(self, api_key: int, latencies_s: Sequence[float], size: int) -> None:
        """Requests were answered, with `size` bytes in all.

        Each so long after it was received.
        """
        self.sent += size
        histogram = self.latencies.get(api_key)
        if histogram is None:
            histogram = self.latencies[api_key] = DurationHistogram()
        histogram.observe_all(latencies_s)

    def answered_together(
        self, api_key: int, starts: Sequence[tuple[int, float]], size: int
    ) -> None:
        """As `answered`: so many requests each that were received at the same time."""
        self.sent += size
        histogram = self.latencies.get(api_key)
        if histogram is None:
            histogram = self.latencies[api_key] = DurationHistogram()
        now_s = monotonic()
        for count, started_s in starts:
            if count:
                histogram.observe(now_s - started_s, count)

    def add(self, other: "ThreadCounts") -> None:
        """The counts of a thread that ended."""
        for api_key, histogram in other.latencies.items():
            self.latencies.setdefault(api_key, DurationHistogram()).add(histogram.view())
        for failure, count in other.errors.items():
            self.errors[failure] = self.errors.get(failure, 0) + count
        self.received += other.received
        self.sent += other.sent
        self.accepted += other.accepted
        self.refused += other.refused
        self.handshakes_failed += other.handshakes_failed


class _Mine(threading.local):
    counts: ThreadCounts | None = None


class RequestMetrics:
    """The counts of one broker. Any thread may count and read.

    Invariant, outside the lock: what a thread counted is either in `_all` or in `_ended`.
    """

    def __init__(self) -> None:
        self._mine = _Mine()
        self._lock = threading.Lock()
        self._all: list[tuple[threading.Thread, ThreadCounts]] = []
        self._ended = ThreadCounts()

    def mine(self) -> ThreadCounts:
        """The counts of the calling thread."""
        return self._mine.counts or self._join()

    def observe(self, api_key: int, latency_s: float) -> None:
        """A request was answered, `latency_s` after it was received."""
        latencies = (self._mine.counts or self._join()).latencies
        histogram = latencies.get(api_key)
        if histogram is None:
            histogram = latencies[api_key] = DurationHistogram()
        histogram.observe(latency_s)

    def observe_all(self, api_key: int, latencies_s: Sequence[float]) -> None:
        """As `observe`, for several requests at once."""
        latencies = (self._mine.counts or self._join()).latencies
        histogram = latencies.get(api_key)
        if histogram is None:
            histogram = latencies[api_key] = DurationHistogram()
        histogram.observe_all(latencies_s)

    def failed(self, api_key: int, error_code: int) -> None:
        """An answer carried an error."""
        errors = (self._mine.counts or self._join()).errors
        errors[api_key, error_code] = errors.get((api_key, error_code), 0) + 1

    def received(self, size: int) -> None:
        (self._mine.counts or self._join()).received += size

    def sent(self, size: int) -> None:
        (self._mine.counts or self._join()).sent += size

    def accepted(self) -> None:
        """A client connected."""
        (self._mine.counts or self._join()).accepted += 1

    def refused(self) -> None:
        """A client was disconnected at once, because there were too many."""
        (self._mine.counts or self._join()).refused += 1

    def handshake_failed(self) -> None:
        """A client was disconnected before its TLS handshake was over."""
        (self._mine.counts or self._join()).handshakes_failed += 1

    def _join(self) -> ThreadCounts:
        counts = self._mine.counts = ThreadCounts()
        with self._lock:
            self._add_ended()
            self._all.append((threading.current_thread(), counts))
        return counts

    def _add_ended(self) -> None:
        """Keep only the sum of what ended threads counted. With the lock."""
        alive: list[tuple[threading.Thread, ThreadCounts]] = []
        for each in self._all:
            thread, counts = each
            if thread.is_alive():
                alive.append(each)
            else:
                self._ended.add(counts)
        self._all = alive

    def view(self) -> RequestCounts:
        latencies: dict[int, HistogramView] = {}
        errors: Counter[tuple[int, int]] = Counter()
        with self._lock:  # a thread that ends meanwhile must not be seen twice
            self._add_ended()
            everyone = [self._ended, *(counts for _, counts in self._all)]
            for counts in everyone:
                errors.update(dict(counts.errors))
                for api_key, histogram in list(counts.latencies.items()):
                    seen = histogram.view()
                    earlier = latencies.get(api_key)
                    latencies[api_key] = seen if earlier is None else earlier + seen
            return RequestCounts(
                latencies=latencies,
                errors=errors,
                bytes_received=sum(counts.received for counts in everyone),
                bytes_sent=sum(counts.sent for counts in everyone),
                connections_accepted=sum(counts.accepted for counts in everyone),
                connections_refused=sum(counts.refused for counts in everyone),
                handshakes_failed=sum(counts.handshakes_failed for counts in everyone),
            )
