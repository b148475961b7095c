"""moto's S3 server, which also counts requests: `GET /_requests` returns and forgets them."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Iterable
from typing import Any

from moto.moto_server.werkzeug_app import (
    DomainDispatcherApplication,
    MotoRequestHandler,
    create_backend_app,
)
from werkzeug.serving import run_simple

Wsgi = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


class Counted:
    """Notes the method, the path and the range of each request."""

    def __init__(self, inner: Wsgi) -> None:
        self._inner = inner
        self._lock = threading.Lock()
        self._seen: list[tuple[str, str, str]] = []

    def __call__(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        if environ["PATH_INFO"] == "/_requests":
            with self._lock:
                seen, self._seen = self._seen, []
            start("200 OK", [("Content-Type", "application/json")])
            return [json.dumps(seen).encode()]
        request = (environ["REQUEST_METHOD"], environ["PATH_INFO"], environ.get("HTTP_RANGE", ""))
        with self._lock:
            self._seen.append(request)
        return self._inner(environ, start)


if __name__ == "__main__":
    app = Counted(DomainDispatcherApplication(create_backend_app))
    run_simple(
        "127.0.0.1", int(sys.argv[1]), app, threaded=True, request_handler=MotoRequestHandler
    )
