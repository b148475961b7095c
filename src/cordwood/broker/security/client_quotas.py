"""Quotas in force: what each client has used, and how long it has to wait.

A request asks `is_set` first, so a broker without quotas pays for one attribute. Otherwise the
client's rates are found by user and client id, in a table that each change replaces.

Whatever names clients send, at most `_TRACKED_MAX` entities are measured. Beyond that the least
recently used are forgotten, which gives them a fresh start. An entity that was quiet for an hour
is forgotten too, as in Kafka.
"""

import math
import threading
import time
from collections.abc import Callable, Mapping
from typing import Final

from cordwood.broker.config.access_config import QuotaConfig
from cordwood.broker.error_codes import ErrorCode, RefusedError
from cordwood.quantities import INT32_MAX
from cordwood.security.quotas.quota_rates import RateWindows, TokenBucket
from cordwood.security.quotas.quota_rules import (
    NAME_CHARACTERS_MAX,
    Measured,
    QuotaKey,
    Quotas,
    find_limit,
    has_client_limits,
)
from cordwood.security.security_state import SecurityState
from cordwood.value_class import dataclass

_TRACKED_MAX: Final = 10_000
_QUIET_S: Final = 3600.0
PAUSE_S_MAX: Final = 3600.0  # a quota that was set much too low is noticed before


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaCounts:
    """Throttled requests since the start, by key and by what was measured, at one moment."""

    throttled: Mapping[tuple[str, str], int]
    throttled_s: Mapping[tuple[str, str], float]
    tracked: int


