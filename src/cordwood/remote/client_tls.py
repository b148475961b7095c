"""The TLS context of a client: whom it trusts, and what it shows of itself.

PEM comes in files or as text. PKCS12 needs the extra `security`. Java's older key stores (JKS) are
refused with the command that converts them.
"""

import contextlib
import os
import secrets
import ssl
import tempfile
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from cordwood.errors import ConfigError
from cordwood.remote.client_security import CertificateStore, ClientSecurity
from cordwood.security.secret import Secret

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.serialization.pkcs12 import PKCS12KeyAndCertificates

STORE_BYTES_MAX: Final = 16 * 1024 * 1024  # system bundles have a quarter of a megabyte

_JKS_MAGIC: Final = b"\xfe\xed\xfe\xed"
_DER_SEQUENCE: Final = b"\x30"
_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_NO_PASSWORD: Final = "is encrypted; set the password of the key (ssl.key.password)"


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


# --- whom it trusts ----------------------------------------------------------------------------


def _load_trust(context: ssl.SSLContext, store: CertificateStore) -> None:
    try:
        if store.pem is not None:
            context.load_verify_locations(cadata=store.pem)
        elif os.path.isdir(_location(store)):
            context.load_verify_locations(capath=_location(store))
        elif _is_pkcs12(store):
            context.load_verify_locations(cadata=_pkcs12_trust(store))
        else:
            context.load_verify_locations(cafile=_location(store))
    except ConfigError:
        raise
    except (ssl.SSLError, OSError, ValueError) as error:
        raise _unusable(store, error, "has no certificates that can be read") from error


def _pkcs12_trust(store: CertificateStore) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding

    found = _read_pkcs12(store)
    certificates = [each.certificate for each in found.additional_certs]
    if found.cert is not None:
        certificates.append(found.cert.certificate)
    if not certificates:
        raise ValueError("no certificates")
    return b"".join(each.public_bytes(Encoding.DER) for each in certificates)


# --- what it shows of itself ---------------------------------------------------------------------


def _load_identity(context: ssl.SSLContext, store: CertificateStore) -> None:
    """OpenSSL reads a key only from a file: a key in memory gets one that nobody else can open."""
    password = store.key_password

    def key_password() -> str:
        if password is None:
            raise ConfigError(store.option, _shown(store), _NO_PASSWORD)
        return password.reveal()

    try:
        if store.pem is not None or store.key_pem is not None:
            content = f"{store.key_pem.reveal() if store.key_pem else ''}\n{store.pem or ''}"
            with _private_file(content.encode()) as path:
                context.load_cert_chain(path, password=key_password)
        elif _is_pkcs12(store):
            content_bytes, once = _pkcs12_identity(store)
            with _private_file(content_bytes) as path:
                context.load_cert_chain(path, password=once.reveal())
        else:
            context.load_cert_chain(
                _location(store), keyfile=store.key_location, password=key_password
            )
    except ConfigError:
        raise
    except (ssl.SSLError, OSError, ValueError) as error:
        raise _unusable(
            store, error, "must have a certificate and its private key, as PEM or PKCS12"
        ) from error


def _pkcs12_identity(store: CertificateStore) -> tuple[bytes, Secret]:
    """Key and certificates as PEM, the key encrypted with a password that is used once."""
    from cryptography.hazmat.primitives.serialization import (
        BestAvailableEncryption,
        Encoding,
        PrivateFormat,
    )

    found = _read_pkcs12(store)
    if found.key is None or found.cert is None:
        raise ValueError("no private key")
    once = Secret(secrets.token_urlsafe(32))
    key = found.key.private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(once.reveal().encode())
    )
    chain = [found.cert, *found.additional_certs]
    return key + b"".join(each.certificate.public_bytes(Encoding.PEM) for each in chain), once


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


# --- files ----------------------------------------------------------------------------------------


def _location(store: CertificateStore) -> str:
    assert store.location is not None, store
    return store.location


def _is_pkcs12(store: CertificateStore) -> bool:
    """By `kind`, else by the content of the file. Refuses JKS."""
    path = _location(store)
    with open(path, "rb") as file:
        beginning = file.read(4)
    if beginning == _JKS_MAGIC:
        raise ConfigError(
            store.option,
            path,
            f"is a JKS file, which only Java reads; convert it: keytool -importkeystore "
            f"-srckeystore {path} -destkeystore {os.path.splitext(path)[0]}.p12 "
            "-deststoretype PKCS12",
        )
    if store.kind is not None:
        return store.kind == "PKCS12"
    return beginning.startswith(_DER_SEQUENCE)


def _read_pkcs12(store: CertificateStore) -> "PKCS12KeyAndCertificates":
    try:
        from cryptography.hazmat.primitives.serialization import pkcs12
    except ModuleNotFoundError as error:
        raise ConfigError(
            store.option,
            _shown(store),
            "PKCS12 files need the extra security: pip install 'cordwood[security]'",
        ) from error
    with open(_location(store), "rb") as file:
        content = file.read(STORE_BYTES_MAX + 1)
    if len(content) > STORE_BYTES_MAX:
        raise ValueError("too large")
    try:
        return pkcs12.load_pkcs12(
            content, None if store.password is None else store.password.reveal().encode()
        )
    except ValueError:
        raise ConfigError(
            store.option, _shown(store), "is not a PKCS12 file, or its password is wrong"
        ) from None


def _shown(store: CertificateStore) -> str:
    return store.location or "(PEM text)"


def _unusable(store: CertificateStore, error: Exception, rule: str) -> ConfigError:
    if isinstance(error, OSError) and not isinstance(error, ssl.SSLError):
        missing = store.location
        if store.key_location and store.location and os.access(store.location, os.R_OK):
            missing = store.key_location
        return ConfigError(store.option, missing or "", f"cannot be read: {error.strerror}")
    reason = getattr(error, "reason", None) or ""
    wrong = " (the password is wrong, or the file is damaged)" if "DECRYPT" in reason else ""
    return ConfigError(store.option, _shown(store), rule + wrong)
