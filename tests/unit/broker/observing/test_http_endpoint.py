"""/metrics, /healthz and /readyz over HTTP."""

import contextlib
import http.client
import json
import socket
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest

import cordwood
from cordwood.broker.config.broker_config import BrokerConfig
from cordwood.broker.net.requests.request_metrics import RequestMetrics
from cordwood.broker.observing import http_server
from cordwood.broker.observing.http_endpoint import open_endpoint
from cordwood.broker.observing.http_server import HttpServer, Page
from cordwood.broker.observing.observed_broker import ObservedBroker
from cordwood.broker.security.authentication_events import AuthenticationCounts
from cordwood.errors import ConfigError
from cordwood.log.store.store import Store
from fakes.own_threads import OwnThreads
from wire.waiting import await_true


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with cordwood.open(tmp_path) as opened:
        yield opened


def observed(store: Store) -> ObservedBroker:
    return ObservedBroker(
        store=store,
        config=BrokerConfig(metrics_port=0),
        address=("127.0.0.1", 9092),
        requests=RequestMetrics(),
        authentications=AuthenticationCounts(),
        is_responsive=lambda _timeout_s: True,
        groups=list,
        connection_count=lambda: 0,
        is_coordinator_loaded=lambda: True,
    )


class Answer(NamedTuple):
    status: int
    content_type: str | None
    content: bytes


def get(endpoint: HttpServer, path: str, method: str = "GET") -> Answer:
    connection = http.client.HTTPConnection(*endpoint.address, timeout=30)
    try:
        connection.request(method, path)
        response = connection.getresponse()
        return Answer(response.status, response.getheader("Content-Type"), response.read())
    finally:
        connection.close()


def ask(broker: ObservedBroker, path: str) -> Answer:
    endpoint = open_endpoint(broker)
    try:
        return get(endpoint, path)
    finally:
        endpoint.stop()


def test_metrics_are_text_that_prometheus_reads(store: Store) -> None:
    answer = ask(observed(store), "/metrics?name[]=kafka_brokers")

    assert answer.status == 200
    assert answer.content_type == "text/plain; version=0.0.4; charset=utf-8"
    assert b"kafka_brokers 1.0" in answer.content


def test_a_broker_whose_loops_turn_is_alive(store: Store) -> None:
    answer = ask(observed(store), "/healthz")

    assert answer.status == 200
    assert answer.content_type == "application/json"
    assert json.loads(answer.content) == {"status": "ok", "problems": [], "warnings": []}


def test_a_broker_whose_loops_stand_still_is_neither_alive_nor_ready(store: Store) -> None:
    stuck = replace(observed(store), is_responsive=lambda _timeout_s: False)

    for path in ("/healthz", "/readyz"):
        status, _, content = ask(stuck, path)
        assert status == 503
        assert "a loop has not turned" in json.loads(content)["problems"][0]


def test_a_broker_is_ready_once_its_groups_are_loaded(store: Store) -> None:
    loading = replace(observed(store), is_coordinator_loaded=lambda: False)

    assert ask(observed(store), "/readyz")[0] == 200
    status, _, content = ask(loading, "/readyz")
    assert status == 503
    assert json.loads(content)["problems"] == ["groups are still being loaded"]
    assert ask(loading, "/healthz")[0] == 200


def test_a_broker_whose_store_is_closed_is_alive_and_not_ready(store: Store) -> None:
    store.close()

    assert ask(observed(store), "/healthz")[0] == 200
    status, _, content = ask(observed(store), "/readyz")
    assert status == 503
    assert b"is closed" in content
    assert ask(observed(store), "/metrics")[0] == 503


