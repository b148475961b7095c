from http import HTTPStatus

import pytest

from cordwood.console.request_guard import FormTokens, RequestGuard

GUARD = RequestGuard(names=frozenset({"localhost", "127.0.0.1"}), scheme="http")


def status(method: str, **headers: str) -> HTTPStatus | None:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    refusal = GUARD.refusal(method, named)
    return None if refusal is None else refusal.status


@pytest.mark.parametrize(
    "host", ["127.0.0.1:9480", "localhost:9480", "LOCALHOST", "[::1]:9480", "localhost."]
)
def test_names_and_addresses_of_this_machine_are_answered(host: str) -> None:
    assert status("GET", host=host) is None


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "",
        "localhost.evil.example",
        "127.0.0.1.nip.io",
        "[::1]evil.example",
        "localhost:80@evil.example",
    ],
)
def test_a_name_that_was_made_to_point_here_is_refused(host: str) -> None:
    assert status("GET", host=host) == HTTPStatus.MISDIRECTED_REQUEST


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "https://localhost:9480", ""])
def test_a_change_from_another_page_is_refused(origin: str) -> None:
    assert status("POST", host="localhost:9480", origin=origin) == HTTPStatus.FORBIDDEN
    assert status("POST", host="localhost:9480") == HTTPStatus.FORBIDDEN


def test_a_change_from_a_page_of_ours_is_heard() -> None:
    assert status("POST", host="localhost:9480", origin="http://localhost:9480") is None


def test_other_sites_may_link_here_but_not_load() -> None:
    crossing = {"host": "localhost", "sec_fetch_site": "cross-site"}

    assert status("GET", **crossing, sec_fetch_mode="navigate") is None
    assert status("GET", **crossing, sec_fetch_mode="no-cors") == HTTPStatus.FORBIDDEN


def test_only_reading_and_posting_is_known() -> None:
    assert status("DELETE", host="localhost") == HTTPStatus.METHOD_NOT_ALLOWED


@pytest.mark.parametrize("length", ["100000", "-1", "x", "9" * 400])
def test_a_large_body_is_refused_before_it_is_read(length: str) -> None:
    found = status("POST", host="localhost", origin="http://localhost", content_length=length)

    assert found == HTTPStatus.REQUEST_ENTITY_TOO_LARGE


def test_a_body_of_unknown_length_is_refused() -> None:
    found = status("POST", host="localhost", origin="http://localhost", transfer_encoding="chunked")

    assert found == HTTPStatus.LENGTH_REQUIRED


def test_a_token_is_for_one_session() -> None:
    tokens = FormTokens(b"secret")

    assert tokens.is_valid("a", tokens.token("a"))
    assert not tokens.is_valid("b", tokens.token("a"))
    assert not tokens.is_valid("a", "ü")
    assert not FormTokens(b"other").is_valid("a", tokens.token("a"))
