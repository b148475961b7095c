"""What clients have sent, as it is shown: bounded in clients, series and names; old values expire.

Invariant: at most `SERIES_MAX` series in all, `SERIES_OF_CLIENT_MAX` of one client, `NAMES_MAX`
names. What is beyond a limit is left out and counted, and what was there before stays.
"""

import re
import threading
import time
from collections.abc import Callable, Iterable
from typing import Final
from uuid import UUID

from cordwood.broker.telemetry.client_instances import ClientInstance, ClientInstances
from cordwood.broker.telemetry.otlp_metrics import Point, decode_metrics
from cordwood.broker.telemetry.subscription import ClientFacts, Subscription
from cordwood.errors import FormatError, LimitExceededError, UnsupportedFormatError
from cordwood.format.compression import decompress
from cordwood.protocol.error_code import ErrorCode
from cordwood.value_class import dataclass

SERIES_MAX: Final = 20_000
SERIES_OF_CLIENT_MAX: Final = 1000
NAMES_MAX: Final = 1000
# Metrics are texts that repeat: they compress well, but not without end.
_INFLATION_MAX: Final = 8

_KAFKA_PREFIX: Final = "org.apache.kafka."
_PREFIX: Final = "kafka_client_"
_NOT_IN_NAMES: Final = re.compile(r"[^a-zA-Z0-9_]+")
_COUNTER_SUFFIX: Final = "_total"
_OURS: Final = frozenset({"client_id", "client_instance_id"})

Labels = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One value of one client. Counters end with ``_total``."""

    name: str
    labels: Labels
    value: float
    is_counter: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientView:
    """A client and its series, at one moment."""

    facts: ClientFacts
    series: tuple[Series, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TelemetryCounts:
    """What clients sent, since the start. `refused` is by error."""

    instances: int
    pushes: int
    left_out: int
    refused: dict[ErrorCode, int]


class ClientMetrics:
    """The clients of a broker and their metrics. Any thread may call it."""

    def __init__(
        self,
        *,
        bytes_max: int,
        new_id: Callable[[], UUID],
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self.bytes_max = bytes_max
        self._now_s = now_s
        self._lock = threading.Lock()
        self._instances = ClientInstances(new_id)
        self._series: dict[UUID, dict[tuple[str, Labels], Series]] = {}
        self._facts: dict[UUID, ClientFacts] = {}
        self._names: dict[str, int] = {}  # how many series have it
        self._count = 0
        self._pushes = 0
        self._left_out = 0
        self._refused: dict[ErrorCode, int] = {}

    def subscribe(self, subscriptions: Iterable[Subscription]) -> None:
        """These are all subscriptions from now on."""
        with self._lock:
            self._instances.subscribe(subscriptions)

    def ask(
        self, wanted_id: UUID, facts_of: Callable[[UUID], ClientFacts]
    ) -> tuple[UUID, ClientInstance, ErrorCode]:
        """A client asks what to send. See `ClientInstances.ask`."""
        with self._lock:
            self._expire()
            found = self._instances.ask(wanted_id, facts_of, self._now_ms())
            return found[0], found[1], self._counted(found[2])

    def push(
        self,
        instance_id: UUID,
        facts_of: Callable[[UUID], ClientFacts],
        *,
        subscription_id: int,
        codec: int,
        is_terminating: bool,
        metrics: bytes,
    ) -> ErrorCode:
        """A client sends metrics. They are decoded without the lock."""
        with self._lock:
            self._expire()
            instance, code = self._instances.push(
                instance_id,
                facts_of,
                subscription_id=subscription_id,
                codec=codec,
                is_terminating=is_terminating,
                now_ms=self._now_ms(),
            )
            if code is ErrorCode.none and len(metrics) > self.bytes_max:
                code = ErrorCode.telemetry_too_large
            if code is not ErrorCode.none or instance is None:
                return self._counted(code)
            facts = instance.facts
        try:
            data = decompress(codec, metrics, limit=self.bytes_max * _INFLATION_MAX)
            decoded = decode_metrics(data)
        except LimitExceededError:
            return self._refuse(ErrorCode.telemetry_too_large)
        except UnsupportedFormatError:
            return self._refuse(ErrorCode.unsupported_compression_type)
        except FormatError:
            return self._refuse(ErrorCode.invalid_record)
        with self._lock:
            self._pushes += 1
            self._left_out += decoded.left_out
            self._facts[instance_id] = facts
            self._take_in(instance_id, decoded.points)
        return ErrorCode.none

    def view(self) -> list[ClientView]:
        """All clients with what they sent last."""
        with self._lock:
            self._expire()
            return [
                ClientView(facts=self._facts[key], series=tuple(series.values()))
                for key, series in self._series.items()
            ]

    def counts(self) -> TelemetryCounts:
        """How much came, and how much was refused."""
        with self._lock:
            return TelemetryCounts(
                instances=len(self._instances),
                pushes=self._pushes,
                left_out=self._left_out,
                refused=dict(self._refused),
            )

    def _take_in(self, instance_id: UUID, points: Iterable[Point]) -> None:
        """Replace the values of a client; deltas are added up. Holds the lock."""
        mine = self._series.setdefault(instance_id, {})
        for point in points:
            name = shown_name(point.name, is_counter=point.is_counter)
            labels = _labels(point)
            before = mine.get((name, labels))
            if before is None and not self._has_room(name, len(mine)):
                self._left_out += 1
                continue
            value = point.value
            if before is None:
                self._count += 1
                self._names[name] = self._names.get(name, 0) + 1
            elif point.is_delta:
                value += before.value
            mine[name, labels] = Series(
                name=name, labels=labels, value=value, is_counter=point.is_counter
            )

    def _has_room(self, name: str, count_of_client: int) -> bool:
        return (
            self._count < SERIES_MAX
            and count_of_client < SERIES_OF_CLIENT_MAX
            and (name in self._names or len(self._names) < NAMES_MAX)
        )

    def _expire(self) -> None:
        """Forget clients that are gone, with their series. Holds the lock."""
        self._instances.expired(self._now_ms())
        for key in [key for key in self._series if key not in self._instances]:
            for name, _ in self._series.pop(key):
                self._count -= 1
                self._names[name] -= 1
                if not self._names[name]:
                    del self._names[name]
            self._facts.pop(key, None)

    def _refuse(self, code: ErrorCode) -> ErrorCode:
        with self._lock:
            return self._counted(code)

    def _counted(self, code: ErrorCode) -> ErrorCode:
        if code is not ErrorCode.none:
            self._refused[code] = self._refused.get(code, 0) + 1
        return code

    def _now_ms(self) -> int:
        return int(self._now_s() * 1000)


def shown_name(name: str, *, is_counter: bool) -> str:
    """``org.apache.kafka.producer.node.request.latency.avg`` in Prometheus' way."""
    shown = _PREFIX + _NOT_IN_NAMES.sub("_", name.removeprefix(_KAFKA_PREFIX)).strip("_")
    if is_counter and not shown.endswith(_COUNTER_SUFFIX):
        shown += _COUNTER_SUFFIX
    return shown


def _labels(point: Point) -> Labels:
    labels: dict[str, str] = {}
    for key, value in point.attributes:
        name = _NOT_IN_NAMES.sub("_", key).strip("_") or "attribute"
        if name[0].isdigit():
            name = f"_{name}"
        if name not in _OURS:
            labels.setdefault(name, value)
    return tuple(sorted(labels.items()))