class _Throttles:
    """Counts throttled requests. Any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.counts: dict[tuple[str, str], int] = {}
        self.seconds: dict[tuple[str, str], float] = {}

    def add(self, label: tuple[str, str], pause_s: float) -> None:
        with self._lock:
            self.counts[label] = self.counts.get(label, 0) + 1
            self.seconds[label] = self.seconds.get(label, 0.0) + pause_s


class QuotaUse:
    """What the clients that are measured together use of one quota. Any thread."""

    __slots__ = ("_bucket", "_label", "_lock", "_pause_s_max", "_throttles", "limit", "used_s")

    def __init__(
        self, label: tuple[str, str], burst_s: float, pause_s_max: float, throttles: _Throttles
    ) -> None:
        self._label = label
        self._lock = threading.Lock()
        self._bucket = TokenBucket(burst_s)
        self._pause_s_max = pause_s_max
        self._throttles = throttles
        self.limit = 0.0
        self.used_s = 0.0

    def add(self, amount: float, now_s: float) -> float:
        """Count `amount`; how long the client has to wait after it."""
        with self._lock:
            self.used_s = now_s
            pause_s = self._bucket.use(amount, self.limit, now_s)
        return self._throttled(pause_s) if pause_s > 0 else 0.0

    def add_if_allowed(self, amount: float, now_s: float) -> float:
        """Count `amount`, or how long to wait before it may be tried again."""
        with self._lock:
            self.used_s = now_s
            pause_s = self._bucket.use_if_allowed(amount, self.limit, now_s)
        return self._throttled(pause_s) if pause_s > 0 else 0.0

    def add_after_debt(self, amount: float, now_s: float) -> float:
        """Count `amount` if nothing is owed for earlier ones; else how long that takes."""
        with self._lock:
            self.used_s = now_s
            pause_s = self._bucket.wait_s(self.limit, now_s)
            if not pause_s:
                self._bucket.use(amount, self.limit, now_s)
        return self._throttled(pause_s) if pause_s > 0 else 0.0

    def give_back(self, amount: float) -> None:
        with self._lock:
            self._bucket.give_back(amount)

    def _throttled(self, pause_s: float) -> float:
        pause_s = min(pause_s, self._pause_s_max)
        self._throttles.add(self._label, pause_s)
        return pause_s


class Mutations:
    """The changes of one request under `controller_mutation_rate`, one after the other.

    Strict, for versions that know the error: a change is refused while earlier ones are not paid
    for. Otherwise every change is made, and the client is throttled.
    """

    __slots__ = ("_is_strict", "_now_s", "_use", "pause_s")

    def __init__(
        self, use: QuotaUse | None, now_s: Callable[[], float], *, is_strict: bool
    ) -> None:
        self._use = use
        self._now_s = now_s
        self._is_strict = is_strict
        self.pause_s = 0.0

    def count(self, partitions: int) -> None:
        """Before so many partitions are created or deleted. Raises `RefusedError` 89."""
        if self._use is None:
            return
        add = self._use.add_after_debt if self._is_strict else self._use.add
        pause_s = add(partitions, self._now_s())
        self.pause_s = max(self.pause_s, pause_s)
        if pause_s and self._is_strict:
            raise RefusedError(
                ErrorCode.throttling_quota_exceeded,
                f"the quota of {self._use.limit:g} created or deleted partitions per second is "
                f"used up; retry in {pause_s:.1f} s",
            )

    @property
    def throttle_ms(self) -> int:
        return to_ms(self.pause_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientRates:
    """The quotas of one client; None: not limited."""

    produce: QuotaUse | None
    fetch: QuotaUse | None
    requests: QuotaUse | None
    mutations: QuotaUse | None


def to_ms(pause_s: float) -> int:
    """As answers have it; a pause is never rounded to none."""
    return min(math.ceil(pause_s * 1000 - 1e-6) or 1, INT32_MAX) if pause_s > 0 else 0


class ClientQuotas:
    """The quotas of all users and client ids. Any thread."""

    def __init__(
        self, config: QuotaConfig | None = None, now_s: Callable[[], float] = time.monotonic
    ) -> None:
        config = config or QuotaConfig()
        self._now_s = now_s
        windows = RateWindows(config.quota_window_num, config.quota_window_size_seconds)
        mutations = RateWindows(
            config.controller_quota_window_num, config.controller_quota_window_size_seconds
        )
        self._burst_s = windows.burst_s
        # A slow request is one of many of its kind: it delays the client by one sample at most.
        self._request_pause_s_max = windows.sample_s
        self._mutation_burst_s = mutations.whole_s
        self._lock = threading.Lock()
        self._quotas: Quotas = {}
        self._throttles = _Throttles()
        self._uses: dict[tuple[str, Measured], QuotaUse] = {}
        self._clients: dict[tuple[str, str], ClientRates] = {}
        self.is_set = False  # whether any user or client id has a quota
        self.times_requests = False  # whether request_percentage is among them

    # --- the state ---------------------------------------------------------------------------

    def apply(self, state: SecurityState) -> bool:
        """Use the quotas of `state` from now on; whether they are others than before.

        What was used under a quota that has a new limit is not forgotten.
        """
        with self._lock:
            if state.quotas == self._quotas:
                return False
            self._quotas = state.quotas
            self._clients = {}
            self.is_set = has_client_limits(state.quotas)
            self.times_requests = any(
                QuotaKey.REQUEST_PERCENTAGE in limits for limits in state.quotas.values()
            )
            if not self.is_set:
                self._uses = {}
            return True

    def rates_of(self, user: str, client_id: str) -> ClientRates:
        # No quota has a longer name, and ten thousand of 32 KiB each would fill the memory.
        key = (user, client_id[:NAME_CHARACTERS_MAX])
        return self._clients.get(key) or self._find(key)

    def _find(self, key: tuple[str, str]) -> ClientRates:
        with self._lock:
            if len(self._uses) >= _TRACKED_MAX or len(self._clients) >= _TRACKED_MAX:
                self._forget_some()
            rates = ClientRates(
                produce=self._use(QuotaKey.PRODUCER_BYTE_RATE, key),
                fetch=self._use(QuotaKey.CONSUMER_BYTE_RATE, key),
                requests=self._use(QuotaKey.REQUEST_PERCENTAGE, key),
                mutations=self._use(QuotaKey.CONTROLLER_MUTATION_RATE, key),
            )
            self._clients[key] = rates
            return rates

    def _use(self, quota: QuotaKey, key: tuple[str, str]) -> QuotaUse | None:
        limit = find_limit(self._quotas, quota, *key)
        if limit is None:
            return None
        use = self._uses.get((quota, limit.measured))
        if use is None:
            is_mutation = quota is QuotaKey.CONTROLLER_MUTATION_RATE
            is_time = quota is QuotaKey.REQUEST_PERCENTAGE
            use = self._uses[quota, limit.measured] = QuotaUse(
                (quota.value, limit.measured.kind),
                self._mutation_burst_s if is_mutation else self._burst_s,
                self._request_pause_s_max if is_time else PAUSE_S_MAX,
                self._throttles,
            )
        use.limit, use.used_s = limit.value, self._now_s()
        return use

    def _forget_some(self) -> None:
        """Forget the quiet ones; if that is not enough, the less recently used half."""
        self._clients = {}
        oldest_s = self._now_s() - _QUIET_S
        kept = {at: use for at, use in self._uses.items() if use.used_s > oldest_s}
        if len(kept) > _TRACKED_MAX // 2:
            newest = sorted(kept.items(), key=lambda item: item[1].used_s)
            kept = dict(newest[-_TRACKED_MAX // 2 :])
        self._uses = kept

    # --- requests ----------------------------------------------------------------------------

    def produced(self, user: str, client_id: str, size: int) -> float:
        """A produce of `size` bytes came; how long its client has to wait."""
        use = self.rates_of(user, client_id).produce
        return 0.0 if use is None else use.add(size, self._now_s())

    def fetched(self, user: str, client_id: str, size: int) -> float:
        """Before `size` bytes are sent; if the client has to wait they are not, and not counted."""
        use = self.rates_of(user, client_id).fetch
        return 0.0 if use is None else use.add_if_allowed(size, self._now_s())

    def take_back_fetched(self, user: str, client_id: str, size: int) -> None:
        """What `fetched` counted was not sent after all."""
        use = self.rates_of(user, client_id).fetch
        if use is not None:
            use.give_back(size)

    def fetch_bytes_max(self, user: str, client_id: str) -> int | None:
        """What one answer may hold so that it is not over the quota by itself; None: no limit."""
        use = self.rates_of(user, client_id).fetch
        return None if use is None else max(int(use.limit * self._burst_s), 1)

    def took(self, user: str, client_id: str, handler_s: float) -> float:
        """A thread was busy with a request for so long; how long the client has to wait."""
        use = self.rates_of(user, client_id).requests
        return 0.0 if use is None else use.add(handler_s * 100, self._now_s())

    def mutations(self, user: str, client_id: str, *, is_strict: bool) -> Mutations:
        """Counts the changes of one request."""
        use = self.rates_of(user, client_id).mutations if self.is_set else None
        return Mutations(use, self._now_s, is_strict=is_strict)

    def view(self) -> QuotaCounts:
        throttles = self._throttles
        return QuotaCounts(
            throttled=dict(throttles.counts),
            throttled_s=dict(throttles.seconds),
            tracked=len(self._uses),
        )
