"""Tokens: what is accepted, and every way in which one is refused."""

import base64
import json
from dataclasses import replace
from typing import Any

import jwt
import pytest

from cordwood.errors import FormatError
from cordwood.security.sasl.token_keys import KeySet, parse_key_set
from cordwood.security.sasl.tokens import (
    RefusedTokenError,
    TokenRules,
    UnknownKeyError,
    ValidToken,
    check_token,
)
from fakes.sasl_clients import Issuer

NOW_S = 1_800_000_000
NOW_MS = NOW_S * 1000
RULES = TokenRules(audience=("cordwood", "other"), issuer="https://issuer.example", skew_s=30)
ISSUER = Issuer()
KEYS = parse_key_set(ISSUER.key_set())


def checked(token: str, rules: TokenRules = RULES, keys: KeySet = KEYS) -> ValidToken:
    return check_token(token, keys, rules, NOW_MS)


@pytest.mark.parametrize("algorithm", ["ES256", "RS256", "RS512", "PS256", "EdDSA"])
def test_a_token_signed_by_a_key_of_the_issuer_is_accepted(algorithm: str) -> None:
    issuer = Issuer(algorithm=algorithm)

    found = checked(issuer.token(now_s=NOW_S), keys=parse_key_set(issuer.key_set()))

    assert found == ValidToken(subject="alice", expires_ms=NOW_MS + 300_000)


@pytest.mark.parametrize(
    "claims",
    [
        {"aud": "other"},
        {"aud": ["somebody", "cordwood"]},
        {"exp": NOW_S - 29},
        {"iat": NOW_S + 29},
        {"nbf": NOW_S + 29},
        {"exp": NOW_S + 0.5},
    ],
)
def test_these_claims_are_accepted(claims: dict[str, Any]) -> None:
    assert checked(ISSUER.token(now_s=NOW_S, **claims)).expires_ms > NOW_MS


@pytest.mark.parametrize(
    "claims",
    [
        {"aud": "somebody"},
        {"aud": ["somebody"]},
        {"aud": None},
        {"aud": {"cordwood": 1}},
        {"iss": "https://other.example"},
        {"iss": None},
        {"exp": None},
        {"exp": NOW_S - 30},
        {"exp": "soon"},
        {"exp": True},
        {"exp": -1},
        {"exp": 1e30},
        {"exp": float("nan")},
        {"iat": None},
        {"iat": NOW_S + 31},
        {"nbf": NOW_S + 31},
        {"sub": None},
        {"sub": "  "},
        {"sub": 7},
        {"sub": "a\nb"},
        {"sub": "x" * 1025},
        {"scope": 7},
        {"scope": ["a", 7]},
        {"scope": [" "]},
    ],
)
def test_these_claims_are_refused(claims: dict[str, Any]) -> None:
    # Its own encoder refuses some of them; a hostile issuer's would not.
    given = {
        "sub": "alice",
        "iss": "https://issuer.example",
        "aud": "cordwood",
        "iat": NOW_S,
        "exp": NOW_S + 300,
    } | claims
    payload = {name: value for name, value in given.items() if value is not None}
    token = jwt.PyJWS().encode(
        json.dumps(payload).encode(),
        ISSUER.private,
        algorithm="ES256",
        headers={"kid": ISSUER.key_id},
    )

    with pytest.raises(RefusedTokenError):
        checked(token)


def test_scopes_and_other_names_of_claims_are_read() -> None:
    rules = replace(RULES, scope_claim="scp", subject_claim="client_id")
    token = ISSUER.token(now_s=NOW_S, client_id=" svc ", scp=["read", "write"])

    found = checked(token, rules)

    assert found.subject == "svc"
    assert found.scopes == {"read", "write"}
    assert checked(ISSUER.token(now_s=NOW_S, scope="a b")).scopes == {"a", "b"}


def test_any_party_is_accepted_only_if_none_is_expected() -> None:
    token = ISSUER.token(now_s=NOW_S, aud=None, iss=None)

    assert checked(token, TokenRules()).subject == "alice"


def test_a_token_of_another_key_with_the_same_id_is_refused() -> None:
    with pytest.raises(RefusedTokenError, match="Signature"):
        checked(Issuer().token(now_s=NOW_S))


