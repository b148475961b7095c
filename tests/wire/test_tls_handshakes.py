"""Handshakes that fail, stall or come by the hundred: they affect no other client."""

import contextlib
import datetime
import socket
import ssl
import statistics
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import cordwood
from cordwood.broker.net.accepting import tls_handshakes
from cordwood.broker.security.tls_listener import TlsListener
from cordwood.broker.server import BrokerServer
from cordwood.protocol.api_catalog import ApiKey
from fakes.key_updates import KeyUpdates
from fakes.tls_files import TlsFiles
from wire.raw_client import TIMEOUT_S, RawClient
from wire.served_listeners import addresses, served
from wire.tls_client import TlsClient
from wire.waiting import await_true

PAST = datetime.datetime(2001, 1, 1, tzinfo=datetime.UTC)
PROTOCOLS = "TLS_ONE:SSL,TLS_TWO:SSL,OPEN:PLAINTEXT"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> TlsFiles:
    return TlsFiles(Path(tmp_path_factory.mktemp("tls")))


class Listeners:
    """A broker with two TLS listeners, of which the second wants certificates, and a plain one."""

    def __init__(self, server: BrokerServer) -> None:
        self.server = server
        self.one, self.two, self.plain = addresses(server)

    @property
    def failed(self) -> int:
        return self.server.metrics.view().handshakes_failed


@pytest.fixture(scope="module")
def listeners(files: TlsFiles, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Listeners]:
    config = files.listener_config(
        listeners="TLS_ONE://127.0.0.1:0,TLS_TWO://127.0.0.1:0,OPEN://127.0.0.1:0",
        listener_security_protocol_map=PROTOCOLS,
    )
    config["listener.name.tls_two.ssl.client.auth"] = "required"
    with served(tmp_path_factory.mktemp("data"), config) as server:
        yield Listeners(server)


def is_refused(address: str, context: ssl.SSLContext) -> bool:
    """In TLS 1.3 a client learns only from its first read that its certificate is refused."""
    try:
        with TlsClient(address, context) as client:
            client.send(ApiKey.API_VERSIONS, 0)
            client.receive_frame()
    except (ssl.SSLError, ConnectionError):
        return True
    return False


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_only_clients_with_a_certificate_of_our_authority_are_served_where_it_is_required(
    listeners: Listeners, files: TlsFiles, version: ssl.TLSVersion
) -> None:
    good = files.client("alice")
    wrong = {
        "no certificate": None,
        "another authority": files.client("mallory", authority=files.other),
        "expired": files.client("late", not_before=PAST, not_after=PAST + datetime.timedelta(1)),
    }
    before = listeners.failed

    refused = {
        name
        for name, client in wrong.items()
        if is_refused(listeners.two, files.client_context(client, version=version))
    }

    assert refused == set(wrong)
    assert not is_refused(listeners.two, files.client_context(good, version=version))
    await_true(lambda: listeners.failed - before == len(wrong))


def test_where_no_certificate_is_required_one_of_another_authority_is_ignored(
    listeners: Listeners, files: TlsFiles
) -> None:
    client = files.client("mallory", authority=files.other)

    assert not is_refused(listeners.one, files.client_context(client))


def test_a_client_that_does_not_trust_the_broker_leaves_and_is_counted(
    listeners: Listeners, files: TlsFiles
) -> None:
    before = listeners.failed

    with pytest.raises(ssl.SSLCertVerificationError):
        TlsClient(listeners.one, ssl.create_default_context())

    await_true(lambda: listeners.failed == before + 1)


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\0\0\0\x15\0\x12\0\0\0\0\0\1\0\3raw",
        bytes(200),
        b"\x16\x03\x01",
    ],
    ids=["http", "kafka", "zeros", "half a header"],
)
def test_plain_bytes_on_a_tls_listener_end_the_connection(
    listeners: Listeners, data: bytes
) -> None:
    before = listeners.failed
    with RawClient(listeners.one) as client:
        client.send_bytes(data)
        with contextlib.suppress(OSError):  # it may be closed already
            client.socket.shutdown(socket.SHUT_WR)
            while client.socket.recv(4096):
                pass

    await_true(lambda: listeners.failed == before + 1)


def test_tls_on_a_plain_listener_ends_the_connection_with_a_reason(
    listeners: Listeners, files: TlsFiles, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        caplog.at_level("INFO", logger="cordwood.broker.net.connections.client_connection"),
        pytest.raises((ssl.SSLError, ConnectionError)),
    ):
        TlsClient(listeners.plain, files.client_context())

    await_true(lambda: "the client speaks TLS" in caplog.text)


