"""PLAIN (RFC 4616): the client sends its password.

[authorization id] NUL user NUL password        all UTF-8
"""

import hashlib
import hmac
import secrets
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from cordwood.errors import FormatError, LimitExceededError
from cordwood.security.sasl.sasl_exchange import Accepted, Check, Outcome, Refused
from cordwood.security.sasl.scram_messages import NAME_CHARACTERS_MAX

_MESSAGE_BYTES_MAX: Final = 8 * 1024
_TOKENS: Final = 3


class PlainLogin(NamedTuple):
    """What a client claims."""

    authorization_id: str
    user: str
    password: str


def parse_plain(message: bytes) -> PlainLogin:
    """Raises `FormatError`, which does not contain the password."""
    if len(message) > _MESSAGE_BYTES_MAX:
        raise LimitExceededError("PLAIN message", size=len(message), limit=_MESSAGE_BYTES_MAX)
    try:
        tokens = message.decode().split("\0")
    except UnicodeDecodeError:
        raise FormatError("a PLAIN message is not UTF-8") from None  # it contains the password
    if len(tokens) != _TOKENS:
        raise FormatError(f"a PLAIN message has {len(tokens)} parts instead of {_TOKENS}")
    login = PlainLogin(*tokens)
    if not (login.user and login.password):
        raise FormatError("a PLAIN message without a user name or without a password")
    if len(login.user) > NAME_CHARACTERS_MAX:
        raise LimitExceededError("user name", size=len(login.user), limit=NAME_CHARACTERS_MAX)
    if login.authorization_id and login.authorization_id != login.user:
        raise FormatError("the authorization id differs from the user name")
    return login


class PlainExchange:
    """One login. `is_password` takes milliseconds, equally long for every user and password."""

    def __init__(self, is_password: Callable[[str, str], bool]) -> None:
        self._is_password = is_password
        self._is_over = False

    def receive(self, token: bytes, now_ms: int) -> Outcome | Check:
        if self._is_over:
            return Refused(reason="a message after the last one")
        self._is_over = True
        try:
            _, user, password = parse_plain(token)
        except FormatError as error:
            return Refused(reason=str(error))

        def check() -> Outcome:
            if self._is_password(user, password):
                return Accepted(user=user)
            return Refused(reason="wrong password, or no such user", user=user)

        return Check(run=check)


class ListedPasswords:
    """Passwords from the configuration; kept as digests under a key of this process."""

    def __init__(self, passwords: Mapping[str, str]) -> None:
        self._key = secrets.token_bytes(32)
        self._digests = {user: self._digest(text) for user, text in passwords.items()}
        self._nobody = secrets.token_bytes(hashlib.sha256().digest_size)

    def is_password(self, user: str, password: str) -> bool:
        expected = self._digests.get(user, self._nobody)
        return hmac.compare_digest(self._digest(password), expected)

    def _digest(self, password: str) -> bytes:
        return hmac.digest(self._key, password.encode(errors="surrogatepass"), "sha256")
