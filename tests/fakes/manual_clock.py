"""A clock that stands still until a test moves it."""

from cordwood.quantities import TimestampMs

START_MS = 1_700_000_000_000


class ManualClock:
    """Wall time may be set to anything; the monotonic clock only follows steps forward."""

    def __init__(self, start_ms: int = START_MS) -> None:
        self._now_ms = start_ms
        self._monotonic_ms = 0

    def now_ms(self) -> TimestampMs:
        return TimestampMs(self._now_ms)

    def monotonic(self) -> float:
        return self._monotonic_ms / 1000

    def advance(self, ms: int) -> None:
        """Let time pass on both clocks."""
        assert ms >= 0, ms
        self._now_ms += ms
        self._monotonic_ms += ms

    def set(self, ms: int) -> None:
        """Set the wall clock, as an operator would; the monotonic clock does not notice."""
        self._now_ms = ms
