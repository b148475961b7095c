"""The broker's metrics, sent to an OpenTelemetry collector (OTLP over HTTP).

The list is that of /metrics. A thread of its own collects them every `otel.interval.ms` and sends
them; a collector that is slow or gone delays this thread alone. Nothing is queued: what could not
be sent is not sent later, because the next values say more. Counters are cumulative, so no count
is lost.

Importing this module imports the OpenTelemetry SDK: do so only where metrics are sent.
"""

import logging
import threading
import time
from collections.abc import Iterable, Iterator
from typing import Final

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricExportResult,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from prometheus_client.core import Metric as Family

from cordwood.broker.observing.metrics import BrokerMetrics

logger = logging.getLogger(__name__)

_TIMEOUT_S: Final = 10.0
_METRICS_PATH: Final = "/v1/metrics"
_CREATED: Final = "_created"
_NS: Final = 1_000_000_000


class OtelExport:
    """Sends metrics until it is stopped. `start` and `stop` are for the broker's owner."""

    def __init__(
        self, metrics: BrokerMetrics, endpoint: str, *, interval_s: float, instance: str
    ) -> None:
        """`endpoint` is the collector's base address; `instance` names this broker."""
        self._metrics = metrics
        self._url = endpoint.rstrip("/") + _METRICS_PATH
        self._interval_s = interval_s
        self._resource = Resource.create(
            {"service.name": "cordwood", "service.instance.id": instance}
        )
        # Headers, certificates and compression: the OTEL_EXPORTER_OTLP_ variables.
        self._exporter = OTLPMetricExporter(endpoint=self._url, timeout=_TIMEOUT_S)
        # It logs every failure, several times; this thread says it once.
        logging.getLogger("opentelemetry.exporter.otlp").setLevel(logging.CRITICAL)
        self._is_stopping = threading.Event()
        self._is_failing = False
        self._begun_ns = time.time_ns()
        self._thread = threading.Thread(target=self._run, name="cordwood-otel", daemon=True)

    def start(self) -> None:
        """Begin to send."""
        self._thread.start()
        logger.info("sending metrics to %s every %g s", self._url, self._interval_s)

    def stop(self, timeout_s: float) -> None:
        """Send the last values and end, or give up after `timeout_s`."""
        self._is_stopping.set()
        self._thread.join(timeout_s)
        self._exporter.shutdown(timeout_millis=0)  # ends a wait between two tries

    def _run(self) -> None:
        while True:
            is_last = self._is_stopping.wait(self._interval_s)
            self.send()
            if is_last:
                return

    def send(self) -> bool:
        """Collect and send once. A failure is logged if the time before was a success."""
        try:
            data = metrics_data(
                self._metrics.collect(), self._resource, self._begun_ns, time.time_ns()
            )
            is_sent = self._exporter.export(data) is MetricExportResult.SUCCESS
            reason = "it was not reached, or refused"
        except Exception as error:
            is_sent, reason = False, repr(error)
        if is_sent and self._is_failing:
            logger.info("%s takes metrics again", self._url)
        elif not is_sent and not self._is_failing:
            logger.warning("cannot send metrics to %s: %s; trying again", self._url, reason)
        self._is_failing = not is_sent
        return is_sent


def metrics_data(
    families: Iterable[Family], resource: Resource, begun_ns: int, now_ns: int
) -> MetricsData:
    """The families of Prometheus as OpenTelemetry's metrics."""
    scope = ScopeMetrics(
        scope=InstrumentationScope("cordwood"),
        metrics=[
            Metric(
                name=family.name,
                description=family.documentation,
                unit=family.unit,
                data=_data(family, begun_ns, now_ns),
            )
            for family in families
            if family.samples
        ],
        schema_url="",
    )
    return MetricsData(
        resource_metrics=[ResourceMetrics(resource=resource, scope_metrics=[scope], schema_url="")]
    )


def _data(family: Family, begun_ns: int, now_ns: int) -> Sum | Gauge | Histogram:
    if family.type == "histogram":
        return Histogram(
            data_points=list(_histogram_points(family, begun_ns, now_ns)),
            aggregation_temporality=AggregationTemporality.CUMULATIVE,
        )
    points = [
        NumberDataPoint(
            attributes=dict(sample.labels),
            start_time_unix_nano=begun_ns if family.type == "counter" else 0,
            time_unix_nano=now_ns,
            value=float(sample.value),  # a series keeps one type
        )
        for sample in family.samples
        if not sample.name.endswith(_CREATED)
    ]
    if family.type == "counter":
        return Sum(
            data_points=points,
            aggregation_temporality=AggregationTemporality.CUMULATIVE,
            is_monotonic=True,
        )
    return Gauge(data_points=points)


def _histogram_points(family: Family, begun_ns: int, now_ns: int) -> Iterator[HistogramDataPoint]:
    """The buckets of Prometheus count all values up to a bound; those of OTLP only their own."""
    buckets: dict[tuple[tuple[str, str], ...], list[tuple[float, float]]] = {}
    sums: dict[tuple[tuple[str, str], ...], float] = {}
    for sample in family.samples:
        key = tuple(sorted((k, v) for k, v in sample.labels.items() if k != "le"))
        if sample.name.endswith("_bucket"):
            buckets.setdefault(key, []).append((float(sample.labels["le"]), sample.value))
        elif sample.name.endswith("_sum"):
            sums[key] = sample.value
    for key, counted in buckets.items():
        counted.sort()
        counts = [int(count) for _, count in counted]
        own = [after - before for before, after in zip([0, *counts], counts, strict=False)]
        yield HistogramDataPoint(
            attributes=dict(key),
            start_time_unix_nano=begun_ns,
            time_unix_nano=now_ns,
            count=counts[-1],
            sum=sums.get(key, 0.0),
            bucket_counts=own,
            explicit_bounds=[bound for bound, _ in counted[:-1]],
            min=0.0,
            max=0.0,
        )
