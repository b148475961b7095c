"""A small HTTP server beside the broker: /metrics, /healthz, /readyz.

It has its own threads. It never waits for the loops that serve clients, and they never wait for
it. Answers are small and made on request; too many requests at once are refused.
"""

import json
import logging
import socket
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

from cordwood.broker.observing.health import HealthChecks, HealthReport
from cordwood.broker.observing.observed_broker import ObservedBroker
from cordwood.errors import ConfigError

logger = logging.getLogger(__name__)

_REQUESTS_MAX: Final = 8  # at once; a scraper needs one
_REQUEST_TIMEOUT_S: Final = 10.0
_PLAIN: Final = "text/plain; charset=utf-8"
_JSON: Final = "application/json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """An HTTP response."""

    content: bytes
    content_type: str = _PLAIN
    status: HTTPStatus = HTTPStatus.OK


Pages = Mapping[str, Callable[[], Page]]


class HttpEndpoint:
    """Serves `pages` from the moment it is made until it is stopped.

    `port` 0 takes any free port: see `address`.
    """

    def __init__(self, host: str, port: int, pages: Pages) -> None:
        self._server = _BoundedServer(host, port, pages)
        self._thread = threading.Thread(
            target=self._server.serve_forever,
            kwargs={"poll_interval": 0.1},
            name="cordwood-http",
            daemon=True,
        )
        self._thread.start()

    @property
    def address(self) -> tuple[str, int]:
        host, port = self._server.socket.getsockname()[:2]
        return str(host), int(port)

    def stop(self) -> None:
        """Take no more requests. Requests under way are answered or time out."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def open_endpoint(broker: ObservedBroker) -> HttpEndpoint:
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
    try:
        return HttpEndpoint(config.metrics_host, config.metrics_port, pages)
    except OSError as error:
        error.add_note(f"while opening metrics.port = {config.metrics_port}")
        raise


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


class _BoundedServer(ThreadingHTTPServer):
    """A thread per request, with a limit on their number."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, host: str, port: int, pages: Pages) -> None:
        self.pages = pages
        self._room = threading.BoundedSemaphore(_REQUESTS_MAX)
        if ":" in host:
            self.address_family = socket.AF_INET6
        super().__init__((host, port), _Handler)

    def server_bind(self) -> None:
        # Not HTTPServer's own method: it resolves the host name, which can take seconds.
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_name, self.server_port = self.socket.getsockname()[:2]

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._room.acquire(blocking=False):
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._room.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        logger.info("%s: an HTTP request was not answered", client_address, exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    """GET and HEAD of the pages; one request per connection."""

    server: _BoundedServer
    timeout = _REQUEST_TIMEOUT_S
    server_version = "cordwood"
    sys_version = ""

    def do_GET(self) -> None:
        self._answer(has_body=True)

    def do_HEAD(self) -> None:
        self._answer(has_body=False)

    def _answer(self, *, has_body: bool) -> None:
        page = self._page(self.path.partition("?")[0])
        self.send_response(page.status)
        self.send_header("Content-Type", page.content_type)
        self.send_header("Content-Length", str(len(page.content)))
        self.end_headers()
        if has_body:
            self.wfile.write(page.content)

    def _page(self, path: str) -> Page:
        make = self.server.pages.get(path)
        if make is None:
            known = "\n".join(self.server.pages)
            return Page(content=f"{known}\n".encode(), status=HTTPStatus.NOT_FOUND)
        try:
            return make()
        except Exception as error:
            # For example the broker stops meanwhile: answer, and do not break the connection.
            logger.warning("request for %s failed", path, exc_info=True)
            text = f"{type(error).__name__}: {error}\n"
            return Page(content=text.encode(), status=HTTPStatus.SERVICE_UNAVAILABLE)

    def log_message(self, format: str, *args: Any) -> None:
        logger.debug("%s: " + format, self.client_address[0], *args)
