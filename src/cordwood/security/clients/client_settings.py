"""A `ClientSecurity` in the settings of other clients: Java's, librdkafka, kafka-python, aiokafka.

The results contain passwords: they are for configuration files of mode 0600 and for the clients
themselves, not for logs.
"""

from typing import TYPE_CHECKING, Any, Final

from cordwood.errors import ConfigError
from cordwood.security.certificates.certificate_store import CertificateStore
from cordwood.security.clients.client_security import ClientSecurity
from cordwood.security.sasl.jaas import render_jaas
from cordwood.security.sasl.sasl_client import OAUTHBEARER, PLAIN

if TYPE_CHECKING:
    import ssl

_PACKAGE: Final = "org.apache.kafka.common.security"


def java_properties(security: ClientSecurity) -> dict[str, str]:
    """For Java's clients, Spark's Kafka source, and `--command-config`."""
    found = {"security.protocol": security.protocol.value}
    if security.protocol.has_sasl:
        found["sasl.mechanism"] = security.mechanism
        found["sasl.jaas.config"] = _jaas(security)
        if security.mechanism == OAUTHBEARER:
            found["sasl.oauthbearer.token.endpoint.url"] = f"file://{_token_file(security)}"
    if not security.protocol.has_tls:
        return found
    if security.trust is not None:
        found |= _java_store("ssl.truststore", "certificates", security.trust)
    if security.identity is not None:
        found |= _java_store("ssl.keystore", "certificate.chain", security.identity)
    if not security.is_host_verified:
        found["ssl.endpoint.identification.algorithm"] = ""
    return found


def _java_store(prefix: str, pem_key: str, store: CertificateStore) -> dict[str, str]:
    if store.key_location is not None:
        raise ConfigError(
            store.option, store.key_location, "Java reads a key and its certificate from one file"
        )
    found: dict[str, str] = {}
    if store.location is not None:
        found[f"{prefix}.type"] = "PKCS12" if store.is_pkcs12() else "PEM"
        found[f"{prefix}.location"] = store.location
    else:
        found[f"{prefix}.type"] = "PEM"
        found[f"{prefix}.{pem_key}"] = store.pem or ""
        if store.key_pem is not None:
            found[f"{prefix}.key"] = store.key_pem.reveal()
    if store.password is not None:
        found[f"{prefix}.password"] = store.password.reveal()
    if store.key_password is not None:
        found["ssl.key.password"] = store.key_password.reveal()
    return found


def _jaas(security: ClientSecurity) -> str:
    if security.mechanism == OAUTHBEARER:
        return render_jaas(f"{_PACKAGE}.oauthbearer.OAuthBearerLoginModule", {})
    module = "plain.PlainLoginModule" if security.mechanism == PLAIN else "scram.ScramLoginModule"
    return render_jaas(
        f"{_PACKAGE}.{module}",
        {"username": security.user, "password": security.current_password().reveal()},
    )


def librdkafka_settings(security: ClientSecurity) -> dict[str, str]:
    """For confluent-kafka and kcat."""
    found = {"security.protocol": security.protocol.value}
    if security.protocol.has_sasl:
        found["sasl.mechanism"] = security.mechanism
        if security.mechanism != OAUTHBEARER:
            found["sasl.username"] = security.user
            found["sasl.password"] = security.current_password().reveal()
    if not security.protocol.has_tls:
        return found
    if security.trust is not None:
        found |= _librdkafka_trust(security.trust)
    if security.identity is not None:
        found |= _librdkafka_identity(security.identity)
    found["ssl.endpoint.identification.algorithm"] = (
        "https" if security.is_host_verified else "none"
    )
    return found


def _librdkafka_trust(store: CertificateStore) -> dict[str, str]:
    if store.pem is not None:
        return {"ssl.ca.pem": store.pem}
    if _is_pkcs12(store):
        return {"ssl.ca.pem": store.pkcs12_certificates().decode()}
    return {"ssl.ca.location": store.path}


def _librdkafka_identity(store: CertificateStore) -> dict[str, str]:
    password = {}
    if store.key_password is not None:
        password["ssl.key.password"] = store.key_password.reveal()
    if store.pem is not None:
        key = "" if store.key_pem is None else store.key_pem.reveal()
        return {"ssl.certificate.pem": store.pem, "ssl.key.pem": key, **password}
    if _is_pkcs12(store):
        secret = "" if store.password is None else store.password.reveal()
        return {"ssl.keystore.location": store.path, "ssl.keystore.password": secret}
    return {
        "ssl.certificate.location": store.path,
        "ssl.key.location": store.key_location or store.path,
        **password,
    }


def _is_pkcs12(store: CertificateStore) -> bool:
    try:
        return store.is_pkcs12()
    except OSError as error:
        if isinstance(error, IsADirectoryError):
            return False  # a directory of certificates
        raise ConfigError(store.option, store.shown, f"cannot be read: {error.strerror}") from error


def kafka_python_settings(security: ClientSecurity) -> dict[str, Any]:
    """Keyword arguments for kafka-python; PEM files only."""
    found: dict[str, Any] = {"security_protocol": security.protocol.value}
    found |= _python_sasl(security)
    if not security.protocol.has_tls:
        return found
    if security.trust is not None:
        found["ssl_cafile"] = security.trust.path
    if security.identity is not None:
        found["ssl_certfile"] = security.identity.path
        found["ssl_keyfile"] = security.identity.key_location or security.identity.path
        if security.identity.key_password is not None:
            found["ssl_password"] = security.identity.key_password.reveal()
    if not security.is_host_verified:
        found["ssl_check_hostname"] = False
    return found


def aiokafka_settings(security: ClientSecurity, context: "ssl.SSLContext | None") -> dict[str, Any]:
    """Keyword arguments for aiokafka, which takes a TLS context."""
    found: dict[str, Any] = {"security_protocol": security.protocol.value}
    found |= _python_sasl(security)
    if security.protocol.has_tls:
        found["ssl_context"] = context
    return found


def _python_sasl(security: ClientSecurity) -> dict[str, Any]:
    if not security.protocol.has_sasl:
        return {}
    found: dict[str, Any] = {"sasl_mechanism": security.mechanism}
    if security.mechanism != OAUTHBEARER:
        found["sasl_plain_username"] = security.user
        found["sasl_plain_password"] = security.current_password().reveal()
    return found


def _token_file(security: ClientSecurity) -> str:
    if security.token_file is None:
        raise ConfigError("token", "(function)", "Java's clients read a token from a file")
    return security.token_file
