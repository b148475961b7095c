"""Tokens of OAUTHBEARER: JSON Web Tokens (RFC 7519), and what makes one acceptable.

A token must be signed by a key of the issuer, with an algorithm of public keys; be for us
(audience) and from the issuer; be neither expired nor from the future; and name a user (subject).
"""

import json
from collections.abc import Mapping
from typing import Final

from cordwood.errors import CordwoodError
from cordwood.security.sasl.token_keys import KeySet
from cordwood.value_class import dataclass

SUBJECT_CHARACTERS_MAX: Final = 1024
_SCOPES_MAX: Final = 1000
_SECONDS_MAX: Final = 253_402_300_800  # the year 10000
_MS: Final = 1000


class RefusedTokenError(CordwoodError):
    """A token is not acceptable. `subject` is its user, if it was signed by the issuer."""

    def __init__(self, reason: str, *, subject: str | None = None) -> None:
        super().__init__(reason)
        self.subject = subject


class UnknownKeyError(RefusedTokenError):
    """A token is signed by a key that is not in the set. It may be new."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRules:
    """What is expected of tokens. `audience` empty, `issuer` None: any."""

    audience: tuple[str, ...] = ()
    issuer: str | None = None
    skew_s: int = 30
    scope_claim: str = "scope"
    subject_claim: str = "sub"


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidToken:
    """A token that is acceptable, until `expires_ms` since 1970."""

    subject: str
    expires_ms: int
    scopes: frozenset[str] = frozenset()


def check_token(token: str, keys: KeySet, rules: TokenRules, now_ms: int) -> ValidToken:
    """What a token says. Raises `RefusedTokenError`; `UnknownKeyError` if its key is unknown."""
    claims = _signed_claims(token, keys)
    subject = _subject(claims, rules)
    try:
        expires_ms = _check_times(claims, rules, now_ms)
        _check_parties(claims, rules)
        scopes = _scopes(claims, rules)
    except RefusedTokenError as error:
        raise RefusedTokenError(str(error), subject=subject) from None
    return ValidToken(subject=subject, expires_ms=expires_ms, scopes=scopes)


def _signed_claims(token: str, keys: KeySet) -> Mapping[str, object]:
    import jwt  # the extra `security`: see `token_keys.require_packages`

    try:
        header = jwt.get_unverified_header(token)
        if "crit" in header or header.get("b64", True) is not True:
            raise RefusedTokenError("the token has critical headers, which are not supported")
        algorithm, key_id = header.get("alg"), header.get("kid")
        if not isinstance(algorithm, str) or not isinstance(key_id, str | None):
            raise RefusedTokenError("the token's header has no algorithm, or an odd key id")
        key = keys.find(key_id, algorithm)
        if key is None:
            raise UnknownKeyError(
                f"no key for {algorithm[:16]!r} with the id {(key_id or '')[:64]!r}"
            )
        signed = jwt.PyJWS().decode_complete(token, key.public, algorithms=[algorithm])
        claims = json.loads(signed["payload"])
    except jwt.PyJWTError as error:
        raise RefusedTokenError(f"the token is not a sound JWT: {error}") from None
    except (ValueError, RecursionError):
        raise RefusedTokenError("the token's claims are not JSON") from None
    if not isinstance(claims, dict):
        raise RefusedTokenError("the token's claims are not an object")
    return claims


def _subject(claims: Mapping[str, object], rules: TokenRules) -> str:
    subject = claims.get(rules.subject_claim)
    if not isinstance(subject, str) or not subject.strip():
        raise RefusedTokenError(f"the token has no {rules.subject_claim!r} claim")
    subject = subject.strip()
    if len(subject) > SUBJECT_CHARACTERS_MAX or not subject.isprintable():
        raise RefusedTokenError(
            f"the token's {rules.subject_claim!r} claim is too long, or not printable"
        )
    return subject


def _check_times(claims: Mapping[str, object], rules: TokenRules, now_ms: int) -> int:
    """When the client must have another token."""
    expires_ms, issued_ms = _time_ms(claims, "exp"), _time_ms(claims, "iat")
    skew_ms = rules.skew_s * _MS
    if expires_ms is None or issued_ms is None:
        raise RefusedTokenError("the token has no 'exp' or no 'iat' claim")
    if now_ms >= expires_ms + skew_ms:
        raise RefusedTokenError(f"the token expired {(now_ms - expires_ms) // _MS} s ago")
    if issued_ms > now_ms + skew_ms:
        raise RefusedTokenError("the token was issued in the future; compare the clocks")
    not_before_ms = _time_ms(claims, "nbf")
    if not_before_ms is not None and not_before_ms > now_ms + skew_ms:
        raise RefusedTokenError("the token is not valid yet")
    # Within the skew its time is over by our clock only.
    return expires_ms if expires_ms > now_ms else expires_ms + skew_ms


def _time_ms(claims: Mapping[str, object], name: str) -> int | None:
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise RefusedTokenError(f"the token's {name!r} claim is not a number")
    if not 0 <= value < _SECONDS_MAX:  # false for what is not a number, too
        raise RefusedTokenError(f"the token's {name!r} claim is out of range")
    return int(value * _MS)


def _check_parties(claims: Mapping[str, object], rules: TokenRules) -> None:
    if rules.issuer is not None and claims.get("iss") != rules.issuer:
        raise RefusedTokenError("the token is not from sasl.oauthbearer.expected.issuer")
    if rules.audience:
        found = claims.get("aud")
        named = found if isinstance(found, list) else [found]
        if not any(name in rules.audience for name in named if isinstance(name, str)):
            raise RefusedTokenError("the token is not for sasl.oauthbearer.expected.audience")


def _scopes(claims: Mapping[str, object], rules: TokenRules) -> frozenset[str]:
    found = claims.get(rules.scope_claim)
    if found is None:
        return frozenset()
    named = found.split() if isinstance(found, str) else found
    if (
        not isinstance(named, list)
        or len(named) > _SCOPES_MAX
        or not all(isinstance(name, str) and name.strip() for name in named)
    ):
        raise RefusedTokenError(f"the token's {rules.scope_claim!r} claim is not a list of texts")
    return frozenset(name.strip() for name in named)
