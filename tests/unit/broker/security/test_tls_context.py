"""Contexts from files and values; what is wrong with them is said with the key."""

import logging
import os
import shutil
import ssl
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import pkcs12

from cordwood.broker.config.broker_config import BrokerConfig
from cordwood.broker.config.security_config import SecurityConfig
from cordwood.broker.config.tls_config import TlsConfig
from cordwood.broker.security.tls_context import make_context
from cordwood.broker.security.tls_listener import TlsListener
from cordwood.errors import ConfigError
from fakes.tls_files import TlsFiles

PASSWORD = "secret"


@pytest.fixture
def files(tmp_path: Path) -> TlsFiles:
    return TlsFiles(tmp_path)


def config(files: TlsFiles) -> TlsConfig:
    return TlsConfig(ssl_keystore_location=files.broker, ssl_truststore_location=files.ca)


def parts_of(files: TlsFiles) -> tuple[serialization.pkcs12.PKCS12PrivateKeyTypes, bytes]:
    pem = Path(files.broker).read_bytes()
    key = serialization.load_pem_private_key(pem, None)
    assert not isinstance(key, str)
    chain = pem[pem.index(b"-----BEGIN CERTIFICATE") :]
    return key, chain  # type: ignore[return-value]


def encrypted(files: TlsFiles) -> bytes:
    key, _ = parts_of(files)
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(PASSWORD.encode()),
    )


def write_pkcs12(files: TlsFiles, path: Path) -> str:
    key, chain = parts_of(files)
    first, *more = x509.load_pem_x509_certificates(chain)
    authority = x509.load_pem_x509_certificate(files.authority.cert_pem.bytes())
    path.write_bytes(
        pkcs12.serialize_key_and_certificates(
            b"broker",
            key,
            first,
            [*more, authority],
            serialization.BestAvailableEncryption(PASSWORD.encode()),
        )
    )
    path.chmod(0o600)
    return str(path)


# --- key stores ----------------------------------------------------------------------------------


def test_a_pem_file_has_key_and_certificates(files: TlsFiles) -> None:
    made = make_context(config(files))

    assert made.certificate.subject.startswith("CN=broker,OU=brokers")
    assert made.certificate.alternative_names >= {"DNS:localhost"}
    assert made.warnings == ()


def test_key_and_certificates_can_be_values(files: TlsFiles) -> None:
    key, chain = parts_of(files)
    plain = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    inline = TlsConfig(
        ssl_keystore_key=plain.decode(),
        ssl_keystore_certificate_chain=chain.decode(),
        ssl_truststore_certificates=files.authority.cert_pem.bytes().decode(),
        ssl_client_auth="required",
    )

    assert make_context(inline).certificate.subject.startswith("CN=broker")
    locked = replace(inline, ssl_keystore_key=encrypted(files).decode(), ssl_key_password=PASSWORD)
    assert make_context(locked).certificate.subject.startswith("CN=broker")


def test_text_between_trusted_certificates_need_not_be_ascii(
    files: TlsFiles, tmp_path: Path
) -> None:
    text = f"# T\u00dcRKTRUST\n{Path(files.ca).read_text()}"
    trust = tmp_path / "trust.pem"
    trust.write_text(text, encoding="utf-8")
    of_file = replace(config(files), ssl_truststore_location=str(trust))
    of_value = replace(
        config(files), ssl_truststore_location=None, ssl_truststore_certificates=text
    )
    for each in (of_file, of_value):
        assert make_context(each).context.cert_store_stats()["x509_ca"] == 1


@pytest.mark.parametrize("password", [None, "wrong"])
def test_an_encrypted_key_needs_its_password(files: TlsFiles, password: str | None) -> None:
    _, chain = parts_of(files)
    Path(files.broker).write_bytes(encrypted(files) + chain)

    with pytest.raises(ConfigError, match=r"ssl.key.password"):
        make_context(replace(config(files), ssl_key_password=password))

    right = make_context(replace(config(files), ssl_key_password=PASSWORD))
    assert right.certificate.subject.startswith("CN=broker")


@pytest.mark.parametrize("name", ["broker.p12", "broker.keystore"])
def test_a_pkcs12_file_has_key_and_certificates(files: TlsFiles, tmp_path: Path, name: str) -> None:
    """Java calls them .keystore or .jks, too: its newer versions write PKCS12 under any name."""
    path = write_pkcs12(files, tmp_path / name)
    given = TlsConfig(ssl_keystore_location=path, ssl_keystore_password=PASSWORD)

    assert make_context(given).certificate.subject.startswith("CN=broker")
    for typed in ("PKCS12", "JKS"):
        made = make_context(replace(given, ssl_keystore_type=typed))
        assert made.certificate.subject.startswith("CN=broker")


def test_a_pkcs12_trust_store_of_keytool_is_read(files: TlsFiles, tmp_path: Path) -> None:
    keytool = shutil.which("keytool")
    if keytool is None:
        pytest.skip("needs Java's keytool")
    store = tmp_path / "trust.p12"
    subprocess.run(
        [
            *(keytool, "-importcert", "-noprompt", "-alias", "ca", "-file", files.ca),
            *("-keystore", str(store), "-storetype", "PKCS12", "-storepass", "changeit"),
        ],
        check=True,
        capture_output=True,
    )
    given = replace(
        config(files),
        ssl_truststore_location=str(store),
        ssl_truststore_password="changeit",
        ssl_client_auth="required",
    )

    assert make_context(given).context.get_ca_certs()


