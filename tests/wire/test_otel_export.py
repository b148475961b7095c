"""Metrics of a broker at an OpenTelemetry collector, read with OpenTelemetry's own schema."""

import logging
import queue
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

import cordwood
from cordwood.broker.config.setting_sources import environment_assignments

metrics_service = pytest.importorskip(
    "opentelemetry.proto.collector.metrics.v1.metrics_service_pb2",
    reason="needs the extra `otel`",
)

TIMEOUT_S = 30
pytestmark = pytest.mark.timeout(120)


class Collector(BaseHTTPRequestHandler):
    """Takes pushes as a collector does. `answers` has the next status codes; then 200."""

    pushes: "queue.Queue[tuple[str, Any]]"
    answers: list[int]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        status = self.answers.pop(0) if self.answers else 200
        if status == 200:
            push = metrics_service.ExportMetricsServiceRequest()
            push.ParseFromString(body)
            self.pushes.put((self.path, push))
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Tests print nothing."""


@contextmanager
def collector() -> Iterator[tuple[str, type[Collector]]]:
    class Running(Collector):
        pushes = queue.Queue()
        answers: list[int] = []  # noqa: RUF012 (a class for each collector)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Running)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", Running
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _metrics(push: Any) -> dict[str, Any]:
    return {
        metric.name: metric
        for resource in push.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    }


def test_a_collector_gets_the_metrics_of_the_broker(tmp_path: Path) -> None:
    with collector() as (address, running):
        config = {"otel.endpoint": address, "otel.interval.ms": 1000}
        with cordwood.Broker(tmp_path, topics={"orders": 2}, config=config) as broker:
            broker.store["orders"].append(b"1", partition=1)
            path, push = running.pushes.get(timeout=TIMEOUT_S)
            metrics = _metrics(push)
            address_of_broker = broker.bootstrap_servers

        assert path == "/v1/metrics"
        attributes = {
            each.key: each.value.string_value
            for each in push.resource_metrics[0].resource.attributes
        }
        assert attributes["service.name"] == "cordwood"
        assert attributes["service.instance.id"] == address_of_broker
        offsets = metrics["kafka_topic_partition_current_offset"].gauge.data_points
        by_partition = {
            next(each.value.string_value for each in point.attributes if each.key == "partition"): (
                point.as_double
            )
            for point in offsets
        }
        assert by_partition == {"0": 0, "1": 1}
        received = metrics["cordwood_received_bytes"].sum
        assert received.is_monotonic
        assert received.aggregation_temporality == 2  # cumulative
        durations = [m for m in metrics.values() if m.WhichOneof("data") == "histogram"]
        for point in (point for each in durations for point in each.histogram.data_points):
            assert sum(point.bucket_counts) == point.count
            assert len(point.bucket_counts) == len(point.explicit_bounds) + 1


def test_a_collector_that_fails_is_named_once_and_does_not_delay_the_broker(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    with collector() as (address, running):
        running.answers += [400, 400]  # refused for good, so it is not tried again at once
        config = {"otel.endpoint": address, "otel.interval.ms": 1000}
        with cordwood.Broker(tmp_path, topics=["t"], config=config) as broker:
            broker.store["t"].append(b"1")
            running.pushes.get(timeout=TIMEOUT_S)

    lines = [record.getMessage() for record in caplog.records if "cordwood" in record.name]
    assert sum("cannot send metrics" in line for line in lines) == 1
    assert sum("takes metrics again" in line for line in lines) <= 1
    assert not [r for r in caplog.records if r.name.startswith("opentelemetry")]


def test_a_broker_stops_although_nobody_answers(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # accepts, and never answers
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        config = {"otel.endpoint": address, "otel.interval.ms": 1000}
        with cordwood.Broker(tmp_path, topics=["t"], config=config) as broker:
            broker.store["t"].append(b"1")


def test_the_standard_variable_names_the_collector() -> None:
    known = ["otel.endpoint", "port"]
    variables = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318"}

    def found(**more: str) -> dict[str, object]:
        assignments = environment_assignments({**variables, **more}, known)
        return {each.name: each.value for each in assignments}

    assert found() == {"otel.endpoint": "http://c:4318"}
    assert found(OTEL_SDK_DISABLED="true") == {}
    assert found(CORDWOOD_OTEL_ENDPOINT="http://d") == {"otel.endpoint": "http://d"}
