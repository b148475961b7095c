"""The HTTP endpoint beside the broker: /metrics, /healthz, /readyz.

It has its own threads. It never waits for the loops that serve clients, and they never wait for
it. Answers are small and made on request.
"""

import json
import socket
from http import HTTPStatus
from typing import Final

from cordwood.broker.config.broker_config import BrokerConfig
from cordwood.broker.observing.health import HealthChecks, HealthReport
from cordwood.broker.observing.http_guard import HttpGuard
from cordwood.broker.observing.http_server import HttpServer, Page, Pages
from cordwood.broker.observing.observed_broker import ObservedBroker
from cordwood.broker.security.tls_listener import TlsListener
from cordwood.errors import ConfigError

_JSON: Final = "application/json"
_OPEN_PATHS: Final = frozenset({"/healthz"})


def open_endpoint(broker: ObservedBroker) -> HttpServer:
    """Open the endpoint that the broker's configuration asks for."""
    config = broker.config
    assert config.metrics_port is not None, config
    try:
        pages = broker_pages(broker)
    except ModuleNotFoundError as error:
        raise ConfigError(
            "metrics.port",
            config.metrics_port,
            f"needs the package {error.name}: pip install 'cordwood[broker]'",
        ) from error
    guard = HttpGuard(
        hosts=_names(config, broker.hosts), token=config.metrics_token, open_paths=_OPEN_PATHS
    )
    tls = _tls_of(broker)
    try:
        return HttpServer(config.metrics_host, config.metrics_port, pages, guard=guard, tls=tls)
    except OSError as error:
        error.add_note(f"while opening metrics.port = {config.metrics_port}")
        raise


def _names(config: BrokerConfig, advertised: frozenset[str]) -> frozenset[str]:
    """The names under which the endpoint answers."""
    names = {config.metrics_host, *config.metrics_hosts, *advertised}
    names |= {"localhost", socket.gethostname()}
    return frozenset(name.lower().rstrip(".") for name in names)


def _tls_of(broker: ObservedBroker) -> TlsListener | None:
    name = broker.config.metrics_listener
    if name is None:
        return None
    listener = broker.tls.get(name.upper())
    if listener is None:
        known = ", ".join(sorted(broker.tls)) or "none"
        raise ConfigError(
            "metrics.listener", name, f"is not a listener with TLS; these are: {known}"
        )
    return listener


def broker_pages(broker: ObservedBroker) -> Pages:
    # Not at the top: prometheus_client takes longer to import than a broker to start.
    from cordwood.broker.observing.metrics import CONTENT_TYPE, BrokerMetrics

    metrics, health = BrokerMetrics(broker), HealthChecks(broker)
    return {
        "/metrics": lambda: Page(content=metrics.render(), content_type=CONTENT_TYPE),
        "/healthz": lambda: _health_page(health.liveness()),
        "/readyz": lambda: _health_page(health.readiness()),
    }


def _health_page(report: HealthReport) -> Page:
    answer = {
        "status": "failing" if report.problems else "ok",
        "problems": report.problems,
        "warnings": report.warnings,
    }
    status = HTTPStatus.SERVICE_UNAVAILABLE if report.problems else HTTPStatus.OK
    return Page(content=json.dumps(answer).encode() + b"\n", content_type=_JSON, status=status)