def test_two_hundred_clients_that_connect_at_once_are_all_served(
    listeners: Listeners, files: TlsFiles
) -> None:
    context = files.client_context()
    served: list[bool] = []

    def connect() -> None:
        for _ in range(10):
            with TlsClient(listeners.one, context) as client:
                served.append(client.is_answered())

    threads = [threading.Thread(target=connect) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(TIMEOUT_S)

    assert served == [True] * 200
    await_true(lambda: listeners.server.connection_count == 0)


@contextlib.contextmanager
def silent(address: str, count: int) -> Iterator[list[socket.socket]]:
    """Clients that begin a handshake and say no more."""
    host, port = address.rsplit(":", 1)
    with contextlib.ExitStack() as opened:
        sockets = []
        for _ in range(count):
            sockets.append(opened.enter_context(socket.create_connection((host, int(port)))))
            sockets[-1].sendall(b"\x16\x03\x01\x02\x00\x01")
        yield sockets


def _slowest_percent_s(client: RawClient) -> float:
    """One request of a hundred takes longer than that."""
    took_s = []
    for _ in range(300):
        began_s = time.perf_counter()
        assert client.is_answered()
        took_s.append(time.perf_counter() - began_s)
    return statistics.quantiles(took_s, n=100)[-1]


def test_clients_that_stall_in_their_handshakes_delay_nobody(
    listeners: Listeners, files: TlsFiles
) -> None:
    context = files.client_context()
    with RawClient(listeners.plain) as plain:
        assert plain.is_answered()
        with silent(listeners.one, 1000):
            # A busy machine delays one round or another; those clients would delay each.
            slowest_s = min(_slowest_percent_s(plain) for _ in range(3))
            with TlsClient(listeners.one, context) as another:
                assert another.is_answered()
        assert slowest_s < 0.2

    await_true(lambda: listeners.server.connection_count == 0)


def test_a_client_that_changes_its_keys_without_end_is_disconnected(
    listeners: Listeners,
) -> None:
    """OpenSSL handles such messages for as long as they come, and nothing else meanwhile."""
    client = KeyUpdates(listeners.one)

    sent = next((number for number in range(200_000) if not client.send()), None)

    assert sent is not None
    client.close()
    with RawClient(listeners.plain) as plain:
        assert plain.is_answered()


def test_a_handshake_has_a_time_limit(
    listeners: Listeners, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls_handshakes, "HANDSHAKE_S", 0.2)
    before = listeners.failed

    with silent(listeners.one, 3) as clients:
        for client in clients:
            client.settimeout(TIMEOUT_S)
            assert client.recv(1) == b""

    await_true(lambda: listeners.failed == before + 3)


def test_if_there_are_too_many_handshakes_slow_clients_make_room_for_others(
    listeners: Listeners, files: TlsFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls_handshakes, "HANDSHAKES_MAX", 8)
    monkeypatch.setattr(tls_handshakes, "_SLOW_S", 0.2)
    context = files.client_context()

    with silent(listeners.one, 30), TlsClient(listeners.one, context) as client:
        assert client.is_answered()
        assert len(listeners.server._handshakes.pending) <= 8  # type: ignore[union-attr]


def test_handshakes_count_as_connections(files: TlsFiles) -> None:
    config = files.listener_config()
    config["listener.name.ssl.max.connections"] = 5
    with cordwood.Broker(config=config) as broker:
        server = broker._running()
        with silent(broker.bootstrap_servers, 5):
            await_true(lambda: server.connection_count == 5)
            with RawClient(broker.bootstrap_servers) as sixth:
                assert sixth.is_closed_by_broker()
        await_true(lambda: server.connection_count == 0)
        with TlsClient(broker.bootstrap_servers, files.client_context()) as client:
            assert client.is_answered()


def test_a_listener_has_a_limit_of_its_own_and_others_do_not_feel_it(tmp_path: Path) -> None:
    config = {
        "listeners": "A://127.0.0.1:0,B://127.0.0.1:0",
        "listener.security.protocol.map": "A:PLAINTEXT,B:PLAINTEXT",
        "listener.name.a.max.connections": 1,
    }
    with served(tmp_path, config) as server:
        first, second = addresses(server)
        with RawClient(first) as client, RawClient(first) as refused, RawClient(second) as other:
            assert client.is_answered()
            assert refused.is_closed_by_broker()
            assert other.is_answered()


def test_a_broker_that_stops_ends_handshakes_under_way(files: TlsFiles) -> None:
    broker = cordwood.Broker(config=files.listener_config()).start()
    server = broker._running()
    with silent(broker.bootstrap_servers, 3) as clients:
        await_true(lambda: server.connection_count == 3)

        broker.stop()

        for client in clients:
            client.settimeout(TIMEOUT_S)
            with contextlib.suppress(ConnectionResetError):
                assert client.recv(1) == b""
    assert server.connection_count == 0


def test_a_handshake_that_fails_in_the_broker_ends_after_one_line_in_the_log(
    listeners: Listeners,
    files: TlsFiles,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("a bug")

    with monkeypatch.context() as patch:
        patch.setattr(TlsListener, "principal_of", fail)
        assert is_refused(listeners.one, files.client_context())
        await_true(lambda: listeners.server.connection_count == 0)
    assert sum("a TLS handshake failed" in line for line in caplog.messages) == 1
    assert not is_refused(listeners.one, files.client_context())
