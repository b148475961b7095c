"""The clients that may send metrics: their subscriptions, and how often they may come. Pure.

A client asks for its subscription (GetTelemetrySubscriptions), then sends metrics with the id of
that subscription every `interval.ms` (PushTelemetry). If subscriptions change, the id changes: the
next push is refused with UNKNOWN_SUBSCRIPTION_ID, and the client asks again.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import Final
from uuid import UUID

from cordwood.broker.telemetry.subscription import ALL_METRICS, ClientFacts, Subscription
from cordwood.checksums import crc32c
from cordwood.format.compression import Codec
from cordwood.protocol.error_code import ErrorCode
from cordwood.value_class import dataclass

# Clients that are remembered; the one that was not heard of for the longest time gives way.
INSTANCES_MAX: Final = 4096
_INTERVAL_MS_DEFAULT: Final = 300_000
_EXPIRY_MS_MIN: Final = 60_000
_EXPIRY_INTERVALS: Final = 3
_NO_ID: Final = UUID(int=0)
_RESERVED_IDS: Final = frozenset({_NO_ID, UUID(int=1)})
# In order of preference: librdkafka and Java take the first that they know.
ACCEPTED_CODECS: Final = (Codec.ZSTD, Codec.LZ4, Codec.GZIP, Codec.SNAPPY)
# After these, the client asks again at once.
_ASKS_AGAIN: Final = frozenset(
    {ErrorCode.unknown_subscription_id, ErrorCode.unsupported_compression_type}
)


@dataclass(slots=True, kw_only=True)
class ClientInstance:
    """One client. Owned by `ClientInstances`."""

    facts: ClientFacts
    version: int  # of the subscriptions that it was compared with
    subscription_id: int
    metrics: Sequence[str]
    interval_ms: int
    asked_ms: int | None = None
    pushed_ms: int | None = None
    expires_ms: int = 0
    is_terminating: bool = False
    last_error: ErrorCode = ErrorCode.none


class ClientInstances:
    """Not for several threads at once: its owner has a lock."""

    def __init__(self, new_id: Callable[[], UUID]) -> None:
        self._new_id = new_id
        self._subscriptions: tuple[Subscription, ...] = ()
        self._version = 0
        self._instances: OrderedDict[UUID, ClientInstance] = OrderedDict()

    def __len__(self) -> int:
        return len(self._instances)

    def __contains__(self, instance_id: UUID) -> bool:
        return instance_id in self._instances

    def subscribe(self, subscriptions: Iterable[Subscription]) -> None:
        """These are all subscriptions from now on."""
        self._subscriptions = tuple(subscriptions)
        self._version += 1

    def ask(
        self, wanted_id: UUID, facts_of: Callable[[UUID], ClientFacts], now_ms: int
    ) -> tuple[UUID, ClientInstance, ErrorCode]:
        """A client asks for its subscription. An id of 0 means that it gets one."""
        instance_id = self._new_id() if wanted_id == _NO_ID else wanted_id
        instance = self._instance(instance_id, facts_of, now_ms)
        came_ms = max(instance.asked_ms or 0, instance.pushed_ms or 0)
        is_first = instance.asked_ms is None and instance.pushed_ms is None
        if (
            not is_first
            and now_ms - came_ms < instance.interval_ms
            and instance.last_error not in _ASKS_AGAIN
        ):
            return instance_id, instance, ErrorCode.throttling_quota_exceeded
        instance.asked_ms = now_ms
        instance.last_error = ErrorCode.none
        return instance_id, instance, ErrorCode.none

    def push(
        self,
        instance_id: UUID,
        facts_of: Callable[[UUID], ClientFacts],
        *,
        subscription_id: int,
        codec: int,
        is_terminating: bool,
        now_ms: int,
    ) -> tuple[ClientInstance | None, ErrorCode]:
        """A client wants to send metrics."""
        if instance_id in _RESERVED_IDS:
            return None, ErrorCode.invalid_request
        instance = self._instance(instance_id, facts_of, now_ms)
        code = self._judge(instance, subscription_id, codec, now_ms, is_terminating=is_terminating)
        instance.is_terminating = instance.is_terminating or is_terminating
        instance.last_error = code
        return instance, code

    def _judge(
        self,
        instance: ClientInstance,
        subscription_id: int,
        codec: int,
        now_ms: int,
        *,
        is_terminating: bool,
    ) -> ErrorCode:
        if instance.is_terminating:
            return ErrorCode.invalid_request  # it said before that it sends no more
        # A client waits for half to one and a half intervals before its first push.
        is_first = instance.pushed_ms is None or (instance.asked_ms or 0) > instance.pushed_ms
        elapsed_ms = now_ms - (instance.pushed_ms or 0)
        if not is_terminating and not is_first and elapsed_ms < instance.interval_ms:
            return ErrorCode.throttling_quota_exceeded
        instance.pushed_ms = now_ms
        if subscription_id != instance.subscription_id:
            return ErrorCode.unknown_subscription_id
        if codec not in (Codec.NONE, *ACCEPTED_CODECS):
            return ErrorCode.unsupported_compression_type
        return ErrorCode.none

    def expired(self, now_ms: int) -> list[UUID]:
        """Forget the clients that were not heard of for too long, and say which."""
        gone = [key for key, each in self._instances.items() if each.expires_ms <= now_ms]
        for key in gone:
            del self._instances[key]
        return gone

    def _instance(
        self, instance_id: UUID, facts_of: Callable[[UUID], ClientFacts], now_ms: int
    ) -> ClientInstance:
        instance = self._instances.get(instance_id)
        if instance is None or instance.version != self._version:
            facts = facts_of(instance_id) if instance is None else instance.facts
            fresh = self._compared(instance_id, facts)
            if instance is not None:
                fresh.is_terminating = instance.is_terminating
                fresh.last_error = instance.last_error
            instance = self._instances[instance_id] = fresh
        instance.expires_ms = now_ms + max(_EXPIRY_MS_MIN, _EXPIRY_INTERVALS * instance.interval_ms)
        self._instances.move_to_end(instance_id)
        while len(self._instances) > INSTANCES_MAX:
            self._instances.popitem(last=False)
        return instance

    def _compared(self, instance_id: UUID, facts: ClientFacts) -> ClientInstance:
        matching = [each for each in self._subscriptions if each.matches(facts)]
        metrics = sorted(set().union(*(each.metrics for each in matching)))
        if ALL_METRICS in metrics:
            metrics = [ALL_METRICS]
        interval_ms = min([_INTERVAL_MS_DEFAULT, *(each.interval_ms for each in matching)])
        checksum = crc32c(f"{metrics}{interval_ms}".encode()) ^ (instance_id.int & 0xFFFFFFFF)
        return ClientInstance(
            facts=facts,
            version=self._version,
            subscription_id=checksum - (1 << 32) if checksum >> 31 else checksum,
            metrics=metrics,
            interval_ms=interval_ms,
        )
