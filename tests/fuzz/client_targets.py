"""What brokers may answer to our clients, and what people write about security. See `targets`."""

from __future__ import annotations

import struct
from typing import Final

from cordwood.errors import AuthenticationFailedError, ConfigError, FormatError
from cordwood.format.small_files.meta_properties import parse_properties
from cordwood.remote.authentication import SASL_AUTHENTICATE, SASL_HANDSHAKE, Authentication
from cordwood.security.clients.client_properties import parse_client_properties
from cordwood.security.clients.client_security import ClientProtocol, ClientSecurity
from cordwood.security.clients.client_settings import java_properties
from cordwood.security.sasl.jaas import parse_jaas, render_jaas
from cordwood.security.sasl.scram_client import SaslError, ScramClient
from cordwood.security.secret import Secret
from cordwood.security.secret_references import resolve_references
from fuzz.target import target

_PASSWORD: Final = Secret("pencil")
_NONCE: Final = "rOprNGfwEbeRWgbNEkqO"
_FIRST: Final = (
    b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
)
_FINAL: Final = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
_ITERATIONS_CHEAP: Final = b"i=4096"


@target(_FIRST, refusals=(SaslError,))
def scram_server_first(data: bytes) -> None:
    if _ITERATIONS_CHEAP not in data and b"i=" in data:
        return  # a million iterations are accepted, and would take a second each
    client = ScramClient("SCRAM-SHA-256", "user", _PASSWORD, nonce=_NONCE)
    client.first()
    final = client.answer(data)
    assert final is not None
    assert final.startswith(b"c=biws,r=" + _NONCE.encode())
    assert not client.is_complete


@target(_FINAL, refusals=(SaslError,))
def scram_server_final(data: bytes) -> None:
    """No other signature is believed."""
    client = ScramClient("SCRAM-SHA-256", "user", _PASSWORD, nonce=_NONCE)
    client.first()
    client.answer(_FIRST)
    client.answer(data)
    assert client.is_complete
    assert data.split(b",")[0] == _FINAL


def _string(text: bytes) -> bytes:
    return struct.pack(">h", len(text)) + text


_HANDSHAKE: Final = b"\0\0" + struct.pack(">i", 1) + _string(b"PLAIN")
_ACCEPTED: Final = b"\0\0" + struct.pack(">hi", -1, 0) + struct.pack(">q", 60_000)


@target(
    bytes([len(_HANDSHAKE)]) + _HANDSHAKE + _ACCEPTED,
    refusals=(AuthenticationFailedError, FormatError),
)
def sasl_answers(data: bytes) -> None:
    """The answers of a broker to PLAIN: the first byte is the size of the first one."""
    size = data[0] if data else 0
    answers = iter([data[1 : 1 + size], data[1 + size :]])
    security = ClientSecurity(
        protocol=ClientProtocol.SASL_PLAINTEXT, mechanism="PLAIN", user="a", password=_PASSWORD
    )
    authentication = Authentication(
        security, "h:1", lambda *_: memoryview(next(answers)), lambda: 0.0
    )
    authentication.run({SASL_HANDSHAKE: (0, 1), SASL_AUTHENTICATE: (0, 2)})
    assert not authentication.is_due


@target(
    b'M required username="a\\"b" password=\'c\' other=word; // end',
    b"a.b.M Optional /* c */;",
    refusals=(ValueError,),
)
def jaas_entry(data: bytes) -> None:
    entry = parse_jaas(data.decode())
    assert parse_jaas(render_jaas("M", entry.options)).options == entry.options


@target(
    b"security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nsasl.username=a\nsasl.password=b\n",
    b"bootstrap.servers=h:1\nsecurity.protocol=SSL\nssl.ca.pem=x\nssl.enabled.protocols=TLSv1.3\n",
    refusals=(ConfigError, FormatError, UnicodeDecodeError),
)
def client_properties(data: bytes) -> None:
    security = parse_client_properties(parse_properties(data.decode())).security
    if security.trust is None or security.trust.location is None:
        assert parse_client_properties(java_properties(security)).security.user == security.user


@target(b"${env:A} and $${ and ${env:B}", refusals=(ValueError,))
def secret_references(data: bytes) -> None:
    text = data.decode()
    if "${file" not in text and "${dir" not in text:
        resolve_references(text, {"A": "1", "B": "2"})
