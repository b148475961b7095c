"""Keys and certificates, from the files or values that a listener's configuration names.

A file is read once, and what was read is checked and used: a file that is replaced meanwhile cannot
give a key and a certificate that do not belong together.
"""

import os
import stat
from typing import Final, NamedTuple

from cordwood.broker.config.tls_config import TlsConfig
from cordwood.errors import ConfigError, FormatError, LimitExceededError
from cordwood.security.certificates.certificate import Certificate, certificates_in
from cordwood.storage.files import RealFileSystem, read_whole
from cordwood.value_class import dataclass

_FILE_BYTES_MAX: Final = 16 * 1024 * 1024  # the certificates of all authorities are 200 KiB
_PKCS12_ENDINGS: Final = (".p12", ".pfx", ".pkcs12")
_JKS_ENDINGS: Final = (".jks", ".keystore", ".truststore")
_JKS_MAGIC: Final = b"\xfe\xed\xfe\xed"
_DER_SEQUENCE: Final = 0x30


class FileMark(NamedTuple):
    """What changes when a file is written or replaced. Without a file: zeros."""

    inode: int = 0
    size: int = 0
    modified_ns: int = 0
    changed_ns: int = 0

    @classmethod
    def of(cls, path: str | None) -> "FileMark":
        try:
            found = os.stat(path or "")
        except OSError:
            return cls()
        return cls(found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyMaterial:
    """The broker's key and its certificates, as PEM; the facts of the first one."""

    pem: bytes
    password: str | None
    certificate: Certificate
    warnings: tuple[str, ...] = ()


def read_key(config: TlsConfig) -> KeyMaterial:
    """The key store. Raises `ConfigError`."""
    if config.ssl_keystore_key is not None:
        chain = config.ssl_keystore_certificate_chain or ""
        pem = f"{chain.strip()}\n{config.ssl_keystore_key.strip()}\n".encode()
        return _key_material(pem, config, "ssl.keystore.certificate.chain", "...", ())
    path = config.ssl_keystore_location
    if path is None:
        raise ConfigError(
            "ssl.keystore.location",
            "",
            "must be set: a file with the broker's private key and certificates, as PEM or PKCS12",
        )
    key = "ssl.keystore.location"
    data = _read(path, key)
    if _kind(config.ssl_keystore_type, "ssl.keystore.type", path, data) == "PKCS12":
        pem = _pkcs12_key(data, config, path)
        return _key_material(pem, config, key, path, _warnings(path), password=None)
    if config.ssl_keystore_password is not None:
        raise ConfigError(
            "ssl.keystore.password",
            "[hidden]",
            "is for PKCS12; the password of a key in PEM is ssl.key.password",
        )
    return _key_material(data, config, key, path, _warnings(path))


def read_trust(config: TlsConfig) -> str | None:
    """The certificates of the trust store, as PEM; None without one. Raises `ConfigError`."""
    path, key = config.ssl_truststore_location, "ssl.truststore.location"
    if config.ssl_truststore_certificates is not None:
        pem, key, path = config.ssl_truststore_certificates, "ssl.truststore.certificates", "..."
    elif path is not None:
        data = _read(path, key)
        if _kind(config.ssl_truststore_type, "ssl.truststore.type", path, data) == "PKCS12":
            pem = _pkcs12_certificates(data, config, path)
        else:
            pem = data.decode("utf-8", "replace")
    else:
        return None
    # The text between certificates may have names of authorities. Python takes ASCII only.
    pem = pem.encode("ascii", "replace").decode()
    if not _certificates(pem, key, path):
        raise ConfigError(key, path, "has no certificates")
    return pem


def _key_material(
    pem: bytes,
    config: TlsConfig,
    key: str,
    shown: str,
    warnings: tuple[str, ...],
    *,
    password: str | None = "",
) -> KeyMaterial:
    certificates = _certificates(pem.decode("utf-8", "replace"), key, shown)
    if not certificates:
        raise ConfigError(key, shown, "has no certificate")
    if b"PRIVATE KEY-----" not in pem:
        name = "ssl.keystore.key" if shown == "..." else key
        raise ConfigError(name, shown, "has no private key")
    return KeyMaterial(
        pem=pem,
        password=config.ssl_key_password if password == "" else password,
        certificate=certificates[0],
        warnings=warnings,
    )


def _certificates(pem: str, key: str, shown: str) -> list[Certificate]:
    try:
        return [Certificate.decode(der) for der in certificates_in(pem)]
    except FormatError as error:
        raise ConfigError(key, shown, f"has a certificate that cannot be read: {error}") from error


def _read(path: str, key: str) -> bytes:
    """The content of a file. It never waits, as for the other end of a pipe: files are watched."""
    try:
        return read_whole(RealFileSystem(), path, limit=_FILE_BYTES_MAX)
    except LimitExceededError as error:
        raise ConfigError(key, path, f"must not be larger than {_FILE_BYTES_MAX} bytes") from error
    except OSError as error:
        raise ConfigError(key, path, f"cannot be read: {error.strerror or error}") from error


def _warnings(path: str) -> tuple[str, ...]:
    mode = stat.S_IMODE(os.stat(path).st_mode)
    if mode & stat.S_IROTH:
        return (f"{path} has a private key and every user can read it: chmod 600 {path}",)
    return ()


def _kind(given: str | None, key: str, path: str, data: bytes) -> str:
    """PEM or PKCS12. Raises `ConfigError` for JKS, which only Java can read."""
    name = path.lower()
    kind = given
    if kind is None:
        if data.startswith(_JKS_MAGIC) or name.endswith(_JKS_ENDINGS):
            kind = "JKS"
        else:
            is_binary = name.endswith(_PKCS12_ENDINGS) or data[:1] == bytes([_DER_SEQUENCE])
            kind = "PKCS12" if is_binary else "PEM"
    if kind == "PEM" and data.startswith(_JKS_MAGIC):
        kind = "JKS"
    # Java calls PKCS12 files JKS, too: its default type reads both.
    if kind == "JKS" and data[:1] == bytes([_DER_SEQUENCE]):
        return "PKCS12"
    if kind == "JKS":
        raise ConfigError(
            key,
            "JKS",
            f"{path} is a key store that only Java reads. Convert it: keytool -importkeystore "
            f"-srckeystore {path} -destkeystore {os.path.splitext(path)[0]}.p12 -deststoretype "
            "PKCS12",
        )
    return kind


def _pkcs12_key(data: bytes, config: TlsConfig, path: str) -> bytes:
    password, own = config.ssl_keystore_password, config.ssl_key_password
    if own is not None and own != password:
        raise ConfigError(
            "ssl.key.password",
            "[hidden]",
            "must be the same as ssl.keystore.password: a PKCS12 file has one password",
        )
    serialization = _serialization("ssl.keystore.location", path)
    loaded = _load_pkcs12(data, password, "ssl.keystore.location", path)
    if loaded.key is None or loaded.cert is None:
        raise ConfigError("ssl.keystore.location", path, "has no private key with a certificate")
    key_pem = loaded.key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    chain = [loaded.cert, *loaded.additional_certs]
    parts = [each.certificate.public_bytes(serialization.Encoding.PEM) for each in chain]
    return b"".join([*parts, key_pem])


def _pkcs12_certificates(data: bytes, config: TlsConfig, path: str) -> str:
    serialization = _serialization("ssl.truststore.location", path)
    loaded = _load_pkcs12(data, config.ssl_truststore_password, "ssl.truststore.location", path)
    found = [*([loaded.cert] if loaded.cert is not None else []), *loaded.additional_certs]
    return "".join(
        each.certificate.public_bytes(serialization.Encoding.PEM).decode() for each in found
    )


def _serialization(key: str, path: str):  # type: ignore[no-untyped-def]
    """The part of ``cryptography`` that is needed; imported only for PKCS12."""
    try:
        from cryptography.hazmat.primitives import serialization
    except ModuleNotFoundError as error:
        raise ConfigError(
            key, path, "PKCS12 needs the package cryptography: pip install 'cordwood[security]'"
        ) from error
    return serialization


def _load_pkcs12(data: bytes, password: str | None, key: str, path: str):  # type: ignore[no-untyped-def]
    from cryptography.hazmat.primitives.serialization import pkcs12

    try:
        return pkcs12.load_pkcs12(data, None if password is None else password.encode())
    except ValueError as error:
        name = key.replace("location", "password")
        raise ConfigError(key, path, f"cannot be opened; is {name} right? ({error})") from error
