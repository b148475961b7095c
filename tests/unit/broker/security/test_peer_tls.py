"""The certificates of connections that the broker opens are read again when they change."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from cordwood.broker.security.certificate_watch import CertificateWatch
from cordwood.broker.security.peer_tls import PeerTls, peer_tls
from cordwood.errors import ConfigError
from cordwood.security.certificates.certificate_store import CertificateStore
from cordwood.security.clients.client_security import PLAINTEXT, ClientProtocol, ClientSecurity
from fakes.tls_files import TlsFiles


@pytest.fixture
def files(tmp_path: Path) -> TlsFiles:
    return TlsFiles(tmp_path)


def security(files: TlsFiles) -> ClientSecurity:
    return ClientSecurity(
        protocol=ClientProtocol.SSL,
        trust=CertificateStore(option="ssl.truststore.location", location=files.ca),
        identity=CertificateStore(option="ssl.keystore.location", location=files.broker),
    )


def test_new_connections_get_a_certificate_that_was_replaced(files: TlsFiles) -> None:
    tls = PeerTls("brokers", security(files))
    first = tls.context
    assert not tls.reload()
    assert tls.context is first

    files.write_broker(subject="renewed")

    assert tls.reload()
    assert tls.context is not first


def test_files_that_cannot_be_used_are_tried_again(
    files: TlsFiles, caplog: pytest.LogCaptureFixture
) -> None:
    tls = PeerTls("brokers", security(files))
    first = tls.context

    files.write_mismatch()
    assert not tls.reload()
    assert tls.context is first
    assert "brokers: the new certificates are not used" in caplog.text
    files.write_broker()

    assert tls.reload()


def test_a_certificate_that_has_expired_does_not_replace_a_good_one(
    files: TlsFiles, caplog: pytest.LogCaptureFixture
) -> None:
    tls = PeerTls("brokers", security(files))
    first = tls.context

    files.write_broker(not_after=datetime.now(UTC) - timedelta(hours=1))
    assert not tls.reload()
    assert tls.context is first
    assert "the certificate expired on" in caplog.text
    files.write_broker()

    assert tls.reload()
    assert tls.context is not first


def test_a_reload_can_be_forced(files: TlsFiles) -> None:
    tls = PeerTls("brokers", security(files))

    assert tls.reload(is_forced=True)


def test_files_that_are_missing_at_the_start_are_an_error(files: TlsFiles) -> None:
    os.unlink(files.ca)

    with pytest.raises(ConfigError, match="cannot be read"):
        PeerTls("brokers", security(files))


def test_connections_in_clear_text_have_no_tls() -> None:
    assert peer_tls("brokers", PLAINTEXT) is None


def test_the_watch_of_certificates_also_reloads_these(files: TlsFiles) -> None:
    tls = PeerTls("brokers", security(files))
    first = tls.context
    watch = CertificateWatch([tls])

    watch.start()
    watch.look_now()
    watch.stop()  # after what was asked before

    assert tls.context is not first
