"""The keys of an issuer: fetched in time, kept while the issuer is away, and within limits."""

import http.server
import json
import os
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.error import HTTPError

import pytest
import trustme

from cordwood.broker.config.sasl_config import SaslKeys
from cordwood.broker.security.token_key_source import KeyAddress, TokenKeySource, fetch_url
from cordwood.errors import ConfigError, FormatError
from fakes.sasl_clients import Issuer

FIRST, SECOND = Issuer(key_id="first"), Issuer(key_id="second")
ADDRESS = KeyAddress(url="https://issuer.example", refresh_s=3600, backoff_s=0.1, backoff_s_max=10)


class Published:
    """An issuer's server."""

    def __init__(self, *contents: bytes | Exception) -> None:
        self.contents = list(contents)
        self.asked = 0
        self.now_s = 0.0

    def fetch(self, url: str) -> bytes:
        self.asked += 1
        content = self.contents[0] if len(self.contents) == 1 else self.contents.pop(0)
        if isinstance(content, Exception):
            raise content
        return content

    def source(self) -> TokenKeySource:
        return TokenKeySource(ADDRESS, fetch=self.fetch, now_s=lambda: self.now_s)


def known(source: TokenKeySource) -> set[str | None]:
    return {key.key_id for key in source.keys.keys}


def test_keys_are_fetched_again_after_the_refresh_time() -> None:
    source = Published(FIRST.key_set(), SECOND.key_set()).source()

    pauses = [source.refresh()]
    before = known(source)
    pauses.append(source.refresh())

    assert pauses == [3600, 3600]
    assert (before, known(source)) == ({"first"}, {"second"})


def test_the_last_good_keys_stay_while_fetches_fail_and_pauses_double() -> None:
    failure, nonsense = OSError("away"), b"nonsense"
    source = Published(
        FIRST.key_set(), failure, nonsense, failure, failure, FIRST.key_set()
    ).source()

    pauses = [source.refresh() for _ in range(6)]

    assert pauses == [3600, 0.1, 0.2, 0.4, 0.8, 3600]
    assert known(source) == {"first"}


def test_a_pause_has_a_limit() -> None:
    assert [ADDRESS.pause_s(failures) for failures in (7, 8, 1000)] == [6.4, 10, 10]


def test_before_the_first_fetch_there_are_no_keys() -> None:
    source = Published(OSError("away")).source()

    assert known(source) == set()


def test_an_unknown_key_causes_a_fetch_every_ten_seconds_at_most() -> None:
    published = Published(FIRST.key_set())
    source = published.source()
    source.refresh()

    asked = []
    for now_s in (1.0, 9.9, 10.0):
        published.now_s = now_s
        source.missed()
        asked.append(source._wake.is_set())

    assert asked == [False, False, True]


def test_the_thread_fetches_when_it_is_woken_and_ends() -> None:
    published = Published(FIRST.key_set(), SECOND.key_set())
    fetched = threading.Semaphore(0)

    def fetch(url: str) -> bytes:
        fetched.release()
        return published.fetch(url)

    source = TokenKeySource(ADDRESS, fetch=fetch, now_s=lambda: published.now_s)
    source.start()
    assert fetched.acquire(timeout=60)
    published.now_s = 10.0

    source.missed()

    assert fetched.acquire(timeout=60)
    source.stop()
    assert source._thread is not None
    source._thread.join(60)
    assert not source._thread.is_alive()
    assert known(source) == {"second"}


@pytest.mark.parametrize(
    "url",
    ["", "http://issuer.example", "ftp://x/y", "file:relative", "file://host/x", "https:///x"],
)
def test_only_https_and_files_are_fetched(url: str) -> None:
    with pytest.raises(ConfigError, match="https"):
        KeyAddress.of_config(SaslKeys(sasl_oauthbearer_jwks_endpoint_url=url))


def test_a_file_is_read_at_once_or_refused(tmp_path: Path) -> None:
    path = tmp_path / "key set.json"
    path.write_bytes(FIRST.key_set())
    address = KeyAddress.of_config(SaslKeys(sasl_oauthbearer_jwks_endpoint_url=path.as_uri()))

    assert known(TokenKeySource(address)) == {"first"}
    path.write_bytes(b"{}")
    with pytest.raises(ConfigError, match="cannot be used"):
        TokenKeySource(address)


def test_a_pipe_instead_of_a_key_set_does_not_stop_the_fetching(tmp_path: Path) -> None:
    pipe = tmp_path / "keys.json"
    os.mkfifo(pipe)  # nobody writes to it: a plain open would wait for ever

    with pytest.raises(OSError, match="seek"):
        fetch_url(pipe.as_uri())


def test_a_large_answer_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "large.json"
    path.write_bytes(b" " * (1024 * 1024 + 1))

    with pytest.raises(FormatError, match="key set"):
        fetch_url(path.as_uri())


# --- over https ----------------------------------------------------------------------------------


class _Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.path == "/large":
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b" " * (2 * 1024 * 1024))
        elif self.path.startswith("/to/"):
            self.send_response(302)
            self.send_header("Location", self.path.removeprefix("/to/"))
            self.end_headers()
        else:
            self.send_response(200 if self.path == "/keys" else 404)
            self.end_headers()
            self.wfile.write(FIRST.key_set())

    def log_message(self, *_: object) -> None:
        return


@pytest.fixture
def issuer_url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    authority = trustme.CA(key_type=trustme.KeyType.ECDSA)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost", key_type=trustme.KeyType.ECDSA).configure_cert(context)
    ca = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(ca)
    monkeypatch.setenv("SSL_CERT_FILE", str(ca))
    server = http.server.ThreadingHTTPServer(("localhost", 0), _Handler)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield f"https://localhost:{server.server_address[1]}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_keys_are_fetched_over_https(issuer_url: str) -> None:
    assert json.loads(fetch_url(issuer_url + "/keys")) == json.loads(FIRST.key_set())
    assert fetch_url(f"{issuer_url}/to/{issuer_url}/keys") == FIRST.key_set()


@pytest.mark.parametrize("path", ["/to/http://localhost/keys", "/to/file:///etc/passwd", "/none"])
def test_no_redirect_leads_out_of_https(issuer_url: str, path: str) -> None:
    with pytest.raises(HTTPError):
        fetch_url(issuer_url + path)


def test_a_large_answer_of_a_server_is_refused(issuer_url: str) -> None:
    with pytest.raises(FormatError, match="key set"):
        fetch_url(issuer_url + "/large")


def test_a_server_that_nobody_vouches_for_is_refused(
    issuer_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "other.pem"
    trustme.CA(key_type=trustme.KeyType.ECDSA).cert_pem.write_to_path(other)
    monkeypatch.setenv("SSL_CERT_FILE", str(other))

    with pytest.raises(OSError, match="CERTIFICATE_VERIFY_FAILED"):
        fetch_url(issuer_url + "/keys")
