"""The TLS context of a client: whom it trusts, and what it shows of itself."""

import contextlib
import os
import ssl
import tempfile
from collections.abc import Iterator
from typing import Final

from cordwood.errors import ConfigError
from cordwood.security.certificates.certificate_store import CertificateStore
from cordwood.security.clients.client_security import ClientSecurity

_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}


def tls_context(security: ClientSecurity) -> ssl.SSLContext:
    """Raises `ConfigError` if a file cannot be used."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    versions = [_VERSIONS[name] for name in security.tls_versions]
    context.minimum_version, context.maximum_version = min(versions), max(versions)
    context.check_hostname = security.is_host_verified
    # As in Java: every certificate in a trust store is trusted, also one that others signed.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    if security.trust is None:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    else:
        _load_trust(context, security.trust)
    if security.identity is not None:
        _load_identity(context, security.identity)
    return context


def _load_trust(context: ssl.SSLContext, store: CertificateStore) -> None:
    try:
        if store.pem is not None:
            # Text between certificates may be anything. Python takes ASCII only.
            context.load_verify_locations(cadata=store.pem.encode("ascii", "replace").decode())
        elif os.path.isdir(store.path):
            context.load_verify_locations(capath=store.path)
        elif store.is_pkcs12():
            context.load_verify_locations(cadata=store.pkcs12_certificates().decode())
        else:
            context.load_verify_locations(cafile=store.path)
    except ConfigError:
        raise
    except (ssl.SSLError, OSError, ValueError) as error:
        raise _unusable(store, error, "has no certificates that can be read") from error


def _load_identity(context: ssl.SSLContext, store: CertificateStore) -> None:
    """OpenSSL reads a key only from a file: a key in memory gets one that nobody else can open."""
    password = store.key_password

    def key_password() -> str:
        if password is None:  # without this function OpenSSL would ask at the terminal
            raise ConfigError(
                store.option,
                store.key_location or store.shown,
                "is encrypted; set the password of the key (ssl.key.password)",
            )
        return password.reveal()

    try:
        if store.pem is not None or store.key_pem is not None:
            content = f"{store.key_pem.reveal() if store.key_pem else ''}\n{store.pem or ''}"
            with _private_file(content.encode()) as path:
                context.load_cert_chain(path, password=key_password)
        elif store.is_pkcs12():
            pem, once = store.pkcs12_identity()
            with _private_file(pem) as path:
                context.load_cert_chain(path, password=once.reveal())
        else:
            context.load_cert_chain(store.path, keyfile=store.key_location, password=key_password)
    except ConfigError:
        raise
    except (ssl.SSLError, OSError, ValueError) as error:
        raise _unusable(
            store, error, "must have a certificate and its private key, as PEM or PKCS12"
        ) from error


@contextlib.contextmanager
def _private_file(content: bytes) -> Iterator[str]:
    """A file with `content` while the block runs: in memory where the system can."""
    if hasattr(os, "memfd_create") and os.path.isdir("/proc/self/fd"):
        descriptor = os.memfd_create("cordwood", os.MFD_CLOEXEC)
        try:
            with open(descriptor, "wb", closefd=False) as file:
                file.write(content)
            yield f"/proc/self/fd/{descriptor}"
        finally:
            os.close(descriptor)
        return
    with tempfile.NamedTemporaryFile(prefix="cordwood-") as written:  # of mode 0600
        written.write(content)
        written.flush()
        yield written.name


def _unusable(store: CertificateStore, error: Exception, rule: str) -> ConfigError:
    if isinstance(error, OSError) and not isinstance(error, ssl.SSLError):
        missing = store.location
        if store.key_location and store.location and os.access(store.location, os.R_OK):
            missing = store.key_location
        return ConfigError(store.option, missing or "", f"cannot be read: {error.strerror}")
    reason = getattr(error, "reason", None) or ""
    wrong = " (the password is wrong, or the file is damaged)" if "DECRYPT" in reason else ""
    return ConfigError(store.option, store.shown, rule + wrong)
