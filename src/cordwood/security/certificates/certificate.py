"""What Cordwood needs to know of an X.509 certificate: whose it is, and until when. Pure.

OpenSSL verifies certificates; here they are only read.
"""

import hashlib
from binascii import a2b_base64
from datetime import UTC, datetime
from re import DOTALL, compile
from typing import Final, Self

from cordwood.errors import FormatError
from cordwood.security.certificates.der import DerValue, read_value, values_in
from cordwood.security.certificates.distinguished_name import render_name
from cordwood.value_class import dataclass

_SEQUENCE: Final = 0x30
_VERSION: Final = 0xA0
_EXTENSIONS: Final = 0xA3
_UTC_TIME: Final = 0x17
_ALTERNATIVE_NAMES: Final = bytes.fromhex("551d11")  # 2.5.29.17
_PEM: Final = compile(
    r"-----BEGIN (?:TRUSTED |X509 )?CERTIFICATE-----(.*?)-----END (?:TRUSTED |X509 )?CERTIFICATE",
    DOTALL,
)
_TEXT_NAMES: Final = {0x81: "email", 0x82: "DNS", 0x86: "URI"}
_IP: Final = 0x87
_IP4_BYTES: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """The facts of one certificate. `alternative_names` are such as ``DNS:broker.example``."""

    subject: str
    not_before: datetime
    not_after: datetime
    alternative_names: frozenset[str]
    fingerprint: str  # SHA-256, as OpenSSL prints it

    @classmethod
    def decode(cls, der: bytes) -> Self:
        """Raises `FormatError`."""
        try:
            return cls._read(der)
        except ValueError as error:  # too few values, or too many
            raise FormatError(f"certificate of another form: {error}") from error

    @classmethod
    def _read(cls, der: bytes) -> Self:
        fields = list(values_in(_inside(read_value(_inside(read_value(der))))))
        if fields and fields[0].tag == _VERSION:
            del fields[0]
        if len(fields) < 6:
            raise FormatError("certificate with missing fields")
        _, _, _, validity, subject, _, *rest = fields
        begin, end = (_moment(value) for value in values_in(_inside(validity)))
        digest = hashlib.sha256(der).hexdigest().upper()
        return cls(
            subject=render_name(_inside(subject)),
            not_before=begin,
            not_after=end,
            alternative_names=_alternative_names(rest),
            fingerprint=":".join(digest[at : at + 2] for at in range(0, len(digest), 2)),
        )


def certificates_in(pem: str) -> list[bytes]:
    """The certificates of a PEM text, as DER. Raises `FormatError`."""
    try:
        return [a2b_base64(body) for body in _PEM.findall(pem)]
    except ValueError as error:
        raise FormatError(f"certificate that is not base64: {error}") from error


def subject_of(der: bytes) -> str:
    """The name of the one that a certificate belongs to. Raises `FormatError`."""
    return Certificate.decode(der).subject


def _inside(value: DerValue) -> bytes:
    if value.tag != _SEQUENCE:
        raise FormatError(f"DER tag {value.tag:#x} where a sequence is expected")
    return value.content


def _moment(value: DerValue) -> datetime:
    text = value.content.decode("ascii", "replace")
    try:
        if value.tag == _UTC_TIME:  # two digits of the year: 1950 to 2049
            text = ("19" if text[:2] >= "50" else "20") + text
        return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)
    except ValueError as error:
        raise FormatError(f"certificate with the time {text}") from error


def _alternative_names(fields: list[DerValue]) -> frozenset[str]:
    for field in fields:
        if field.tag != _EXTENSIONS:
            continue
        for extension in values_in(_inside(read_value(field.content))):
            kind, *_, value = values_in(_inside(extension))
            if kind.content == _ALTERNATIVE_NAMES:
                names = values_in(_inside(read_value(value.content)))
                return frozenset(map(_alternative_name, names))
    return frozenset()


def _alternative_name(name: DerValue) -> str:
    if name.tag in _TEXT_NAMES:
        return f"{_TEXT_NAMES[name.tag]}:{name.content.decode('latin-1')}"
    if name.tag == _IP and len(name.content) == _IP4_BYTES:
        return "IP:" + ".".join(map(str, name.content))
    if name.tag == _IP:
        return f"IP:{name.content.hex()}"
    return f"#{name.encoded.hex()}"
