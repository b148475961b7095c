"""Certificates: which user a client's makes it; and a broker's that is replaced under load."""

import datetime
import hashlib
import http.client
import signal
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import cordwood
from cordwood.broker.security import certificate_watch
from cordwood.errors import ConfigError
from cordwood.security.principal import ANONYMOUS, Principal
from fakes.tls_files import TlsFiles
from wire.served_process import ServedProcess
from wire.tls_client import TlsClient
from wire.waiting import await_true

PAST = datetime.datetime(2001, 1, 1, tzinfo=datetime.UTC)


@pytest.fixture
def files(tmp_path: Path) -> TlsFiles:
    return TlsFiles(tmp_path)


def principals(broker: cordwood.Broker) -> set[Principal]:
    server = broker._running()
    return {
        connection.session.principal
        for connections in server._connections._connections.values()
        for connection in connections.copy()
    }


def shown_certificate(client: TlsClient) -> str:
    der = client.tls.getpeercert(binary_form=True)
    assert der is not None
    digest = hashlib.sha256(der).hexdigest().upper()
    return ":".join(digest[at : at + 2] for at in range(0, len(digest), 2))


# --- clients' certificates ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rules", "name"),
    [
        ("DEFAULT", "CN=alice,OU=clients,O=trustme v1.2.1"),
        (r"RULE:^CN=(.*?),OU=clients.*$/$1@$1/U,DEFAULT", "ALICE@ALICE"),
        (r"RULE:^UID=(.*?),.*$/$1/,RULE:^.*?CN=(\w+).*$/$1/L", "alice"),
    ],
)
def test_a_client_is_the_user_that_the_rules_make_of_its_certificate(
    files: TlsFiles, rules: str, name: str
) -> None:
    config = files.listener_config(ssl_client_auth="requested", ssl_principal_mapping_rules=rules)
    with cordwood.Broker(config=config) as broker:
        with TlsClient(
            broker.bootstrap_servers, files.client_context(files.client("alice"))
        ) as alice:
            assert alice.is_answered()
            assert principals(broker) == {Principal("User", name)}
        await_true(lambda: broker._running().connection_count == 0)

        with TlsClient(broker.bootstrap_servers, files.client_context()) as nobody:
            assert nobody.is_answered()
            assert principals(broker) == {ANONYMOUS}


def test_a_client_for_which_no_rule_has_a_name_is_disconnected(
    files: TlsFiles, caplog: pytest.LogCaptureFixture
) -> None:
    config = files.listener_config(
        ssl_client_auth="required", ssl_principal_mapping_rules="RULE:^CN=admin,.*$/admin/"
    )
    context = files.client_context(files.client("alice"))
    with cordwood.Broker(config=config) as broker, caplog.at_level("INFO"):
        with TlsClient(broker.bootstrap_servers, context) as client:
            assert client.is_closed_by_broker()

        metrics = broker._running().metrics
        await_true(lambda: metrics.view().handshakes_failed == 1)
        await_true(lambda: "CN=alice,OU=clients" in caplog.text)


def test_a_suite_that_is_not_listed_is_refused_in_both_versions(files: TlsFiles) -> None:
    listed = "TLS_AES_256_GCM_SHA384,TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"
    with cordwood.Broker(config=files.listener_config(ssl_cipher_suites=listed)) as broker:
        for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
            context = files.client_context(version=version)
            with TlsClient(broker.bootstrap_servers, context) as client:
                assert client.is_answered()
                assert "256" in str(client.tls.cipher())
        weak = files.client_context(version=ssl.TLSVersion.TLSv1_2)
        weak.set_ciphers("ECDHE-ECDSA-AES128-GCM-SHA256")
        with pytest.raises((ssl.SSLError, ConnectionError)):
            TlsClient(broker.bootstrap_servers, weak)


def test_a_version_that_is_not_enabled_is_refused(files: TlsFiles) -> None:
    config = files.listener_config(ssl_enabled_protocols="TLSv1.3")
    with cordwood.Broker(config=config) as broker:
        with pytest.raises((ssl.SSLError, ConnectionError)):
            TlsClient(
                broker.bootstrap_servers, files.client_context(version=ssl.TLSVersion.TLSv1_2)
            )
        with TlsClient(broker.bootstrap_servers, files.client_context()) as client:
            assert client.is_answered()


