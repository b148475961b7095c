"""A schema registry in memory, on the loopback address: what readers and serializers ask it.

Confluent's own client writes through it in the tests.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit


class FakeRegistry:
    """Schemas by id and by subject. `hidden` ids are answered as unknown."""

    def __init__(self) -> None:
        self.schemas: dict[int, dict[str, Any]] = {}
        self.subjects: dict[str, list[int]] = {}
        self.hidden: set[int] = set()
        self.requests: list[str] = []
        self.failures: list[int] = []  # what the next requests are answered with
        self.url = ""

    def register(self, subject: str, schema: str, kind: str = "AVRO", **rest: Any) -> int:
        wanted = {"schema": schema, "schemaType": kind, **rest}
        known = [number for number, found in self.schemas.items() if found == wanted]
        number = known[0] if known else len(self.schemas) + 1
        self.schemas[number] = wanted
        versions = self.subjects.setdefault(subject, [])
        if number not in versions:
            versions.append(number)
        return number

    def answer(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        self.requests.append(f"{method} {path}")
        if self.failures:
            return self.failures.pop(0), {"error_code": 50001, "message": "for a moment"}
        match [unquote(part) for part in urlsplit(path).path.strip("/").split("/")]:
            case ["schemas", "ids", number]:
                found = self.schemas.get(int(number))
                if found is None or int(number) in self.hidden:
                    return 404, {"error_code": 40403, "message": "Schema not found"}
                return 200, found
            case ["subjects", subject, "versions"] if method == "POST":
                rest = {"references": body["references"]} if body.get("references") else {}
                kind = body.get("schemaType", "AVRO")
                return 200, {"id": self.register(subject, body["schema"], kind, **rest)}
            case ["subjects", subject, "versions"]:
                if subject not in self.subjects:
                    return 404, {"error_code": 40401, "message": "Subject not found"}
                return 200, list(range(1, len(self.subjects[subject]) + 1))
            case ["subjects", subject, "versions", version]:
                ids = self.subjects.get(subject, [])
                at = len(ids) if version in {"latest", "-1"} else int(version)
                if not 1 <= at <= len(ids):
                    return 404, {"error_code": 40402, "message": "Version not found"}
                return 200, {
                    "subject": subject,
                    "version": at,
                    "id": ids[at - 1],
                    **self.schemas[ids[at - 1]],
                }
            case _:
                return 404, {"error_code": 404, "message": "no such path"}


@contextmanager
def running_registry() -> Iterator[FakeRegistry]:
    registry = FakeRegistry()

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            pass

        def do_GET(self) -> None:
            self._answer("GET", None)

        def do_POST(self) -> None:
            size = int(self.headers.get("Content-Length", 0))
            self._answer("POST", json.loads(self.rfile.read(size) or b"{}"))

        def _answer(self, method: str, body: Any) -> None:
            status, content = registry.answer(method, self.path, body)
            data = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    registry.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield registry
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
