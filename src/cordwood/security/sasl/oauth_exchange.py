r"""OAUTHBEARER (RFC 7628): the client sends a token that somebody else has signed.

    n,[a=authorization id],\x01auth=Bearer TOKEN\x01[name=value\x01...]\x01

A token that is not accepted is answered with a JSON object as if all were well. The client
answers with \x01, and that is refused.
"""

import json
import re
from collections.abc import Callable
from typing import Final, NamedTuple

from cordwood.errors import FormatError, LimitExceededError
from cordwood.security.sasl.sasl_exchange import Accepted, Challenge, Check, Outcome, Refused
from cordwood.security.sasl.scram_messages import parse_name
from cordwood.security.sasl.tokens import RefusedTokenError, ValidToken

_MESSAGE_BYTES_MAX: Final = 128 * 1024
TOKEN_CHARACTERS_MAX: Final = 64 * 1024
_SEPARATOR: Final = "\x01"
_ACKNOWLEDGED: Final = b"\x01"
_INVALID: Final = json.dumps({"status": "invalid_token"}, separators=(",", ":")).encode()

_PAIR: Final = re.compile(r"([A-Za-z]+)=([\x21-\x7e \t\r\n]+)")
_BEARER: Final = re.compile(r"(?i:bearer) +([-_~+/.a-zA-Z0-9]+=*)")


class BearerLogin(NamedTuple):
    """What a client sent."""

    authorization_id: str | None
    token: str
    extensions: dict[str, str]


def parse_bearer(message: bytes) -> BearerLogin:
    """Raises `FormatError`, which does not contain the token."""
    if len(message) > _MESSAGE_BYTES_MAX:
        raise LimitExceededError("OAUTHBEARER message", size=len(message), limit=_MESSAGE_BYTES_MAX)
    try:
        text = message.decode("ascii")
    except UnicodeDecodeError:
        raise FormatError("an OAUTHBEARER message is not ASCII") from None  # it has the token
    header, *pairs = text.split(_SEPARATOR)
    if len(pairs) < 3 or pairs[-2:] != ["", ""]:
        raise FormatError("an OAUTHBEARER message must end with two separators")
    parts = header.split(",")
    if len(parts) != 3 or parts[0] != "n" or parts[2]:
        raise FormatError("an OAUTHBEARER message must begin with 'n,' or 'n,a=name,'")
    if parts[1] and not parts[1].startswith("a="):
        raise FormatError("an OAUTHBEARER message has an unknown second part")
    found: dict[str, str] = {}
    for pair in pairs[:-2]:
        match = _PAIR.fullmatch(pair)
        if match is None or match[1] in found:
            raise FormatError("an OAUTHBEARER message has a part that is not name=value, once")
        found[match[1]] = match[2]
    bearer = _BEARER.fullmatch(found.pop("auth", ""))
    if bearer is None:
        raise FormatError("an OAUTHBEARER message has no auth=Bearer with a token")
    if len(bearer[1]) > TOKEN_CHARACTERS_MAX:
        raise LimitExceededError("token", size=len(bearer[1]), limit=TOKEN_CHARACTERS_MAX)
    return BearerLogin(
        authorization_id=parse_name(parts[1][2:]) if parts[1] else None,
        token=bearer[1],
        extensions=found,
    )


class OAuthExchange:
    """One login. `check_token` takes up to a millisecond; raises `RefusedTokenError`."""

    def __init__(self, check_token: Callable[[str, int], ValidToken]) -> None:
        self._check_token = check_token
        self._refusal: Refused | None = None  # that the client has to acknowledge
        self._is_over = False

    def receive(self, token: bytes, now_ms: int) -> Outcome | Check:
        if self._refusal is not None:
            refusal, self._refusal = self._refusal, None
            return refusal  # whatever the client sent
        if self._is_over:
            return Refused(reason="a message after the last one")
        self._is_over = True
        try:
            login = parse_bearer(token)
        except FormatError as error:
            return Refused(reason=str(error))
        return Check(run=lambda: self._check(login, now_ms))

    def _check(self, login: BearerLogin, now_ms: int) -> Outcome:
        try:
            valid = self._check_token(login.token, now_ms)
        except RefusedTokenError as error:
            self._refusal = Refused(reason=str(error), user=error.subject)
            return Challenge(token=_INVALID)
        if login.authorization_id is not None and login.authorization_id != valid.subject:
            return Refused(
                reason="the authorization id differs from the subject of the token",
                user=valid.subject,
            )
        return Accepted(user=valid.subject, expires_ms=valid.expires_ms)
