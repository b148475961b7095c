"""TLS of clients: which files are read, and what is said of those that cannot be."""

import ssl
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
    pkcs12,
)
from cryptography.x509 import load_pem_x509_certificate

from cordwood.errors import ConfigError
from cordwood.security.certificates.certificate_authority import (
    CertificateAuthority,
    IssuedCertificate,
)
from cordwood.security.certificates.certificate_store import CertificateStore
from cordwood.security.clients.client_security import ClientProtocol, ClientSecurity
from cordwood.security.clients.client_tls import tls_context
from cordwood.security.secret import Secret


@pytest.fixture(scope="module")
def authority() -> CertificateAuthority:
    return CertificateAuthority.create("tests")


@pytest.fixture(scope="module")
def issued(authority: CertificateAuthority) -> IssuedCertificate:
    return authority.issue("alice")


def _context(
    trust: CertificateStore | None = None, identity: CertificateStore | None = None
) -> ssl.SSLContext:
    return tls_context(ClientSecurity(protocol=ClientProtocol.SSL, trust=trust, identity=identity))


def _pkcs12(authority: CertificateAuthority, issued: IssuedCertificate, password: bytes) -> bytes:
    key = load_pem_private_key(issued.key_pem, None)
    return pkcs12.serialize_key_and_certificates(
        b"alice",
        key,  # type: ignore[arg-type]
        load_pem_x509_certificate(issued.certificate_pem),
        [load_pem_x509_certificate(authority.certificate_pem)],
        BestAvailableEncryption(password),
    )


def test_certificates_and_host_names_are_checked_unless_only_names_are_switched_off() -> None:
    checked = tls_context(ClientSecurity(protocol=ClientProtocol.SSL))
    unnamed = tls_context(ClientSecurity(protocol=ClientProtocol.SSL, is_host_verified=False))

    assert checked.check_hostname
    assert not unnamed.check_hostname
    assert checked.verify_mode is unnamed.verify_mode is ssl.CERT_REQUIRED
    assert checked.minimum_version is ssl.TLSVersion.TLSv1_2


def test_trust_comes_from_a_file_or_a_text_or_a_pkcs12_file(
    tmp_path: Path, authority: CertificateAuthority
) -> None:
    pem = tmp_path / "ca.pem"
    pem.write_bytes(authority.certificate_pem)
    trust = tmp_path / "trust.p12"
    trust.write_bytes(
        pkcs12.serialize_key_and_certificates(
            None,
            None,
            None,
            [load_pem_x509_certificate(authority.certificate_pem)],
            BestAvailableEncryption(b"changeit"),
        )
    )

    for store in (
        CertificateStore(option="--ca", location=str(pem)),
        CertificateStore(option="ssl.ca.pem", pem=authority.certificate_pem.decode()),
        CertificateStore(
            option="ssl.ca.pem", pem="# T\u00dcRKTRUST\n" + authority.certificate_pem.decode()
        ),
        CertificateStore(option="--ca", location=str(trust), password=Secret("changeit")),
    ):
        assert _context(store).cert_store_stats()["x509_ca"] == 1


def test_the_clients_key_comes_from_files_or_texts_or_a_pkcs12_file(
    tmp_path: Path, authority: CertificateAuthority, issued: IssuedCertificate
) -> None:
    both, certificate, key, encrypted, p12 = (
        tmp_path / name for name in ("both.pem", "cert.pem", "key.pem", "enc.pem", "a.p12")
    )
    both.write_bytes(issued.store_pem)
    certificate.write_bytes(issued.certificate_pem)
    key.write_bytes(issued.key_pem)
    encrypted_key = load_pem_private_key(issued.key_pem, None).private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"pencil")
    )
    encrypted.write_bytes(encrypted_key + issued.certificate_pem)
    p12.write_bytes(_pkcs12(authority, issued, b"changeit"))

    for identity in (
        CertificateStore(option="x", location=str(both)),
        CertificateStore(option="x", location=str(certificate), key_location=str(key)),
        CertificateStore(option="x", location=str(encrypted), key_password=Secret("pencil")),
        CertificateStore(option="x", location=str(p12), password=Secret("changeit")),
        CertificateStore(
            option="x",
            pem=issued.certificate_pem.decode(),
            key_pem=Secret(encrypted_key.decode()),
            key_password=Secret("pencil"),
        ),
    ):
        _context(identity=identity)


def test_what_cannot_be_used_is_named_with_its_option(
    tmp_path: Path, authority: CertificateAuthority, issued: IssuedCertificate
) -> None:
    jks, text, p12, encrypted = (tmp_path / n for n in ("a.jks", "a.txt", "a.p12", "enc.pem"))
    jks.write_bytes(b"\xfe\xed\xfe\xed\x00\x00\x00\x02")
    text.write_text("nothing")
    p12.write_bytes(_pkcs12(authority, issued, b"changeit"))
    encrypted.write_bytes(
        load_pem_private_key(issued.key_pem, None).private_bytes(
            Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"pencil")
        )
        + issued.certificate_pem
    )
    trust = [
        (CertificateStore(option="--ca", location=str(jks)), r"keytool .*a\.p12 -deststoretype"),
        (CertificateStore(option="--ca", location=str(text)), "--ca = .*no certificates"),
        (CertificateStore(option="--ca", location=str(tmp_path / "x")), "No such file"),
        (CertificateStore(option="--ca", pem="nothing"), "no certificates"),
    ]
    identity = [
        (CertificateStore(option="--cert", location=str(text)), "--cert = .*private key"),
        (CertificateStore(option="--cert", location=str(tmp_path / "x")), "No such file"),
        (CertificateStore(option="--cert", location=str(encrypted)), "ssl.key.password"),
        (
            CertificateStore(option="--cert", location=str(encrypted), key_password=Secret("no")),
            "must have a certificate",
        ),
        (
            CertificateStore(option="--cert", location=str(p12), password=Secret("hunter2")),
            "its password is wrong",
        ),
    ]

    for store, message in trust:
        with pytest.raises(ConfigError, match=message):
            _context(store)
    for store, message in identity:
        with pytest.raises(ConfigError, match=message) as raised:
            _context(identity=store)
        assert "hunter2" not in str(raised.value)
