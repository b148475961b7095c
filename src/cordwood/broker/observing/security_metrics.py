"""Metrics of quotas and of the audit log. Labels are few, whatever names clients have."""

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from cordwood.broker.observing.observed_broker import ObservedBroker

_LABELS = ("quota", "measured")  # the key; user, client-id or user-client-id


class SecurityCollector(Collector):
    """What was throttled, and what was audited."""

    def __init__(self, broker: ObservedBroker) -> None:
        self._broker = broker

    def describe(self) -> Iterator[Metric]:
        return iter(())

    def collect(self) -> Iterator[Metric]:
        if self._broker.limits is not None:
            yield from self._quotas()
        if self._broker.audit is not None:
            yield from self._audit()

    def _quotas(self) -> Iterator[Metric]:
        limits = self._broker.limits
        assert limits is not None
        counts = limits.quotas()
        throttled = CounterMetricFamily(
            "cordwood_throttled_requests",
            "Requests whose client had to wait because of a quota.",
            labels=_LABELS,
        )
        for labels, count in sorted(counts.throttled.items()):
            throttled.add_metric(labels, count)
        yield throttled
        seconds = CounterMetricFamily(
            "cordwood_throttle_seconds",
            "Time that clients had to wait because of quotas.",
            labels=_LABELS,
        )
        for labels, total_s in sorted(counts.throttled_s.items()):
            seconds.add_metric(labels, total_s)
        yield seconds
        yield GaugeMetricFamily(
            "cordwood_quota_entities",
            "Users and client ids whose use of a quota is measured.",
            counts.tracked,
        )
        yield GaugeMetricFamily(
            "cordwood_muted_connections",
            "Connections that are not read for now, because of a quota.",
            limits.muted_connections(),
        )
        yield CounterMetricFamily(
            "cordwood_connections_delayed",
            "Connections that had to wait because of a limit on new connections.",
            limits.delayed_connections(),
        )

    def _audit(self) -> Iterator[Metric]:
        audit = self._broker.audit
        assert audit is not None
        counts = audit()
        yield CounterMetricFamily(
            "cordwood_audit_events_written", "Events in the audit log.", counts.written
        )
        yield CounterMetricFamily(
            "cordwood_audit_events_dropped",
            "Events that are missing from a target of the audit log: it failed, or was too slow.",
            counts.dropped,
        )
        yield CounterMetricFamily(
            "cordwood_audit_events_left_out",
            "Events that were left out because there were many of their kind.",
            counts.left_out,
        )
