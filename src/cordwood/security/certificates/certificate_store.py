"""Certificates and keys in files: PEM, or PKCS12, which needs the extra `security`.

Java's older key stores (JKS) are refused with the command that converts them. Errors name the
option and the file, never a password.
"""

import os
import secrets
from typing import TYPE_CHECKING, Final

from cordwood.errors import ConfigError
from cordwood.security.secret import Secret
from cordwood.value_class import dataclass

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.serialization.pkcs12 import PKCS12KeyAndCertificates

STORE_BYTES_MAX: Final = 16 * 1024 * 1024  # system bundles have a quarter of a megabyte
STORE_KINDS: Final = ("PEM", "PKCS12")

_JKS_MAGIC: Final = b"\xfe\xed\xfe\xed"
_DER_SEQUENCE: Final = b"\x30"


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateStore:
    """Certificates, and perhaps a private key: in a file, or as PEM text.

    option        the key or option that named it, for errors
    location      the file; its form is found out by its content unless `kind` says it
    pem           the certificates themselves
    key_location  the file of the private key, if it is not in `location`
    key_pem       the private key itself
    password      of a PKCS12 file
    key_password  of an encrypted private key
    """

    option: str
    location: str | None = None
    kind: str | None = None  # one of `STORE_KINDS`
    pem: str | None = None
    key_location: str | None = None
    key_pem: Secret | None = None
    password: Secret | None = None
    key_password: Secret | None = None

    @property
    def path(self) -> str:
        assert self.location is not None, self
        return self.location

    @property
    def shown(self) -> str:
        """What errors call it."""
        return self.location or "(PEM text)"

    def is_pkcs12(self) -> bool:
        """By `kind`, else by the content of the file. Refuses JKS; raises `OSError`."""
        if self.location is None:
            return False
        with open(self.location, "rb") as file:
            beginning = file.read(len(_JKS_MAGIC))
        if beginning == _JKS_MAGIC:
            converted = os.path.splitext(self.location)[0] + ".p12"
            raise ConfigError(
                self.option,
                self.location,
                f"is a JKS file, which only Java reads; convert it: keytool -importkeystore "
                f"-srckeystore {self.location} -destkeystore {converted} -deststoretype PKCS12",
            )
        if self.kind is not None:
            return self.kind == "PKCS12"
        return beginning.startswith(_DER_SEQUENCE)

    def pkcs12_certificates(self) -> bytes:
        """All certificates of a PKCS12 file, as PEM. Raises `ConfigError` or `OSError`."""
        found = self._read_pkcs12()
        from cryptography.hazmat.primitives.serialization import Encoding

        certificates = [each.certificate for each in found.additional_certs]
        if found.cert is not None:
            certificates.append(found.cert.certificate)
        if not certificates:
            raise ConfigError(self.option, self.shown, "has no certificates")
        return b"".join(each.public_bytes(Encoding.PEM) for each in certificates)

    def pkcs12_identity(self) -> tuple[bytes, Secret]:
        """Key and certificates of a PKCS12 file as PEM, the key encrypted with a new password.

        Raises `ConfigError` or `OSError`.
        """
        found = self._read_pkcs12()
        from cryptography.hazmat.primitives.serialization import (
            BestAvailableEncryption,
            Encoding,
            PrivateFormat,
        )

        if found.key is None or found.cert is None:
            raise ConfigError(self.option, self.shown, "has no private key with its certificate")
        password = Secret(secrets.token_urlsafe(32))
        key = found.key.private_bytes(
            Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(password.reveal().encode())
        )
        chain = [found.cert, *found.additional_certs]
        pem = b"".join(each.certificate.public_bytes(Encoding.PEM) for each in chain)
        return key + pem, password

    def _read_pkcs12(self) -> "PKCS12KeyAndCertificates":
        try:
            from cryptography.hazmat.primitives.serialization import pkcs12
        except ModuleNotFoundError as error:
            raise ConfigError(
                self.option,
                self.shown,
                "PKCS12 files need the extra security: pip install 'cordwood[security]'",
            ) from error
        with open(self.path, "rb") as file:
            content = file.read(STORE_BYTES_MAX + 1)
        if len(content) > STORE_BYTES_MAX:
            raise ConfigError(self.option, self.shown, f"is larger than {STORE_BYTES_MAX} bytes")
        try:
            return pkcs12.load_pkcs12(
                content, None if self.password is None else self.password.reveal().encode()
            )
        except ValueError:
            raise ConfigError(
                self.option, self.shown, "is not a PKCS12 file, or its password is wrong"
            ) from None