# --- the broker's certificate --------------------------------------------------------------------


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are looked at often."""
    monkeypatch.setattr(certificate_watch, "INTERVAL_S", 0.02)


@pytest.fixture
def broker(files: TlsFiles, often: None) -> Iterator[cordwood.Broker]:
    with cordwood.Broker(config=files.listener_config(), topics=["t"]) as running:
        yield running


def fingerprint(broker: cordwood.Broker) -> str:
    (listener,) = broker._running()._tls_listeners()
    return listener.certificate.fingerprint


def test_a_new_certificate_is_for_new_connections_and_the_others_go_on(
    broker: cordwood.Broker, files: TlsFiles
) -> None:
    context = files.client_context()
    before = fingerprint(broker)
    with TlsClient(broker.bootstrap_servers, context) as old:
        assert old.is_answered()

        files.write_broker()
        await_true(lambda: fingerprint(broker) != before)

        with TlsClient(broker.bootstrap_servers, context) as new:
            assert new.is_answered()
            assert shown_certificate(new) == fingerprint(broker) != before
        assert shown_certificate(old) == before
        assert old.is_answered()


def test_certificates_that_change_under_load_break_no_connection(
    broker: cordwood.Broker, files: TlsFiles
) -> None:
    context = files.client_context()
    stop = threading.Event()
    answered: list[bool] = []

    def work() -> None:
        while not stop.is_set():
            with TlsClient(broker.bootstrap_servers, context) as client:
                answered.extend(client.is_answered() for _ in range(3))

    workers = [threading.Thread(target=work) for _ in range(4)]
    for worker in workers:
        worker.start()
    for _ in range(10):
        before = fingerprint(broker)
        files.write_broker()
        await_true(lambda before=before: fingerprint(broker) != before)  # type: ignore[misc]
    stop.set()
    for worker in workers:
        worker.join()

    assert len(answered) > 0
    assert all(answered)
    assert broker._running().metrics.view().handshakes_failed == 0


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda files: Path(files.broker).write_text("nonsense"), "has no certificate"),
        (lambda files: Path(files.broker).unlink(), "cannot be read"),
        (lambda files: files.write_broker(subject="other"), "ssl.allow.dn.changes"),
        (lambda files: files.write_broker("localhost"), "DNS:127.0.0.1|IP:127.0.0.1"),
        (lambda files: files.write_broker(not_after=PAST), "expired on 2001-01-01"),
        (lambda files: files.write_mismatch(), "does not belong"),
    ],
    ids=["nonsense", "missing", "subject", "names", "expired", "key"],
)
def test_a_bad_new_certificate_is_reported_and_the_old_one_stays(
    broker: cordwood.Broker,
    files: TlsFiles,
    caplog: pytest.LogCaptureFixture,
    spoil: object,
    reason: str,
) -> None:
    before = fingerprint(broker)
    assert callable(spoil)

    spoil(files)

    await_true(lambda: any(part in caplog.text for part in reason.split("|")))
    assert fingerprint(broker) == before
    with TlsClient(broker.bootstrap_servers, files.client_context()) as client:
        assert client.is_answered()
    files.write_broker()  # and a good one is taken after that
    await_true(lambda: fingerprint(broker) != before)


def test_changes_of_names_can_be_allowed(files: TlsFiles, often: None) -> None:
    config = files.listener_config(ssl_allow_dn_changes="true", ssl_allow_san_changes="true")
    with cordwood.Broker(config=config) as broker:
        before = fingerprint(broker)

        files.write_broker("localhost", subject="other")

        await_true(lambda: fingerprint(broker) != before)


def test_a_new_trust_store_is_for_new_connections(files: TlsFiles, often: None) -> None:
    with cordwood.Broker(config=files.listener_config(ssl_client_auth="required")) as broker:
        stranger = files.client_context(files.client("stranger", authority=files.other))
        with (
            TlsClient(broker.bootstrap_servers, stranger) as client,
            pytest.raises((ssl.SSLError, ConnectionError)),
        ):
            client.socket.recv(1)

        both = files.authority.cert_pem.bytes() + files.other.cert_pem.bytes()
        Path(files.ca).write_bytes(both)

        def is_served() -> bool:
            try:
                with TlsClient(broker.bootstrap_servers, stranger) as client:
                    return client.is_answered()
            except (ssl.SSLError, ConnectionError):
                return False

        await_true(is_served)


def test_a_broker_with_a_missing_file_does_not_start(files: TlsFiles, tmp_path: Path) -> None:
    config = files.listener_config(ssl_keystore_location=str(tmp_path / "none.pem"))

    with pytest.raises(ConfigError, match=r"ssl.keystore.location = .*none.pem.*listener SSL"):
        cordwood.Broker(config=config).start()


def test_hangup_loads_certificates_again(files: TlsFiles, tmp_path: Path) -> None:
    sets = [f"{key}={value}" for key, value in files.listener_config().items()]
    with ServedProcess(tmp_path / "data", *sets) as served:
        context = files.client_context()
        with TlsClient(served.address, context) as client:
            before = shown_certificate(client)
        files.write_broker()

        served.signal(signal.SIGHUP)

        def is_new() -> bool:
            with TlsClient(served.address, context) as client:
                return client.is_answered() and shown_certificate(client) != before

        await_true(is_new)


# --- the HTTP endpoint ---------------------------------------------------------------------------


def test_metrics_over_tls_tell_when_certificates_expire(files: TlsFiles) -> None:
    token = "a-token-of-the-operator"
    config = files.listener_config(metrics_port=0, metrics_listener="ssl", metrics_token=token)
    with cordwood.Broker(config=config) as broker:
        address = broker._running().metrics_address
        assert address is not None

        def ask(path: str, headers: dict[str, str]) -> tuple[int, str]:
            connection = http.client.HTTPSConnection(*address, context=files.client_context())
            connection.request("GET", path, headers=headers)
            response = connection.getresponse()
            text = response.read().decode()
            connection.close()
            return response.status, text

        status, text = ask("/metrics", {"Authorization": f"Bearer {token}"})
        assert status == 200
        (line,) = [each for each in text.splitlines() if each.startswith("cordwood_tls_cert")]
        assert line.startswith('cordwood_tls_certificate_expiry_seconds{listener="SSL"}')
        assert float(line.split()[-1]) > 0
        assert ask("/metrics", {})[0] == 401
        assert ask("/metrics", {"Authorization": "Bearer wrong"})[0] == 401
        assert ask("/healthz", {})[0] == 200
        assert ask("/healthz", {"Host": "evil.example"})[0] == 421
