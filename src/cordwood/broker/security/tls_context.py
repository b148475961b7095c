"""Makes OpenSSL's context for one listener from its configuration, and checks it while doing so.

tickets          none in TLS 1.3: Kafka clients keep connections and seldom resume them
renegotiation    off: nothing that clients may ask for repeatedly
end of stream    a client that just disconnects has ended like one that says so first; frames
                 have sizes, so nothing can be cut off unseen
"""

import contextlib
import os
import ssl
import tempfile
from collections.abc import Iterator
from typing import Final

from cordwood.broker.config.tls_config import TlsConfig
from cordwood.broker.security.tls_material import KeyMaterial, read_key, read_trust
from cordwood.errors import ConfigError
from cordwood.security.certificates.certificate import Certificate
from cordwood.value_class import dataclass

_OP_IGNORE_UNEXPECTED_EOF: Final = getattr(ssl, "OP_IGNORE_UNEXPECTED_EOF", 1 << 7)
_VERIFY: Final = {
    "none": ssl.CERT_NONE,
    "requested": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}
_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
# Suites of TLS 1.3, in the order in which OpenSSL prefers them.
_SUITES_13: Final = (
    "TLS_AES_256_GCM_SHA384",
    "TLS_CHACHA20_POLY1305_SHA256",
    "TLS_AES_128_GCM_SHA256",
)
# Suites of TLS 1.2: IANA's names, and OpenSSL's.
_SUITES_12: Final = {
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": "ECDHE-ECDSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": "ECDHE-RSA-AES256-GCM-SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": "ECDHE-ECDSA-AES128-GCM-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA384": "ECDHE-ECDSA-AES256-SHA384",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA384": "ECDHE-RSA-AES256-SHA384",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256": "ECDHE-ECDSA-AES128-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256": "ECDHE-RSA-AES128-SHA256",
    "TLS_RSA_WITH_AES_256_GCM_SHA384": "AES256-GCM-SHA384",
    "TLS_RSA_WITH_AES_128_GCM_SHA256": "AES128-GCM-SHA256",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsContext:
    """A context for new connections, and the certificate that it shows to clients.

    `suites` are those that a connection may end up with; empty: any of the context.
    """

    context: ssl.SSLContext
    certificate: Certificate
    suites: frozenset[str] = frozenset()
    warnings: tuple[str, ...] = ()


def make_context(config: TlsConfig) -> TlsContext:
    """Read the files and make a context. Raises `ConfigError`."""
    key = read_key(config)
    trust = read_trust(config)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    suites = _set_suites(context, config)
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE
    context.options |= ssl.OP_NO_COMPRESSION | _OP_IGNORE_UNEXPECTED_EOF
    context.num_tickets = 0
    _load_key(context, key, config)
    _set_client_auth(context, trust, config)
    return TlsContext(
        context=context, certificate=key.certificate, suites=suites, warnings=key.warnings
    )


def _load_key(context: ssl.SSLContext, key: KeyMaterial, config: TlsConfig) -> None:
    name, shown = "ssl.keystore.location", config.ssl_keystore_location or ""
    if config.ssl_keystore_key is not None:
        name, shown = "ssl.keystore.key", "[hidden]"
    try:
        with _as_file(key.pem) as path:
            # Without a password OpenSSL would ask at the terminal for it.
            context.load_cert_chain(path, password=lambda: key.password or "")
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            reason = "the private key does not belong to the first certificate"
        elif "ENCRYPTED" in key.pem.decode("latin-1") and key.password is None:
            reason = "the private key is encrypted; set ssl.key.password"
        elif "ENCRYPTED" in key.pem.decode("latin-1"):
            reason = f"the private key cannot be read; is ssl.key.password right? ({error})"
        else:
            reason = f"OpenSSL refuses it: {error}"
        raise ConfigError(name, shown, reason) from error


@contextlib.contextmanager
def _as_file(content: bytes) -> Iterator[str]:
    """A path of `content` that only this process can read: OpenSSL takes keys from files only."""
    if hasattr(os, "memfd_create") and os.path.isdir("/proc/self/fd"):
        fd = os.memfd_create("cordwood-key", os.MFD_CLOEXEC)
        with open(fd, "wb") as file:
            file.write(content)
            file.flush()
            yield f"/proc/self/fd/{fd}"
        return
    with tempfile.NamedTemporaryFile() as named:  # mode 0600
        named.write(content)
        named.flush()
        yield named.name


def _set_client_auth(context: ssl.SSLContext, trust: str | None, config: TlsConfig) -> None:
    context.verify_mode = _VERIFY[config.ssl_client_auth]
    if trust is not None:
        key = (
            "ssl.truststore.location"
            if config.ssl_truststore_certificates is None
            else "ssl.truststore.certificates"
        )
        try:
            context.load_verify_locations(cadata=trust)
        except ssl.SSLError as error:
            shown = config.ssl_truststore_location or "..."
            raise ConfigError(key, shown, f"OpenSSL refuses it: {error}") from error
        # As in Java, each certificate in the store is trusted by itself, not only roots.
        context.verify_flags |= ssl.VerifyFlags.VERIFY_X509_PARTIAL_CHAIN
    elif config.ssl_client_auth != "none":
        raise ConfigError(
            "ssl.truststore.location",
            "",
            f"must be set, because ssl.client.auth is {config.ssl_client_auth}: the certificates "
            "that sign those of clients",
        )


def _set_suites(context: ssl.SSLContext, config: TlsConfig) -> frozenset[str]:
    """Set versions and suites. Returns those to check for, where Python cannot set them."""
    versions, listed = set(config.ssl_enabled_protocols), config.ssl_cipher_suites
    newer = tuple(name for name in listed if name in _SUITES_13)
    older = [_SUITES_12[name] for name in listed if name in _SUITES_12]
    if listed:
        _refuse_unknown(listed)
        versions &= ({"TLSv1.3"} if newer else set()) | ({"TLSv1.2"} if older else set())
        if not versions:
            raise ConfigError(
                "ssl.cipher.suites", ",".join(listed), "has no suite of ssl.enabled.protocols"
            )
    context.minimum_version = min(_VERSIONS[name] for name in versions)
    context.maximum_version = max(_VERSIONS[name] for name in versions)
    if older and "TLSv1.2" in versions:
        try:
            context.set_ciphers(":".join(older))
        except ssl.SSLError as error:
            raise ConfigError(
                "ssl.cipher.suites", ",".join(listed), f"OpenSSL refuses it: {error}"
            ) from error
    if not listed or "TLSv1.3" not in versions or set(newer) == set(_SUITES_13):
        return frozenset()
    if set(newer) != set(_SUITES_13[: len(newer)]):
        raise ConfigError(
            "ssl.cipher.suites",
            ",".join(listed),
            "Python cannot choose suites of TLS 1.3 freely: list the first, the first two or all "
            f"of {', '.join(_SUITES_13)}; or none, which turns TLS 1.3 off",
        )
    return frozenset(newer)


def _refuse_unknown(listed: tuple[str, ...]) -> None:
    for name in listed:
        if name not in _SUITES_13 and name not in _SUITES_12:
            known = ", ".join((*_SUITES_13, *_SUITES_12))
            raise ConfigError("ssl.cipher.suites", name, f"is not one of {known}")
