"""Metrics of a broker in Prometheus' text format, computed for each scrape.

Nothing is kept for them beside what `request_metrics` counts: offsets, sizes and lags are read
from the store at the moment of asking. Names are those of kafka_exporter where it has one, so
that dashboards and alerts made for it work; the others begin with ``cordwood_``.

Importing this module imports `prometheus_client`: do so only where metrics are served.
"""

import platform
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from typing import Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.gc_collector import GCCollector
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from cordwood.broker.observing.client_collector import ClientCollector
from cordwood.broker.observing.cluster_metrics import ClusterCollector
from cordwood.broker.observing.observed_broker import GroupFacts, ObservedBroker
from cordwood.broker.observing.security_metrics import SecurityCollector
from cordwood.broker.observing.store_metrics import StoreCollector, add_histogram
from cordwood.format import batch_scan
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.log.topics.topic import Topic
from cordwood.protocol.api_catalog import KNOWN_APIS
from cordwood.protocol.error_code import ErrorCode

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

_PARTITION: Final = ("topic", "partition")
_GROUP_PARTITION: Final = ("consumergroup", "topic", "partition")


class BrokerMetrics:
    """All metrics of a broker. Any thread may call it; calls are served one at a time."""

    def __init__(self, broker: ObservedBroker) -> None:
        self._registry = CollectorRegistry()
        self._lock = threading.Lock()
        self._ours = (
            TopicCollector(broker),
            GroupCollector(broker),
            RequestCollector(broker),
            SecurityCollector(broker),
            ClusterCollector(broker),
            StoreCollector(broker.store, transactions=broker.transactions),
            TlsCollector(broker),
            ClientCollector(broker),
        )
        for collector in self._ours:
            self._registry.register(collector)
        ProcessCollector(registry=self._registry)
        GCCollector(registry=self._registry)

    def render(self) -> bytes:
        """All metrics, in the text format."""
        with self._lock:
            return generate_latest(self._registry)

    def collect(self) -> list[Metric]:
        """All metrics, as values."""
        with self._lock:
            return list(self._registry.collect())

    def described(self) -> list[tuple[str, str, str]]:
        """Name, kind and description of each of our metrics."""
        return [
            (_sample_name(metric), metric.type, metric.documentation)
            for collector in self._ours
            for metric in collector.collect()
        ]


class _Unregistered(Collector):
    """A collector that is not read when it is registered, only by a scraper."""

    def describe(self) -> Iterator[Metric]:
        return iter(())


class RequestCollector(_Unregistered):
    """Requests, errors, bytes and connections of clients."""

    def __init__(self, broker: ObservedBroker) -> None:
        self._broker = broker

    def collect(self) -> Iterator[Metric]:
        counts = self._broker.requests.view()
        latencies = HistogramMetricFamily(
            "cordwood_request_duration_seconds",
            "Time from a request's arrival to its answer, including the wait for records.",
            labels=["api"],
        )
        for api_key, seen in sorted(counts.latencies.items()):
            add_histogram(latencies, [api_name(api_key)], seen)
        yield latencies
        errors = CounterMetricFamily(
            "cordwood_request_errors", "Answers that carried an error.", labels=["api", "error"]
        )
        for (api_key, code), count in sorted(counts.errors.items()):
            errors.add_metric([api_name(api_key), error_name(code)], count)
        yield errors
        yield _counter("cordwood_received_bytes", "Bytes from clients.", counts.bytes_received)
        yield _counter("cordwood_sent_bytes", "Bytes to clients.", counts.bytes_sent)
        yield _counter(
            "cordwood_connections_accepted",
            "Connections that were accepted.",
            counts.connections_accepted,
        )
        yield _counter(
            "cordwood_connections_refused",
            "Connections that were closed at once, because of a limit.",
            counts.connections_refused,
        )
        attempts = CounterMetricFamily(
            "cordwood_authentications",
            "Clients that authenticated, failed to, or did not authenticate again in time.",
            labels=["listener", "mechanism", "result"],
        )
        for labels, count in sorted(self._broker.authentications.view().items()):
            attempts.add_metric(labels, count)
        yield attempts
        yield _gauge("cordwood_connections", "Open connections.", self._broker.connection_count())
        yield _gauge(
            "cordwood_insecure_listeners",
            "Listeners that other machines reach without authentication.",
            len(self._broker.insecure_listeners),
        )
        yield _counter(
            "cordwood_fetches_past_lost_records",
            "Fetches of records that are lost, answered with the records behind them.",
            self._broker.lost_fetch_count(),
        )


