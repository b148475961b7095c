"""How much of a quota is used, and how long a client must wait: a token bucket.

The bucket of a quota of `limit` per second gets `limit` tokens each second, up to what `burst_s`
seconds give. A request takes as many tokens as it costs, and may leave the bucket in debt. The
client waits until the debt is paid. So for any arrivals of a client that waits as long as it is
told, in any time ``t``:

    used <= limit * (t + burst_s) + one request

and a client that always has something to send gets `limit` in the long run, whatever the size of
its requests.

Kafka measures an average over samples instead, except for created and deleted partitions. The first
throttle time is the same: the burst is what all samples but one allow. After that an average is
inexact: it forgets a request that is larger than its samples while the client still waits, so such
a client gets up to 1.4 times its quota; and a consumer whose answers are half as large as the
samples gets half of it.
"""

from typing import NamedTuple


class RateWindows(NamedTuple):
    """`quota.window.num` samples of `quota.window.size.seconds` each: how bursts are limited."""

    samples: int
    sample_s: float

    @property
    def whole_s(self) -> float:
        return self.samples * self.sample_s

    @property
    def burst_s(self) -> float:
        """What a client may use at once after a quiet time: all samples but one, as in Kafka."""
        return max(self.samples - 1, 1) * self.sample_s


class TokenBucket:
    """What is used of one quota. The caller sees to it that one thread at a time calls it.

    It knows what is missing, not what is there. So it stays right if the limit changes.
    """

    __slots__ = ("_burst_s", "_missing", "_updated_s")

    def __init__(self, burst_s: float) -> None:
        self._burst_s = burst_s
        self._missing = 0.0
        self._updated_s = 0.0

    def wait_s(self, limit: float, now_s: float) -> float:
        """How long nothing is allowed; 0 if the next request is."""
        debt = self._refilled(limit, now_s) - limit * self._burst_s
        return debt / limit if debt > 0 else 0.0

    def use(self, amount: float, limit: float, now_s: float) -> float:
        """Use `amount` in any case; how long the client must wait after it."""
        self._missing = self._refilled(limit, now_s) + amount
        debt = self._missing - limit * self._burst_s
        return debt / limit if debt > 0 else 0.0

    def use_if_allowed(self, amount: float, limit: float, now_s: float) -> float:
        """Use `amount` if that leaves no debt; else how long to wait before it is tried again.

        An amount that no bucket holds is allowed from a full one. Then others wait the longer.
        """
        missing, burst = self._refilled(limit, now_s), limit * self._burst_s
        debt = missing + min(amount, burst) - burst
        # A wait is not exact to the last bit, and the next one must not be for a picosecond.
        if debt > burst * 1e-9:
            return debt / limit
        self._missing = missing + amount
        return 0.0

    def give_back(self, amount: float) -> None:
        """What was used just now was not needed."""
        self._missing = max(self._missing - amount, 0.0)

    def _refilled(self, limit: float, now_s: float) -> float:
        self._missing = max(self._missing - limit * (now_s - self._updated_s), 0.0)
        self._updated_s = now_s
        return self._missing
