"""Certificates as read here. The names are those that Java's X500Principal.getName() printed."""

import contextlib
import datetime
import ipaddress

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.name import _ASN1Type as Asn1
from cryptography.x509.oid import NameOID as Oid
from cryptography.x509.oid import ObjectIdentifier
from hypothesis import given
from hypothesis import strategies as st

from cordwood.errors import FormatError
from cordwood.security.certificates.certificate import Certificate, certificates_in, subject_of

KEY = ec.generate_private_key(ec.SECP256R1())
BEGIN = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
END = datetime.datetime(2055, 6, 1, 12, 30, tzinfo=datetime.UTC)

One = x509.NameAttribute
EMAIL, CUSTOM = Oid.EMAIL_ADDRESS, ObjectIdentifier("1.2.3.4.5.6")


def certificate(
    *parts: list[x509.NameAttribute[str]], names: list[x509.GeneralName] | None = None
) -> bytes:
    subject = x509.Name([x509.RelativeDistinguishedName(part) for part in parts])
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(x509.Name([One(Oid.COMMON_NAME, "issuer")]))
        .public_key(KEY.public_key())
        .serial_number(1)
        .not_valid_before(BEGIN)
        .not_valid_after(END)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    )
    if names is not None:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return builder.sign(KEY, hashes.SHA256()).public_bytes(serialization.Encoding.DER)


@pytest.mark.parametrize(
    ("parts", "java"),
    [
        (
            [
                [One(Oid.COUNTRY_NAME, "DE")],
                [One(Oid.ORGANIZATION_NAME, "Acme, Inc.")],
                [One(Oid.ORGANIZATIONAL_UNIT_NAME, "a+b=c")],
                [One(Oid.COMMON_NAME, "alice")],
            ],
            r"CN=alice,OU=a\+b\=c,O=Acme\, Inc.,C=DE",
        ),
        ([[One(Oid.COMMON_NAME, " lead#trail ")]], r"CN=\ lead\#trail" + "\\ "),
        ([[One(Oid.COMMON_NAME, "#hash")]], r"CN=\#hash"),
        ([[One(Oid.COMMON_NAME, 'back\\slash "q" <x>;y')]], r"CN=back\\slash \"q\" \<x\>\;y"),
        (
            [[One(EMAIL, "a@b.c")], [One(Oid.COMMON_NAME, "bob")]],
            "CN=bob,1.2.840.113549.1.9.1=#16056140622e63",
        ),
        (
            [
                [
                    One(Oid.COMMON_NAME, "multi"),
                    One(Oid.ORGANIZATIONAL_UNIT_NAME, "ou"),
                    One(Oid.USER_ID, "u1"),
                ]
            ],
            "OU=ou+CN=multi+UID=u1",
        ),
        (
            [
                [One(Oid.DOMAIN_COMPONENT, "com")],
                [One(Oid.DOMAIN_COMPONENT, "example")],
                [One(Oid.COMMON_NAME, "x")],
            ],
            "CN=x,DC=example,DC=com",
        ),
        (
            [
                [One(Oid.STREET_ADDRESS, "Main St 1")],
                [One(Oid.LOCALITY_NAME, "Köln")],
                [One(Oid.STATE_OR_PROVINCE_NAME, "NRW")],
                [One(Oid.COMMON_NAME, "Jürgen 日本 😀")],
            ],
            "CN=Jürgen 日本 😀,ST=NRW,L=Köln,STREET=Main St 1",
        ),
        (
            [
                [One(Oid.SERIAL_NUMBER, "12345")],
                [One(Oid.TITLE, "Dr")],
                [One(Oid.COMMON_NAME, "t")],
            ],
            "CN=t,2.5.4.12=#0c024472,2.5.4.5=#13053132333435",
        ),
        ([[One(CUSTOM, "custom")]], "1.2.3.4.5.6=#0c06637573746f6d"),
        ([[One(Oid.COMMON_NAME, "nul\0in")]], r"CN=nul\00in"),
        ([[One(Oid.COMMON_NAME, "tab\tnl\nx")]], "CN=tab\tnl\nx"),
        ([[One(Oid.COMMON_NAME, "  two  inner  ")]], r"CN=\ \ two  inner\ " + "\\ "),
        ([[One(Oid.COMMON_NAME, "   ")]], r"CN=\ \ " + "\\ "),
        ([[One(Oid.COMMON_NAME, "bmp", Asn1.BMPString)]], r"CN=\00b\00m\00p"),
        ([[One(Oid.COMMON_NAME, "ia5", Asn1.IA5String)]], "CN=ia5"),
        ([[One(Oid.COMMON_NAME, "num", Asn1.NumericString)]], "CN=#12036e756d"),
        (
            [[One(Oid.COMMON_NAME, "uni", Asn1.UniversalString)]],
            "CN=#1c0c000000750000006e00000069",
        ),
    ],
)
def test_a_subject_is_written_as_java_writes_it(
    parts: list[list[x509.NameAttribute[str]]], java: str
) -> None:
    assert subject_of(certificate(*parts)) == java


def test_the_facts_of_a_certificate() -> None:
    der = certificate(
        [One(Oid.COMMON_NAME, "broker")],
        names=[
            x509.DNSName("broker.example"),
            x509.IPAddress(ipaddress.ip_address("10.0.0.1")),
            x509.IPAddress(ipaddress.ip_address("::1")),
            x509.RFC822Name("a@b.c"),
        ],
    )

    found = Certificate.decode(der)

    assert (found.not_before, found.not_after) == (BEGIN, END)
    assert found.alternative_names == {
        "DNS:broker.example",
        "IP:10.0.0.1",
        "IP:" + "00" * 15 + "01",
        "email:a@b.c",
    }
    expected = x509.load_der_x509_certificate(der).fingerprint(hashes.SHA256())
    assert found.fingerprint.replace(":", "").lower() == expected.hex()


def test_a_certificate_without_names_has_none() -> None:
    assert Certificate.decode(certificate()).alternative_names == frozenset()
    assert Certificate.decode(certificate()).subject == ""


def test_all_certificates_of_a_text_are_found() -> None:
    ders = [certificate([One(Oid.COMMON_NAME, name)]) for name in ("a", "b")]
    pems = [
        x509.load_der_x509_certificate(der).public_bytes(serialization.Encoding.PEM).decode()
        for der in ders
    ]

    assert certificates_in("comment\n" + "\nmore\n".join(pems)) == ders
    assert certificates_in("nothing") == []


@pytest.mark.parametrize("body", ["a", "ä"])
def test_a_certificate_that_is_not_base64_is_refused(body: str) -> None:
    text = f"-----BEGIN CERTIFICATE-----\n{body}\n-----END CERTIFICATE-----\n"

    with pytest.raises(FormatError, match="not base64"):
        certificates_in(text)


@pytest.mark.parametrize("size", range(0, 400, 7))
def test_a_certificate_that_is_cut_is_refused(size: int) -> None:
    der = certificate([One(Oid.COMMON_NAME, "a")])

    with pytest.raises(FormatError):
        Certificate.decode(der[: min(size, len(der) - 1)])


@given(st.data())
def test_a_certificate_that_is_damaged_is_read_or_refused(data: st.DataObject) -> None:
    der = bytearray(DAMAGED)
    for _ in range(data.draw(st.integers(1, 4))):
        der[data.draw(st.integers(0, len(der) - 1))] = data.draw(st.integers(0, 255))

    with contextlib.suppress(FormatError):
        Certificate.decode(bytes(der))


DAMAGED = certificate([One(Oid.COMMON_NAME, "a")], names=[x509.DNSName("b")])
