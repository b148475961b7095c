"""Certificates of one's own: for the right names, from the right authority, for the right time."""

import datetime
import ssl
import tempfile

import pytest

from cordwood.security.certificates.certificate_authority import (
    CertificateAuthority,
    certificate_facts,
    covers,
)

_NOW = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)


@pytest.fixture(scope="module")
def authority() -> CertificateAuthority:
    return CertificateAuthority.create("tests", now=_NOW)


def test_a_certificate_has_the_names_and_addresses(authority: CertificateAuthority) -> None:
    issued = authority.issue("log", ["localhost", "127.0.0.1", "::1", "Log.Example"], now=_NOW)

    facts = certificate_facts(issued.certificate_pem)

    assert facts.subject == "CN=log"
    assert facts.names == {"localhost", "127.0.0.1", "::1", "Log.Example"}
    assert covers(facts, ["LOCALHOST", "0:0:0:0:0:0:0:1", "log.example"])
    assert not covers(facts, ["localhost", "other"])
    assert facts.days_left(_NOW) == 365


def test_a_certificate_does_not_outlive_its_authority(authority: CertificateAuthority) -> None:
    issued = authority.issue("late", ["x"], now=_NOW + datetime.timedelta(days=3600))

    assert certificate_facts(issued.certificate_pem).not_after == _NOW + datetime.timedelta(3650)


def test_an_authority_survives_its_files(authority: CertificateAuthority) -> None:
    again = CertificateAuthority.load(authority.key_pem, authority.certificate_pem)

    issued = again.issue("log", ["localhost"])

    assert authority.has_issued(issued.certificate_pem)
    assert not CertificateAuthority.create("other").has_issued(issued.certificate_pem)


def test_files_of_two_authorities_are_not_one(authority: CertificateAuthority) -> None:
    other = CertificateAuthority.create("other")

    with pytest.raises(ValueError, match="does not belong"):
        CertificateAuthority.load(other.key_pem, authority.certificate_pem)


def test_openssl_accepts_them_strictly() -> None:
    """Newer versions of Python check what older ones let pass."""
    authority = CertificateAuthority.create("tests")
    issued = authority.issue("log", ["log.example"])
    client = ssl.create_default_context(cadata=authority.certificate_pem.decode())
    client.verify_flags |= ssl.VERIFY_X509_STRICT
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.NamedTemporaryFile() as file:
        file.write(issued.store_pem)
        file.flush()
        server.load_cert_chain(file.name)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    one = client.wrap_bio(to_client, to_server, server_hostname="log.example")
    two = server.wrap_bio(to_server, to_client, server_side=True)

    for _ in range(2):
        for side in (one, two):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue

    assert one.version() == "TLSv1.3"


def test_no_repr_shows_a_key(authority: CertificateAuthority) -> None:
    assert "PRIVATE" not in repr(authority.issue("x"))
