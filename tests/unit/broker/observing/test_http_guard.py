"""Under which names the HTTP endpoint answers, and to whom."""

from http import HTTPStatus

import pytest

from cordwood.broker.observing.http_guard import HttpGuard
from cordwood.broker.observing.http_server import parse_headers

TOKEN = "a-token-of-the-operator"
GUARD = HttpGuard(
    hosts=frozenset({"localhost", "metrics.example"}),
    token=TOKEN,
    open_paths=frozenset({"/healthz"}),
)
BEARER = {"authorization": f"Bearer {TOKEN}"}


@pytest.mark.parametrize(
    "host",
    ["localhost", "LOCALHOST:9600", "metrics.example.", "127.0.0.1:80", "10.1.2.3", "[::1]:9600"],
)
def test_names_of_the_endpoint_and_addresses_are_answered(host: str) -> None:
    assert GUARD.refusal("/metrics", {"host": host, **BEARER}) is None


@pytest.mark.parametrize(
    "host", ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "", "[evil]"]
)
def test_other_names_are_refused_with_or_without_the_token(host: str) -> None:
    for headers in ({}, BEARER):
        refusal = GUARD.refusal("/healthz", {"host": host, **headers})
        assert refusal is not None
        assert refusal[0] is HTTPStatus.MISDIRECTED_REQUEST


@pytest.mark.parametrize(
    "given",
    [None, "", "Bearer", "Bearer ", f"Basic {TOKEN}", f"Bearer {TOKEN}x", TOKEN, "Bearer \xff"],
)
def test_without_the_token_only_open_pages_are_shown(given: str | None) -> None:
    headers = {} if given is None else {"authorization": given}

    refusal = GUARD.refusal("/metrics", headers)

    assert refusal is not None
    assert refusal[0] is HTTPStatus.UNAUTHORIZED
    assert GUARD.refusal("/healthz", headers) is None


def test_any_name_can_be_allowed() -> None:
    assert HttpGuard().refusal("/metrics", {"host": "evil.example"}) is None


@pytest.mark.parametrize(
    ("head", "headers"),
    [
        (b"GET / HTTP/1.1\r\nHost: a\r\nX:b \r\n\r\n", {"host": "a", "x": "b"}),
        (b"GET / HTTP/1.1\nHost: a\n\nbody: no", {"host": "a"}),
        (b"GET / HTTP/1.0\r\n\r\n", {}),
        (b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", None),
        (b"GET / HTTP/1.1\r\nnonsense\r\n\r\n", None),
    ],
)
def test_headers_are_read_up_to_the_empty_line(head: bytes, headers: dict[str, str] | None) -> None:
    assert parse_headers(head) == headers
