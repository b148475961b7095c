"""How fast clients may connect: to the broker, to a listener, and from one address.

A client beyond the rate of the broker or of its listener waits in the system's backlog. A client
beyond the rate of its address waits, accepted but not read, until its turn comes. It is refused if
that would take long, or if too many wait.
"""

import time
from collections.abc import Callable
from typing import Final

from cordwood.broker.config.access_config import QuotaConfig
from cordwood.quantities import INT32_MAX
from cordwood.security.quotas.quota_rates import RateWindows, TokenBucket
from cordwood.security.quotas.quota_rules import Quotas, canonical_address, find_ip_limit
from cordwood.security.security_state import SecurityState

_ADDRESSES_MAX: Final = 10_000
_BROKER: Final = ""


class ConnectionRates:
    """Belongs to the thread that accepts clients, except for `apply`."""

    def __init__(
        self, config: QuotaConfig | None = None, now_s: Callable[[], float] = time.monotonic
    ) -> None:
        config = config or QuotaConfig()
        windows = RateWindows(config.quota_window_num, config.quota_window_size_seconds)
        self._burst_s = windows.burst_s
        self._now_s = now_s
        self._quotas: Quotas = {}
        self._has_addresses = False
        self._listeners: dict[str, TokenBucket] = {}
        self._addresses: dict[str, TokenBucket] = {}  # the least recently seen first
        self.delayed = 0  # connections that had to wait, since the start

    def apply(self, state: SecurityState) -> None:
        """Use the quotas of `state` from now on. Any thread."""
        self._quotas = state.quotas
        self._has_addresses = any(entity.ip is not None for entity in state.quotas)

    def accept_wait_s(self, listener: str, *, broker_limit: int, listener_limit: int) -> float:
        """How long to wait before the next client is accepted; 0: one may be, and is counted."""
        wanted = [
            (name, limit)
            for name, limit in ((_BROKER, broker_limit), (listener, listener_limit))
            if limit < INT32_MAX
        ]
        if not wanted:
            return 0.0
        now_s = self._now_s()
        buckets = [(self._listener(name), float(limit)) for name, limit in wanted]
        wait_s = max(bucket.wait_s(limit, now_s) for bucket, limit in buckets)
        if wait_s:
            self.delayed += 1
            return wait_s
        for bucket, limit in buckets:
            bucket.use(1, limit, now_s)
        return 0.0

    def address_wait_s(self, address: str, wait_s_max: float) -> float | None:
        """How long a client from there waits for its turn; None: too long, and it is refused."""
        if not self._has_addresses:
            return 0.0
        address = canonical_address(address)
        limit = find_ip_limit(self._quotas, address)
        if limit is None:
            return 0.0
        bucket = self._addresses.pop(address, None)
        if bucket is None:
            while len(self._addresses) >= _ADDRESSES_MAX:
                del self._addresses[next(iter(self._addresses))]
            bucket = TokenBucket(self._burst_s)
        self._addresses[address] = bucket
        wait_s = bucket.use(1, limit, self._now_s())
        if wait_s > wait_s_max:
            bucket.give_back(1)
            return None
        if wait_s:
            self.delayed += 1
        return wait_s

    def _listener(self, name: str) -> TokenBucket:
        return self._listeners.setdefault(name, TokenBucket(self._burst_s))
