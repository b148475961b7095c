"""The client of a schema registry."""

from __future__ import annotations

import base64
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from cordwood.errors import ConfigError, CordwoodError
from cordwood.spark.decoding.schema_registry import SchemaRegistry
from fakes.schema_registry import running_registry


def test_a_schema_comes_with_what_it_refers_to_and_is_asked_for_once() -> None:
    with running_registry() as server:
        server.register("common", "A")
        reference = {"name": "a.proto", "subject": "common", "version": 1}
        server.register("middle", "B", references=[reference])
        upper = {"name": "b.proto", "subject": "middle", "version": 1}
        number = server.register("orders-value", "C", references=[upper])
        registry = SchemaRegistry(server.url)

        found = [registry.schema(number) for _ in range(2)]

        assert found[0] is found[1]
        assert found[0] is not None
        assert found[0].references == (("a.proto", "A"), ("b.proto", "B"))
        assert len(server.requests) == 3
        assert registry.schema(99) is None
        assert registry.subject_ids("orders-value") == [number]
        with pytest.raises(ConfigError, match="unknown to the registry"):
            registry.subject_ids("nobody")


@contextmanager
def answering(
    status: int, body: bytes, *, location: str | None = None
) -> Iterator[tuple[str, list[str]]]:
    seen: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            pass

        def do_GET(self) -> None:
            seen.append(self.headers.get("Authorization", ""))
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            if location is not None:
                self.send_header("Location", location)
            self.end_headers()
            self.wfile.write(body)

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}", seen
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.mark.parametrize(
    ("status", "body", "attempts"),
    [
        (500, b"{}", 5),
        (429, b"{}", 5),
        (401, b"{}", 1),
        (404, b"no such page", 1),
        (404, b'{"error_code": 404}', 1),
        (200, b"not json", 1),
        (200, b"[1, 2]", 1),
        (200, b'{"id": 1}', 1),
        (200, b'{"schema": "A", "references": [1]}', 1),
    ],
)
def test_a_registry_that_fails_is_an_error_and_no_unknown_schema(
    status: int, body: bytes, attempts: int
) -> None:
    pauses: list[float] = []
    with answering(status, body) as (place, seen):
        registry = SchemaRegistry(f"http://{place}", pause=pauses.append)
        with pytest.raises(CordwoodError, match="registry"):
            registry.schema(1)

    assert len(seen) == attempts
    assert pauses == sorted(pauses)


def test_a_subject_that_is_answered_oddly_is_an_error() -> None:
    with answering(200, b'{"a": 1}') as (place, _), pytest.raises(CordwoodError, match="registry"):
        SchemaRegistry(f"http://{place}").subject_ids("orders")


def test_an_error_that_passes_is_no_error() -> None:
    with running_registry() as server:
        number = server.register("orders-value", "A")
        place = server.url

    with pytest.raises(CordwoodError, match="cannot be read"):
        SchemaRegistry(place, pause=lambda _: None).schema(number)

    failures = [503, 502]
    with running_registry() as server:
        number = server.register("orders-value", "A")
        server.failures = failures
        found = SchemaRegistry(server.url, pause=lambda _: None).schema(number)

    assert found is not None
    assert failures == []


@pytest.mark.parametrize("url", ["http://[::1", "http://host:99999", "localhost:8081", ""])
def test_what_is_no_url_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="must be a URL"):
        SchemaRegistry(url)


def test_a_redirect_to_another_host_does_not_carry_the_password() -> None:
    with answering(200, b'{"schema": "A"}') as (other, seen):
        where = f"http://localhost:{other.rpartition(':')[2]}/"
        with answering(302, b"", location=where) as (place, first):
            found = SchemaRegistry(f"http://ada:secret@{place}").schema(1)

    assert found is not None
    assert first[0].startswith("Basic ")
    assert seen == [""]


def test_user_and_password_of_the_url_are_sent_and_not_shown() -> None:
    with answering(404, b'{"error_code": 40403}') as (place, seen):
        registry = SchemaRegistry(f"http://ada:s%20x@{place}")
        registry.schema(1)

    assert seen == ["Basic " + base64.b64encode(b"ada:s x").decode()]
    assert "ada" not in registry.url
    with pytest.raises(ConfigError) as refused:
        SchemaRegistry("ftp://ada:secret@host")
    assert "secret" not in str(refused.value)