def test_an_unknown_key_is_reported_as_such() -> None:
    with pytest.raises(UnknownKeyError):
        checked(Issuer(key_id="new").token(now_s=NOW_S))


def test_a_token_without_a_key_id_is_checked_with_the_only_key_that_fits() -> None:
    token = jwt.encode(
        {
            "sub": "alice",
            "iss": "https://issuer.example",
            "aud": "cordwood",
            "iat": NOW_S,
            "exp": NOW_S + 9,
        },
        ISSUER.private,
        algorithm="ES256",
    )
    other = parse_key_set(
        json.dumps({"keys": [ISSUER.public(), Issuer(key_id="second").public()]}).encode()
    )

    assert checked(token).subject == "alice"
    with pytest.raises(UnknownKeyError):
        checked(token, keys=other)


def forged(header: dict[str, Any], signature: bytes = b"") -> str:
    claims = {"sub": "alice", "iss": "https://issuer.example", "aud": "cordwood"}
    claims |= {"iat": NOW_S, "exp": NOW_S + 300}  # type: ignore[dict-item]
    parts = [json.dumps(header).encode(), json.dumps(claims).encode(), signature]
    return ".".join(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts)


@pytest.mark.parametrize(
    "header",
    [
        {"alg": "none", "kid": "first"},
        {"alg": "HS256", "kid": "first"},
        {"alg": "RS256", "kid": "first"},
        {"alg": "ES512", "kid": "first"},
        {"alg": 7, "kid": "first"},
        {"alg": "ES256", "kid": 7},
        {"alg": "ES256", "kid": "first", "crit": ["exp"]},
        {"alg": "ES256", "kid": "first", "b64": False, "crit": ["b64"]},
        {"kid": "first"},
        [],
    ],
)
def test_a_token_cannot_choose_how_it_is_checked(header: Any) -> None:
    with pytest.raises(RefusedTokenError):
        checked(forged(header))


def test_a_public_key_is_no_password() -> None:
    """The old trick: HMAC with the published key."""
    import hmac

    public = json.dumps(ISSUER.public()).encode()
    unsigned = forged({"alg": "HS256", "kid": "first"}).rsplit(".", 1)[0]
    signature = hmac.digest(public, unsigned.encode(), "sha256")
    token = unsigned + "." + base64.urlsafe_b64encode(signature).rstrip(b"=").decode()

    with pytest.raises(UnknownKeyError):
        checked(token)


@pytest.mark.parametrize("token", ["", "a", "a.b", "a.b.c", "....", "e30.e30.e30", "a" * 60_000])
def test_what_is_no_token_is_refused(token: str) -> None:
    with pytest.raises(RefusedTokenError):
        checked(token)


@pytest.mark.parametrize(
    "change",
    [
        {"use": "enc"},
        {"key_ops": ["sign"]},
        {"key_ops": "verify"},
        {"alg": "HS256"},
        {"alg": "ES384"},
        {"kty": "oct", "k": "c2VjcmV0"},
        {"kty": "RSA"},
        {"crv": "secp256k1"},
        {"crv": "P-521"},
        {"x": "AAAA"},
        {"x": 7},
        {"kid": 7},
    ],
)
def test_a_key_for_something_else_is_not_used(change: dict[str, Any]) -> None:
    body = json.dumps({"keys": [ISSUER.public() | change]}).encode()

    with pytest.raises(FormatError, match="no usable key"):
        parse_key_set(body)


def test_a_small_rsa_key_is_not_used() -> None:
    from cryptography.hazmat.primitives.asymmetric import rsa

    issuer = Issuer(algorithm="RS256")
    issuer.private = rsa.generate_private_key(public_exponent=65537, key_size=1024)

    with pytest.raises(FormatError, match="2048"):
        parse_key_set(issuer.key_set())


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"{}", b'{"keys": 7}', b"\xff", b'{"keys": []}', b"[" * 100_000]
)
def test_what_is_no_key_set_is_refused(body: bytes) -> None:
    with pytest.raises(FormatError):
        parse_key_set(body)


def test_one_bad_key_does_not_spoil_the_others() -> None:
    body = json.dumps({"keys": [{"kty": "odd"}, 7, ISSUER.public()]}).encode()

    assert len(parse_key_set(body).keys) == 1
