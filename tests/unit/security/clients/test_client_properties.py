"""Property files of Java's clients and of librdkafka."""

from pathlib import Path

import pytest

from cordwood.errors import ConfigError
from cordwood.security.certificates.certificate_authority import CertificateAuthority
from cordwood.security.certificates.certificate_store import CertificateStore
from cordwood.security.clients.client_properties import parse_client_properties
from cordwood.security.clients.client_security import ClientProtocol, ClientSecurity
from cordwood.security.clients.client_settings import (
    java_properties,
    kafka_python_settings,
    librdkafka_settings,
)
from cordwood.security.secret import Secret

_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required"
_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"


def test_nothing_is_plaintext() -> None:
    assert parse_client_properties({}).security == ClientSecurity()


def test_the_properties_of_javas_clients() -> None:
    found = parse_client_properties(
        {
            "bootstrap.servers": "log.example:9093",
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.jaas.config": f'{_SCRAM} username="alice" password="pen\\"cil";',
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": "/etc/ca.pem",
            "ssl.keystore.location": "/etc/client.p12",
            "ssl.keystore.type": "PKCS12",
            "ssl.keystore.password": "changeit",
            "ssl.key.password": "key",
            "ssl.endpoint.identification.algorithm": "",
            "client.id": "billing",
        }
    )

    security = found.security
    assert found.bootstrap_servers == "log.example:9093"
    assert found.without_effect == ("client.id",)
    assert security.protocol is ClientProtocol.SASL_SSL
    assert (security.mechanism, security.user) == ("SCRAM-SHA-512", "alice")
    assert security.password == Secret('pen"cil')
    assert security.trust == CertificateStore(
        option="ssl.truststore.location", location="/etc/ca.pem", kind="PEM"
    )
    assert security.identity is not None
    assert security.identity.password == Secret("changeit")
    assert not security.is_host_verified
    assert "cil" not in repr(found)
    assert "changeit" not in repr(found)


def test_the_settings_of_librdkafka() -> None:
    security = parse_client_properties(
        {
            "security.protocol": "sasl_ssl",
            "sasl.mechanisms": "PLAIN",
            "sasl.username": "alice",
            "sasl.password": "pencil",
            "ssl.ca.location": "/etc/ca.pem",
            "ssl.certificate.location": "/etc/client.pem",
            "ssl.key.location": "/etc/client.key",
        }
    ).security

    assert (security.mechanism, security.user) == ("PLAIN", "alice")
    assert security.trust is not None
    assert security.trust.location == "/etc/ca.pem"
    assert security.identity is not None
    assert security.identity.key_location == "/etc/client.key"
    assert security.is_host_verified


