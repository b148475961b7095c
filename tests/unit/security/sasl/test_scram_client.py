"""The client proves the password, and believes only a server that proves itself."""

import base64
import hashlib
import hmac

import pytest

from cordwood.security.sasl.scram_client import SaslError, ScramClient
from cordwood.security.secret import Secret

_PASSWORD = Secret("pencil")


def _after_first(*, nonce: str = "abc") -> ScramClient:
    client = ScramClient("SCRAM-SHA-256", "user", _PASSWORD, nonce=nonce)
    client.first()
    return client


def test_the_exchange_of_rfc_7677() -> None:
    client = ScramClient("SCRAM-SHA-256", "user", _PASSWORD, nonce="rOprNGfwEbeRWgbNEkqO")

    first = client.first()
    final = client.answer(
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    )
    end = client.answer(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")

    assert first == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    assert final == (
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
        b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    assert end is None
    assert client.is_complete


def test_sha_512_signs_with_sha_512() -> None:
    client = ScramClient("SCRAM-SHA-512", "user", _PASSWORD, nonce="abc")
    first = client.first()
    server_first = f"r=abcdef,s={base64.b64encode(b'salt').decode()},i=4096"
    final = client.answer(server_first.encode())
    assert final is not None
    salted = hashlib.pbkdf2_hmac("sha512", b"pencil", b"salt", 4096)
    signed = b",".join([first.removeprefix(b"n,,"), server_first.encode(), b"c=biws,r=abcdef"])
    key = hmac.digest(salted, b"Server Key", "sha512")
    signature = base64.b64encode(hmac.digest(key, signed, "sha512"))

    client.answer(b"v=" + signature)

    assert client.is_complete


def test_commas_and_equal_signs_of_a_name_are_escaped() -> None:
    client = ScramClient("SCRAM-SHA-256", "a=b,c", _PASSWORD, nonce="abc")

    assert client.first() == b"n,,n=a=3Db=2Cc,r=abc"


def test_each_exchange_has_a_nonce_of_its_own() -> None:
    firsts = {ScramClient("SCRAM-SHA-256", "user", _PASSWORD).first() for _ in range(10)}

    assert len(firsts) == 10


@pytest.mark.parametrize(
    ("server_first", "reason"),
    [
        ("r=abc,s=c2FsdA==,i=4096", "does not continue"),
        ("r=xyzdef,s=c2FsdA==,i=4096", "does not continue"),
        ("r=abcdef,s=c2FsdA==,i=4095", "4095 iterations"),
        ("r=abcdef,s=c2FsdA==,i=1000001", "1000001 iterations"),
        ("r=abcdef,s=c2Fsd,i=4096", "salt is not base64"),
        ("r=abcdef,s=,i=4096", "has not the form"),
        ("m=ext,r=abcdef,s=c2FsdA==,i=4096", "has not the form"),
        ("e=unknown-user", "refuses the client: unknown-user"),
        ("", "has not the form"),
        ("r=abcdef,s=" + "A" * 70_000 + ",i=4096", "too long"),
        ("r=abcdef,s=" + "A" * 4000 + ",i=4096", "3000 bytes"),
    ],
)
def test_a_first_message_that_breaks_a_rule_ends_the_exchange(
    server_first: str, reason: str
) -> None:
    client = _after_first()

    with pytest.raises(SaslError, match=reason):
        client.answer(server_first.encode())

    assert not client.is_complete


@pytest.mark.parametrize(
    ("server_final", "reason"),
    [
        (b"v=AAAA", "signature is wrong"),
        (b"v=!", "has no signature"),
        (b"", "has no signature"),
        (b"e=invalid-proof", "refuses the client: invalid-proof"),
        (b"\xff\xfe", "not UTF-8"),
    ],
)
def test_a_server_that_does_not_prove_itself_is_not_believed(
    server_final: bytes, reason: str
) -> None:
    client = _after_first()
    client.answer(b"r=abcdef,s=c2FsdA==,i=4096")

    with pytest.raises(SaslError, match=reason):
        client.answer(server_final)

    assert not client.is_complete


def test_no_error_and_no_repr_shows_the_password() -> None:
    client = _after_first()

    with pytest.raises(SaslError) as raised:
        client.answer(b"v=AAAA")

    assert "pencil" not in f"{raised.value!r} {client!r} {vars(client)!r}"
