"""How fast a client is, and how long it must wait: Kafka's measurements, as plain machines.

    SampledRate   an average over the last samples
    TokenBucket   tokens that come back at the rate of the quota
    QuotaMeter    both: for bytes, handler time and connections

Created and deleted partitions are measured by a bucket alone, as in Kafka.

A rate is the sum of the samples divided by the time since the oldest one began. A new client is
measured as if it had been quiet in all samples but the last, so a short burst is not a violation.

The throttle time is what the client must stay quiet for so that its rate falls to the limit: with
a rate ``r`` over a window ``w``, ``r * w / (w + wait) = limit``.

A rate forgets. A request that is larger than all samples allow is forgotten at the end of its
throttle time, so in Kafka a client that sends only such requests is faster than its quota. The
bucket of a meter does not forget: in any time ``t`` a client that waits as long as it is told
sends at most ``limit * (t + sure_s)`` and one request.
"""

from collections import deque
from typing import NamedTuple

_WINDOW_S_MIN = 0.001


class RateWindows(NamedTuple):
    """How a rate is measured: `quota.window.num` samples of `quota.window.size.seconds` each."""

    samples: int
    sample_s: float

    @property
    def whole_s(self) -> float:
        """After so much time without an event, nothing of it is left in the rate."""
        return self.samples * self.sample_s

    @property
    def sure_s(self) -> float:
        """The whole samples in every window: what fits into them is never a violation."""
        return max(self.samples - 1, 1) * self.sample_s


class _Sample:
    __slots__ = ("amount", "last_s", "start_s")

    def __init__(self, now_s: float) -> None:
        self.start_s = now_s
        self.last_s = now_s
        self.amount = 0.0


class SampledRate:
    """Amounts per second over the last samples. The caller sees to it that one thread calls it.

    Invariant: at most ``samples + 1`` samples, in the order of their beginnings. Each one had an
    event in the last ``whole_s``, at the time of the last call.
    """

    __slots__ = ("_samples", "_windows")

    def __init__(self, windows: RateWindows) -> None:
        self._windows = windows
        self._samples: deque[_Sample] = deque(maxlen=windows.samples + 1)

    def add(self, amount: float, now_s: float) -> None:
        """Count `amount`, which is negative to take back what was counted at the same moment."""
        samples = self._samples
        if not samples or now_s - samples[-1].start_s >= self._windows.sample_s:
            samples.append(_Sample(now_s))
        sample = samples[-1]
        sample.amount += amount
        sample.last_s = now_s

    def window_s(self, now_s: float) -> float:
        """The time that the rate is an average of: at least all samples but one."""
        samples, (count, sample_s) = self._samples, self._windows
        expiry_s = count * sample_s
        while samples and now_s - samples[0].last_s >= expiry_s:
            samples.popleft()
        elapsed_s = now_s - samples[0].start_s if samples else 0.0
        missing = count - 1 - int(elapsed_s / sample_s)
        if missing > 0:
            elapsed_s += missing * sample_s
        return max(elapsed_s, _WINDOW_S_MIN)

    def measure(self, now_s: float) -> float:
        window_s = self.window_s(now_s)
        return sum(sample.amount for sample in self._samples) / window_s

    def throttle_s(self, limit: float, now_s: float) -> float:
        """How long the client must be quiet until its rate is `limit`; 0 if it is not above it."""
        window_s = self.window_s(now_s)
        excess = sum(sample.amount for sample in self._samples) / window_s - limit
        return excess / limit * window_s if excess > 0 else 0.0


class TokenBucket:
    """Tokens: `limit` come back each second, up to what `burst_s` seconds give.

    Taking may leave the bucket in debt. Then nothing is allowed until the debt is paid. The bucket
    knows what is missing from it, so it stays right if the limit, and with it its size, changes.
    The caller sees to it that one thread calls it.
    """

    __slots__ = ("_burst_s", "_missing", "_updated_s")

    def __init__(self, burst_s: float) -> None:
        self._burst_s = burst_s
        self._missing = 0.0
        self._updated_s = 0.0

    def throttle_s(self, limit: float, now_s: float) -> float:
        """How long nothing is allowed; 0 if the next taker is."""
        debt = self._refilled(limit, now_s) - limit * self._burst_s
        return debt / limit if debt > 0 else 0.0

    def is_full(self, limit: float, now_s: float) -> bool:
        return self._refilled(limit, now_s) <= 0

    def take(self, count: float, limit: float, now_s: float) -> None:
        self._missing = self._refilled(limit, now_s) + count

    def _refilled(self, limit: float, now_s: float) -> float:
        self._missing = max(self._missing - limit * (now_s - self._updated_s), 0.0)
        self._updated_s = now_s
        return self._missing


class QuotaMeter:
    """What one entity used of one quota. The caller sees to it that one thread calls it."""

    __slots__ = ("_bucket", "_rate", "_sure_s")

    def __init__(self, windows: RateWindows) -> None:
        self._sure_s = windows.sure_s
        self._rate = SampledRate(windows)
        self._bucket = TokenBucket(windows.sure_s)

    def add(self, amount: float, limit: float, now_s: float) -> float:
        """Count `amount`; how long the client must wait now, 0 if it is within its limit."""
        self._rate.add(amount, now_s)
        self._bucket.take(amount, limit, now_s)
        return max(self._rate.throttle_s(limit, now_s), self._bucket.throttle_s(limit, now_s))

    def add_if_allowed(self, amount: float, limit: float, now_s: float) -> float:
        """As `add`, but what has to wait is not counted: it is to be tried again after the wait.

        What is too large for any wait is allowed once nothing is owed, and the next one waits the
        longer. Otherwise it would be tried for ever.
        """
        is_overdue = amount > limit * self._sure_s and self._bucket.is_full(limit, now_s)
        wait_s = self.add(amount, limit, now_s)
        if not wait_s or is_overdue:
            return 0.0
        self.take_back(amount, limit, now_s)
        return wait_s

    def take_back(self, amount: float, limit: float, now_s: float) -> None:
        """Do not count what was added at the same moment."""
        self._rate.add(-amount, now_s)
        self._bucket.take(-amount, limit, now_s)

    def measure(self, now_s: float) -> float:
        return self._rate.measure(now_s)