def test_a_token_comes_from_a_file(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("abc.def.ghi\n")

    security = parse_client_properties(
        {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.jaas.config": "org.apache.kafka.common.security.oauthbearer."
            "OAuthBearerLoginModule required;",
            "sasl.oauthbearer.token.endpoint.url": token.as_uri(),
        }
    ).security

    assert security.sasl_client().first() == b"n,,\x01auth=Bearer abc.def.ghi\x01\x01"


_SASL = {"security.protocol": "SASL_SSL"}


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"security.protocol": "TLS"}, "must be one of PLAINTEXT, SSL"),
        ({"sasl.mechanism": "PLAIN"}, "must be set, or sasl.mechanism has no"),
        ({**_SASL, "sasl.mechanism": "GSSAPI"}, "GSSAPI: must be one of PLAIN"),
        ({**_SASL}, "sasl.username = : must be set with sasl.password"),
        ({**_SASL, "sasl.jaas.config": f"{_SCRAM};"}, "must have username"),
        (
            {**_SASL, "sasl.mechanism": "PLAIN", "sasl.jaas.config": f"{_SCRAM} username=a;"},
            "ScramLoginModule in sasl.jaas.config is not for it",
        ),
        (
            {**_SASL, "sasl.jaas.config": "com.x.Krb5LoginModule required;"},
            "Krb5LoginModule is not supported",
        ),
        (
            {**_SASL, "sasl.mechanism": "OAUTHBEARER",
             "sasl.oauthbearer.token.endpoint.url": "https://idp.example/token"},
            "must be the URL of a file",
        ),
        ({"security.protocol": "SSL", "ssl.trustore.location": "x"}, "did you mean ssl.truststore"),
        ({"security.protocol": "SSL", "ssl.cipher.suites": "x"}, "is not supported"),
        ({"security.protocol": "SSL", "ssl.engine.factory.class": "x"}, "is not supported"),
        (
            {"security.protocol": "SSL", "enable.ssl.certificate.verification": "false"},
            "pretend to be the broker",
        ),
        (
            {"security.protocol": "SSL", "ssl.endpoint.identification.algorithm": "ldaps"},
            "must be https",
        ),
        ({"security.protocol": "SSL", "ssl.enabled.protocols": "TLSv1.1"}, "TLSv1.2, TLSv1.3"),
        ({"security.protocol": "SSL", "ssl.keystore.key": "x"}, "chain = : must be set"),
        ({"security.protocol": "SSL", "ssl.truststore.type": "BKS",
          "ssl.truststore.location": "x"}, "must be one of PEM, PKCS12"),
    ],
)  # fmt: skip
def test_what_would_not_protect_is_refused(properties: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_client_properties(properties)


@pytest.mark.parametrize(
    "properties",
    [
        {**_SASL, "sasl.jaas.config": f'{_PLAIN} username="a" password="hunter2'},
        {**_SASL, "sasl.jaas.config": f'{_PLAIN} username="" password="hunter2";'},
        {**_SASL, "sasl.passwort": "hunter2"},
        {**_SASL, "sasl.password": "hunter2"},
    ],
)
def test_no_error_shows_a_password(properties: dict[str, str]) -> None:
    with pytest.raises(ConfigError) as raised:
        parse_client_properties(properties)

    assert "hunter2" not in f"{raised.value!r} {vars(raised.value)}"


def test_what_is_written_for_java_is_read_back() -> None:
    security = ClientSecurity(
        protocol=ClientProtocol.SASL_SSL,
        trust=CertificateStore(option="ssl.truststore.certificates", pem="-----BEGIN"),
        mechanism="PLAIN",
        user='a"b',
        password=Secret("p\\q;"),
        is_host_verified=False,
    )

    assert parse_client_properties(java_properties(security)).security == security


def test_what_is_written_for_librdkafka_is_read_back(tmp_path: Path) -> None:
    ca = tmp_path / "ca.pem"
    ca.write_bytes(CertificateAuthority.create("x").certificate_pem)
    security = ClientSecurity(
        protocol=ClientProtocol.SASL_SSL,
        trust=CertificateStore(option="ssl.ca.location", location=str(ca)),
        mechanism="SCRAM-SHA-512",
        user="alice",
        password=Secret("pencil"),
    )

    settings = librdkafka_settings(security)

    assert parse_client_properties(settings).security == security
    assert kafka_python_settings(security) == {
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_plain_username": "alice",
        "sasl_plain_password": "pencil",
        "ssl_cafile": str(ca),
    }


def test_a_password_file_is_read_for_each_connection(tmp_path: Path) -> None:
    file = tmp_path / "password"
    security = ClientSecurity(
        protocol=ClientProtocol.SASL_SSL, mechanism="PLAIN", user="a", password_file=str(file)
    )

    with pytest.raises(ConfigError, match=r"password file = .*cannot be read"):
        security.sasl_client()
    file.write_text("one\n")
    first = security.sasl_client().first()
    file.write_text("two\n")

    assert first == b"\0a\0one"
    assert security.sasl_client().first() == b"\0a\0two"


@pytest.mark.parametrize("key", ["sasl.passsword", "sasl.pwd", "sasl.jass.config", "ssl.secrt"])
def test_the_value_of_a_misspelt_key_is_not_shown(key: str) -> None:
    with pytest.raises(ConfigError) as raised:
        parse_client_properties({"security.protocol": "SASL_SSL", key: "hunter2"})

    assert key in str(raised.value)
    assert "hunter2" not in f"{raised.value!r} {raised.value}"