class TlsCollector(_Unregistered):
    """Certificates of listeners, and clients whose handshake failed."""

    def __init__(self, broker: ObservedBroker) -> None:
        self._broker = broker

    def collect(self) -> Iterator[Metric]:
        expiry = GaugeMetricFamily(
            "cordwood_tls_certificate_expiry_seconds",
            "Time until the certificate of a listener expires; negative: it has expired.",
            labels=["listener"],
        )
        now = datetime.now(UTC)
        for name, listener in sorted(self._broker.tls.items()):
            left = listener.certificate.not_after - now
            expiry.add_metric([name], left.total_seconds())
        yield expiry
        yield _counter(
            "cordwood_tls_handshakes_failed",
            "Connections that were closed before their TLS handshake was over.",
            self._broker.requests.view().handshakes_failed,
        )


class TopicCollector(_Unregistered):
    """The broker, its topics and their partitions."""

    def __init__(self, broker: ObservedBroker) -> None:
        self._broker = broker

    def collect(self) -> Iterator[Metric]:
        broker = self._broker
        yield _gauge("kafka_brokers", "Brokers in the cluster.", 1)
        address = GaugeMetricFamily(
            "kafka_broker_info", "The address of a broker.", labels=["id", "address"]
        )
        host, port = broker.address
        address.add_metric([str(broker.config.node_id), f"{host}:{port}"], 1)
        yield address
        build = InfoMetricFamily("cordwood_build", "Version and build of the broker.")
        facts = {"version": _version(), "python": platform.python_version()}
        build.add_metric([], facts | {"kernels": "compiled" if batch_scan.COMPILED else "plain"})
        yield build
        store = broker.store
        topics = [store.topic(name) for name in store.topics(include_internal=True)]
        yield from self._topic_families(topics)
        yield from self._partition_families(topics)

    def _topic_families(self, topics: list[Topic[PartitionLog]]) -> Iterator[Metric]:
        counts = GaugeMetricFamily(
            "kafka_topic_partitions", "Partitions of a topic.", labels=["topic"]
        )
        facts = GaugeMetricFamily(
            "cordwood_topic_info",
            "The durability and the cleanup policy of a topic.",
            labels=["topic", "durability", "cleanup_policy"],
        )
        for topic in topics:
            counts.add_metric([topic.name], topic.partition_count)
            config = topic.config
            facts.add_metric([topic.name, config.durability, ",".join(config.cleanup_policy)], 1)
        yield counts
        yield facts

    def _partition_families(self, topics: list[Topic[PartitionLog]]) -> Iterator[Metric]:
        families = {
            name: GaugeMetricFamily(name, text, labels=_PARTITION)
            for name, text in _PARTITION_METRICS.items()
        }
        node_id = self._broker.config.node_id
        for topic in topics:
            for number in range(topic.partition_count):
                log = topic.opened(number)
                values = (
                    _values_without_records(node_id)
                    if log is None and topic.has_partition(number)
                    else _partition_values(log, node_id)
                )
                labels = [topic.name, str(number)]
                for name, value in values.items():
                    families[name].add_metric(labels, value)
        yield from families.values()


_PARTITION_METRICS: Final = {
    "kafka_topic_partition_current_offset": "The offset after the last readable record.",
    "kafka_topic_partition_oldest_offset": "The first offset that can be read.",
    "kafka_topic_partition_leader": "The broker that leads a partition; -1: it is offline.",
    "kafka_topic_partition_leader_is_preferred": "1 if the preferred broker leads.",
    "kafka_topic_partition_replicas": "Copies of a partition.",
    "kafka_topic_partition_in_sync_replica": "Copies of a partition that are up to date.",
    "kafka_topic_partition_under_replicated_partition": "1 if a partition lacks a copy.",
    "cordwood_log_end_offset": "The offset that the next record will get.",
    "cordwood_log_durable_offset": "Records before this offset were synced to the disk.",
    "cordwood_log_segments": "Local segments of a partition.",
    "cordwood_log_size_bytes": "Size of the local log files of a partition.",
}