@pytest.mark.parametrize(
    ("content", "changes", "key", "reason"),
    [
        (b"", {}, "ssl.keystore.location", "has no certificate"),
        (b"\xfe\xed\xfe\xed\0\0\0\2", {}, "ssl.keystore.type", "keytool -importkeystore"),
        (None, {"ssl_keystore_location": None}, "ssl.keystore.location", "must be set"),
        (None, {"ssl_keystore_password": "x"}, "ssl.keystore.password", "ssl.key.password"),
        (b"\x30\x03\x02\x01\x00", {}, "ssl.keystore.location", "is ssl.keystore.password right"),
        (
            None,
            {"ssl_truststore_location": None, "ssl_client_auth": "requested"},
            "ssl.truststore.location",
            "because ssl.client.auth is requested",
        ),
        (None, {"ssl_truststore_location": "/nowhere"}, "ssl.truststore.location", "No such file"),
        (None, {"ssl_truststore_certificates": "x"}, "ssl.truststore.certificates", "has no"),
        (None, {"ssl_cipher_suites": ("TLS_X",)}, "ssl.cipher.suites", "TLS_AES_256_GCM_SHA384"),
        (
            None,
            {"ssl_cipher_suites": ("TLS_AES_128_GCM_SHA256",)},
            "ssl.cipher.suites",
            "list the first",
        ),
        (
            None,
            {
                "ssl_cipher_suites": ("TLS_AES_256_GCM_SHA384",),
                "ssl_enabled_protocols": ("TLSv1.2",),
            },
            "ssl.cipher.suites",
            "no suite of ssl.enabled.protocols",
        ),
    ],
)
def test_what_cannot_be_used_is_refused_by_its_key(
    files: TlsFiles, content: bytes | None, changes: dict[str, object], key: str, reason: str
) -> None:
    if content is not None:
        Path(files.broker).write_bytes(content)

    with pytest.raises(ConfigError, match=reason) as caught:
        make_context(replace(config(files), **changes))  # type: ignore[arg-type]

    assert caught.value.key == key


def test_a_key_of_another_certificate_is_refused(files: TlsFiles) -> None:
    files.write_mismatch()

    with pytest.raises(ConfigError, match="does not belong"):
        make_context(config(files))


def test_a_certificate_without_its_key_is_refused(files: TlsFiles) -> None:
    Path(files.broker).write_bytes(parts_of(files)[1])

    with pytest.raises(ConfigError, match="has no private key"):
        make_context(config(files))


def test_a_key_that_everybody_can_read_is_warned_of(files: TlsFiles) -> None:
    Path(files.broker).chmod(0o644)

    (warning,) = make_context(config(files)).warnings

    assert f"chmod 600 {files.broker}" in warning


def test_passwords_are_in_no_error(files: TlsFiles, tmp_path: Path) -> None:
    path = write_pkcs12(files, tmp_path / "broker.p12")
    given = TlsConfig(ssl_keystore_location=path, ssl_keystore_password="not-the-password")

    with pytest.raises(ConfigError) as caught:
        make_context(given)

    assert "not-the-password" not in str(caught.value)


# --- versions and suites -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "versions", "suites"),
    [
        ({}, ("TLSv1_2", "TLSv1_3"), frozenset()),
        ({"ssl_enabled_protocols": ("TLSv1.3",)}, ("TLSv1_3", "TLSv1_3"), frozenset()),
        (
            {"ssl_cipher_suites": ("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",)},
            ("TLSv1_2", "TLSv1_2"),
            frozenset(),
        ),
        (
            {"ssl_cipher_suites": ("TLS_AES_256_GCM_SHA384",)},
            ("TLSv1_3", "TLSv1_3"),
            frozenset({"TLS_AES_256_GCM_SHA384"}),
        ),
    ],
)
def test_versions_and_suites_limit_each_other(
    files: TlsFiles,
    changes: dict[str, object],
    versions: tuple[str, str],
    suites: frozenset[str],
) -> None:
    made = make_context(replace(config(files), **changes))  # type: ignore[arg-type]

    context = made.context
    assert (context.minimum_version.name, context.maximum_version.name) == versions
    assert made.suites == suites


def test_contexts_have_no_tickets_and_no_renegotiation(files: TlsFiles) -> None:
    context = make_context(config(files)).context

    assert context.num_tickets == 0
    assert context.options & ssl.OP_NO_RENEGOTIATION


# --- listeners -----------------------------------------------------------------------------------


def listener(files: TlsFiles, **more: object) -> TlsListener:
    values = files.listener_config(**more)
    listeners = str(values.pop("listeners"))
    security = SecurityConfig.assemble(BrokerConfig(listeners=listeners), values)
    return TlsListener(security.listeners[0])


def test_a_wrong_rule_is_refused_by_its_key(files: TlsFiles) -> None:
    with pytest.raises(ConfigError, match=r"ssl.principal.mapping.rules = RULE:x"):
        listener(files, ssl_principal_mapping_rules="RULE:x")


def test_a_listener_says_which_certificate_it_uses(
    files: TlsFiles, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        made = listener(files)

    assert made.certificate.fingerprint in caplog.text
    assert "expires on" in caplog.text


def test_files_that_have_not_changed_are_not_read_again(files: TlsFiles) -> None:
    made = listener(files)

    assert not made.reload()
    assert made.reload(is_forced=True)
    files.write_broker(key_type=trustme.KeyType.RSA)
    assert made.reload()
    assert not made.reload()


def test_a_pipe_instead_of_a_certificate_does_not_stop_the_watching_of_files(
    files: TlsFiles, tmp_path: Path
) -> None:
    pipe = tmp_path / "pipe.pem"
    os.mkfifo(pipe)  # nobody writes to it: a plain open would wait for ever

    with pytest.raises(ConfigError, match=r"ssl\.keystore\.location"):
        make_context(replace(config(files), ssl_keystore_location=str(pipe)))
