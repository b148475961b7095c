"""An authority of one's own, and the certificates it signs: for `serve --secure`, and for tests.

    authority     EC P-256, ten years; its key signs nothing but these certificates
    certificate   EC P-256, one year; the names and addresses under which clients connect

Everything is made in memory; the caller decides where it is written. Needs the extra `security`.
"""

import datetime
import importlib.util
import ipaddress
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from cordwood.errors import ConfigError
from cordwood.value_class import dataclass, field

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

AUTHORITY_DAYS: Final = 3650
CERTIFICATE_DAYS: Final = 365
_BACKDATED: Final = datetime.timedelta(hours=1)  # for clients whose clocks are behind
_NAME_MAX: Final = 64  # characters of a common name


@dataclass(frozen=True, slots=True, kw_only=True)
class IssuedCertificate:
    """A private key and its certificate, as PEM."""

    key_pem: bytes = field(repr=False)
    certificate_pem: bytes

    @property
    def store_pem(self) -> bytes:
        """Both in one text, as ``ssl.keystore.location`` takes it."""
        return self.key_pem + self.certificate_pem


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateFacts:
    """What a certificate says of itself."""

    subject: str
    names: frozenset[str]  # DNS names and addresses
    not_before: datetime.datetime
    not_after: datetime.datetime
    fingerprint: str

    def days_left(self, now: datetime.datetime) -> float:
        return (self.not_after - now).total_seconds() / 86_400


class CertificateAuthority:
    """An authority whose key is at hand. Immutable; any thread may call it."""

    def __init__(self, key: "EllipticCurvePrivateKey", certificate: "x509.Certificate") -> None:
        self._key = key
        self._certificate = certificate

    @classmethod
    def create(cls, name: str, *, now: datetime.datetime | None = None) -> "CertificateAuthority":
        check_cryptography()
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes
        from cryptography.hazmat.primitives.asymmetric import ec

        key = ec.generate_private_key(ec.SECP256R1())
        subject = _name(name)
        made = now or _now()
        certificate = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(made - _BACKDATED)
            .not_valid_after(made + datetime.timedelta(days=AUTHORITY_DAYS))
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(signs_certificates=True), critical=True)
            .add_extension(
                x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False
            )
            .sign(key, hashes.SHA256())
        )
        return cls(key, certificate)

    @classmethod
    def load(cls, key_pem: bytes, certificate_pem: bytes) -> "CertificateAuthority":
        """Raises ValueError if these are not a key and its certificate."""
        check_cryptography()
        from cryptography import x509
        from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

        key = load_pem_private_key(key_pem, None)
        certificate = x509.load_pem_x509_certificate(certificate_pem)
        if not isinstance(key, EllipticCurvePrivateKey):
            raise ValueError("the key is not an EC key")
        if key.public_key() != certificate.public_key():
            raise ValueError("the key does not belong to the certificate")
        return cls(key, certificate)

    @property
    def certificate_pem(self) -> bytes:
        from cryptography.hazmat.primitives.serialization import Encoding

        return self._certificate.public_bytes(Encoding.PEM)

    @property
    def key_pem(self) -> bytes:
        return _key_pem(self._key)

    def issue(
        self,
        name: str,
        hosts: Sequence[str] = (),
        *,
        now: datetime.datetime | None = None,
        days: float = CERTIFICATE_DAYS,
    ) -> IssuedCertificate:
        """A certificate for a server, with `hosts`, or for a client, without."""
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.hazmat.primitives.serialization import Encoding
        from cryptography.x509.oid import ExtendedKeyUsageOID

        key = ec.generate_private_key(ec.SECP256R1())
        made = now or _now()
        ends = min(made + datetime.timedelta(days=days), self._certificate.not_valid_after_utc)
        uses = [ExtendedKeyUsageOID.CLIENT_AUTH]
        if hosts:
            uses.insert(0, ExtendedKeyUsageOID.SERVER_AUTH)
        builder = (
            x509.CertificateBuilder()
            .subject_name(_name(name))
            .issuer_name(self._certificate.subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(min(made, ends) - _BACKDATED)
            .not_valid_after(ends)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(uses), critical=False)
            .add_extension(
                x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False
            )
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
                critical=False,
            )
        )
        if hosts:
            names = [_general_name(host) for host in dict.fromkeys(hosts)]
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        certificate = builder.sign(self._key, hashes.SHA256())
        return IssuedCertificate(
            key_pem=_key_pem(key), certificate_pem=certificate.public_bytes(Encoding.PEM)
        )

    def has_issued(self, certificate_pem: bytes) -> bool:
        from cryptography import x509
        from cryptography.exceptions import InvalidSignature

        try:
            x509.load_pem_x509_certificate(certificate_pem).verify_directly_issued_by(
                self._certificate
            )
        except (ValueError, TypeError, InvalidSignature):
            return False
        return True


def certificate_facts(certificate_pem: bytes) -> CertificateFacts:
    """Of the first certificate in a PEM text. Raises ValueError if there is none."""
    check_cryptography()
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes

    certificate = x509.load_pem_x509_certificate(certificate_pem)
    names: set[str] = set()
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        pass
    else:
        names = {
            *found.get_values_for_type(x509.DNSName),
            *map(str, found.get_values_for_type(x509.IPAddress)),
        }
    return CertificateFacts(
        subject=certificate.subject.rfc4514_string(),
        names=frozenset(names),
        not_before=certificate.not_valid_before_utc,
        not_after=certificate.not_valid_after_utc,
        fingerprint=certificate.fingerprint(hashes.SHA256()).hex(":"),
    )


def covers(facts: CertificateFacts, hosts: Iterable[str]) -> bool:
    """Whether the certificate is for all of `hosts`."""
    known = {name.lower() for name in facts.names}
    return all(_plain(host) in known for host in hosts)


def _plain(host: str) -> str:
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        return host.lower()


def _general_name(host: str) -> "x509.GeneralName":
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host.encode("idna").decode())


def _name(name: str) -> "x509.Name":
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:_NAME_MAX])])


def _usage(*, signs_certificates: bool) -> "x509.KeyUsage":
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _key_pem(key: "EllipticCurvePrivateKey") -> bytes:
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
    )

    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def check_cryptography() -> None:
    """Raise `ConfigError` if the package that makes certificates is missing."""
    if importlib.util.find_spec("cryptography") is None:
        raise ConfigError(
            "security", "certificates", "need the extra security: pip install 'cordwood[security]'"
        )


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)