def _values_without_records(node_id: int) -> dict[str, int]:
    """The values of a partition that is not open, because it never had records."""
    return dict.fromkeys(_PARTITION_METRICS, 0) | {
        "kafka_topic_partition_leader": node_id,
        "kafka_topic_partition_leader_is_preferred": 1,
        "kafka_topic_partition_replicas": 1,
        "kafka_topic_partition_in_sync_replica": 1,
    }


def _partition_values(log: PartitionLog | None, node_id: int) -> dict[str, int]:
    is_online = log is not None and not log.is_closed and log.state.failure is None
    values = {
        "kafka_topic_partition_leader": node_id if log is not None else -1,
        "kafka_topic_partition_leader_is_preferred": int(log is not None),
        "kafka_topic_partition_replicas": 1,
        "kafka_topic_partition_in_sync_replica": int(is_online),
        "kafka_topic_partition_under_replicated_partition": int(not is_online),
    }
    if log is None:
        return values
    segments = log.state.segments
    return values | {
        "kafka_topic_partition_current_offset": log.high_watermark,
        "kafka_topic_partition_oldest_offset": log.archive.known_start_offset,
        "cordwood_log_end_offset": log.end_offset,
        "cordwood_log_durable_offset": log.state.durable,
        "cordwood_log_segments": len(segments),
        "cordwood_log_size_bytes": segments.size,
    }


class GroupCollector(_Unregistered):
    """Consumer groups: their members, offsets and lag."""

    def __init__(self, broker: ObservedBroker) -> None:
        self._broker = broker

    def collect(self) -> Iterator[Metric]:
        members = GaugeMetricFamily(
            "kafka_consumergroup_members", "Members of a group.", labels=["consumergroup"]
        )
        states = GaugeMetricFamily(
            "cordwood_consumergroup_info",
            "The kind and state of a group.",
            labels=["consumergroup", "kind", "state"],
        )
        current = GaugeMetricFamily(
            "kafka_consumergroup_current_offset",
            "The offset that a group reads next in a partition.",
            labels=_GROUP_PARTITION,
        )
        current_sum = GaugeMetricFamily(
            "kafka_consumergroup_current_offset_sum",
            "The sum over the partitions of a topic.",
            labels=["consumergroup", "topic"],
        )
        lag = GaugeMetricFamily(
            "kafka_consumergroup_lag",
            "Records between the committed offset and the end of a partition.",
            labels=_GROUP_PARTITION,
        )
        lag_sum = GaugeMetricFamily(
            "kafka_consumergroup_lag_sum",
            "The sum over the partitions of a topic.",
            labels=["consumergroup", "topic"],
        )
        for facts in self._broker.groups():
            members.add_metric([facts.group], facts.member_count)
            states.add_metric([facts.group, facts.kind, facts.state], 1)
            sums: dict[str, tuple[int, int]] = {}
            for topic, partition, offset, behind in self._positions(facts):
                labels = [facts.group, topic, str(partition)]
                current.add_metric(labels, offset)
                lag.add_metric(labels, behind)
                offsets, lags = sums.get(topic, (0, 0))
                sums[topic] = (offsets + offset, lags + behind)
            for topic, (offsets, lags) in sums.items():
                current_sum.add_metric([facts.group, topic], offsets)
                lag_sum.add_metric([facts.group, topic], lags)
        yield from (members, states, current, current_sum, lag, lag_sum)

    def _positions(self, facts: GroupFacts) -> Iterator[tuple[str, int, int, int]]:
        """(topic, partition, committed, lag) of each partition that exists, in order."""
        for (name, number), offset in sorted(facts.committed.items()):
            topic = self._broker.store.registry.find(name)
            if topic is not None and topic.has_partition(number):
                log = topic.opened(number)
                end = 0 if log is None else log.high_watermark
                yield name, number, offset, max(end - offset, 0)


def _sample_name(metric: Metric) -> str:
    """The name in queries: samples of counters and infos have a suffix."""
    ending = {"counter": "_total", "info": "_info"}.get(metric.type, "")
    return metric.name + ending


def api_name(api_key: int) -> str:
    api = KNOWN_APIS.get(api_key)
    return str(api_key) if api is None else api.name


def error_name(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return str(code)


def _version() -> str:
    try:
        return version("cordwood")
    except PackageNotFoundError:  # run from a source tree
        return "unknown"


def _gauge(name: str, text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, text, value=value)


def _counter(name: str, text: str, value: float) -> CounterMetricFamily:
    return CounterMetricFamily(name, text, value=value)