def test_a_data_directory_that_cannot_be_used_makes_a_broker_not_ready(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with cordwood.open(tmp_path / "data", data_dirs=[tmp_path / "file"]) as store:
        status, _, content = ask(observed(store), "/readyz")

    assert status == 503
    assert f"{tmp_path / 'file'} cannot be used" in json.loads(content)["problems"][0]


def test_a_disk_short_of_room_is_a_warning_because_reading_goes_on(tmp_path: Path) -> None:
    with cordwood.open(tmp_path, free_bytes_min="1024TiB") as store:
        store.maintain()
        status, _, content = ask(observed(store), "/readyz")

    assert status == 200
    assert json.loads(content)["warnings"] == [
        f"{tmp_path} is short of space: appends are refused, and followers wait"
    ]


def test_other_paths_are_answered_with_those_there_are(store: Store) -> None:
    status, _, content = ask(observed(store), "/")

    assert status == 404
    assert content == b"/metrics\n/healthz\n/readyz\n"


def test_methods_that_change_things_are_refused(store: Store) -> None:
    endpoint = open_endpoint(observed(store))
    try:
        assert get(endpoint, "/metrics", "POST").status == 501
        assert get(endpoint, "/healthz", "HEAD").status == 200
    finally:
        endpoint.stop()


def test_a_client_that_says_nothing_does_not_keep_others_waiting() -> None:
    endpoint = HttpServer("127.0.0.1", 0, {"/": lambda: Page(content=b"here")})
    try:
        with socket.create_connection(endpoint.address, timeout=30):
            assert get(endpoint, "/").status == 200
    finally:
        endpoint.stop()


def test_slow_clients_do_not_disable_the_endpoint() -> None:
    endpoint = HttpServer("127.0.0.1", 0, {"/": lambda: Page(content=b"here" * 100_000)})
    slow: list[socket.socket] = []
    try:
        for number in range(200):
            client = socket.create_connection(endpoint.address, timeout=30)
            slow.append(client)
            client.sendall(b"GET / HTT" if number % 2 else b"GET / HTTP/1.1\r\n\r\n")

        assert get(endpoint, "/").status == 200
    finally:
        for client in slow:
            client.close()
        endpoint.stop()


def test_a_request_that_does_not_arrive_in_time_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http_server, "_RECEIVE_S", 0.1)
    endpoint = HttpServer("127.0.0.1", 0, {})
    try:
        with socket.create_connection(endpoint.address, timeout=30) as client:
            client.sendall(b"GET / HTTP/1.1\r\n")

            assert client.recv(1) == b""
    finally:
        endpoint.stop()


def test_an_answer_that_is_not_taken_in_time_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http_server, "_SEND_S", 0.1)
    endpoint = HttpServer("127.0.0.1", 0, {"/": lambda: Page(content=bytes(20_000_000))})
    try:
        with socket.create_connection(endpoint.address, timeout=30) as client:
            client.sendall(b"GET / HTTP/1.1\r\n\r\n")
            taken = 0
            with contextlib.suppress(ConnectionResetError):
                client.recv(1)
                threading.Event().wait(0.5)
                while data := client.recv(1 << 20):
                    taken += len(data)

            assert taken < 20_000_000
    finally:
        endpoint.stop()


@pytest.mark.parametrize(
    "head", [b"nonsense\r\n\r\n", b"GET /\r\n\r\n", b"\x16\x03\x01 \xff x\n\n"]
)
def test_what_is_no_request_is_refused(head: bytes) -> None:
    endpoint = HttpServer("127.0.0.1", 0, {})
    try:
        with socket.create_connection(endpoint.address, timeout=30) as client:
            client.sendall(head)

            assert client.recv(100).startswith(b"HTTP/1.1 400 ")
    finally:
        endpoint.stop()


def test_a_head_without_end_is_given_up() -> None:
    endpoint = HttpServer("127.0.0.1", 0, {})
    try:
        with (
            socket.create_connection(endpoint.address, timeout=30) as client,
            contextlib.suppress(ConnectionError),
        ):
            client.sendall(b"GET / HTTP/1.1\r\nx: " + bytes(100_000))
            assert client.recv(1) == b""
    finally:
        endpoint.stop()


def test_a_page_that_hangs_is_refused_to_others_and_other_pages_are_served() -> None:
    go_on, arrived = threading.Event(), threading.Semaphore(0)

    def slow() -> Page:
        arrived.release()
        go_on.wait(30)
        return Page(content=b"at last")

    endpoint = HttpServer("127.0.0.1", 0, {"/slow": slow, "/quick": lambda: Page(content=b"")})
    statuses: list[int] = []
    waiting = [
        threading.Thread(target=lambda: statuses.append(get(endpoint, "/slow").status))
        for _ in range(4)
    ]
    try:
        for thread in waiting:
            thread.start()
        for _ in waiting:
            assert arrived.acquire(timeout=30)
        assert get(endpoint, "/slow").status == 503
        assert get(endpoint, "/quick").status == 200
    finally:
        go_on.set()
        for thread in waiting:
            thread.join()
        endpoint.stop()
    assert statuses == [200] * 4


def test_a_port_that_is_taken_is_an_error_that_names_it(store: Store) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        broker = replace(observed(store), config=BrokerConfig(metrics_port=port))

        with pytest.raises(OSError, match="in use") as refused:
            open_endpoint(broker)

    assert refused.value.__notes__ == [f"while opening metrics.port = {port}"]


def test_no_thread_is_left_behind(store: Store) -> None:
    with OwnThreads() as threads:
        ask(observed(store), "/healthz")

        # The thread that made the page ends a moment after the answer is sent.
        await_true(lambda: threads.names == [])


def test_metrics_without_their_package_say_what_to_install(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("metrics", "store_metrics"):
        monkeypatch.delitem(sys.modules, f"cordwood.broker.observing.{module}", raising=False)
    monkeypatch.setitem(sys.modules, "prometheus_client", None)

    with pytest.raises(ConfigError, match=r"pip install 'cordwood\[broker\]'"):
        open_endpoint(observed(store))
