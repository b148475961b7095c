r"""The client's side of SASL, one machine for each mechanism.

    PLAIN          NUL user NUL password                        then nothing
    SCRAM-SHA-*    see `scram_client`
    OAUTHBEARER    n,,\x01auth=Bearer <token>\x01\x01           then nothing; or an error as JSON,
                                                                which the client answers with \x01

`first` is what the client sends first; `answer` is what it sends after each message of the server,
or None at the end. Pure: messages in, messages out.
"""

import json
import re
from typing import Final, Protocol

from cordwood.security.sasl.scram_client import MESSAGE_BYTES_MAX, SaslError, ScramClient
from cordwood.security.secret import Secret

PLAIN: Final = "PLAIN"
OAUTHBEARER: Final = "OAUTHBEARER"
SCRAM_MECHANISMS: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")
CLIENT_MECHANISMS: Final = (PLAIN, *SCRAM_MECHANISMS, OAUTHBEARER)

_TOKEN: Final = re.compile(r"[A-Za-z0-9\-._~+/]+=*")  # RFC 6750


class SaslClient(Protocol):
    """One exchange. For one thread."""

    mechanism: str

    @property
    def is_complete(self) -> bool:
        """Whether both sides have proved what the mechanism proves."""
        ...

    def first(self) -> bytes: ...

    def answer(self, challenge: bytes) -> bytes | None:
        """The next message; None if there is none. Raises `SaslError`."""
        ...


class PlainClient:
    """Sends the password itself: for connections with TLS."""

    def __init__(self, user: str, password: Secret) -> None:
        self.mechanism = PLAIN
        if "\0" in user or "\0" in password.reveal():
            raise SaslError("a user or password of PLAIN must not contain a NUL")
        self._user = user
        self._password = password
        self.is_complete = False

    def first(self) -> bytes:
        return f"\0{self._user}\0{self._password.reveal()}".encode()

    def answer(self, challenge: bytes) -> bytes | None:
        self.is_complete = True
        return None


class BearerClient:
    """Sends a token."""

    def __init__(self, token: Secret) -> None:
        self.mechanism = OAUTHBEARER
        if not _TOKEN.fullmatch(token.reveal()):
            raise SaslError("the token is empty or has characters that a token cannot have")
        self._token = token
        self._refusal: str | None = None
        self.is_complete = False

    def first(self) -> bytes:
        return f"n,,\x01auth=Bearer {self._token.reveal()}\x01\x01".encode()

    def answer(self, challenge: bytes) -> bytes | None:
        if self._refusal is not None:
            raise SaslError(f"it refuses the token: {self._refusal}")
        if challenge:
            self._refusal = _status(challenge)
            return b"\x01"  # the server answers this with the error
        self.is_complete = True
        return None

    @property
    def refusal(self) -> str | None:
        """Why the server refuses the token, as far as it said."""
        return self._refusal


def sasl_client(
    mechanism: str, *, user: str = "", password: Secret | None = None, token: Secret | None = None
) -> SaslClient:
    """The machine of a mechanism. Raises `SaslError` if it lacks what it needs."""
    if mechanism == OAUTHBEARER:
        if token is None:
            raise SaslError("OAUTHBEARER needs a token")
        return BearerClient(token)
    if mechanism not in CLIENT_MECHANISMS:
        raise SaslError(f"{mechanism} is not known; use one of {', '.join(CLIENT_MECHANISMS)}")
    if not user or password is None:
        raise SaslError(f"{mechanism} needs a user and a password")
    if mechanism == PLAIN:
        return PlainClient(user, password)
    return ScramClient(mechanism, user, password)


def _status(challenge: bytes) -> str:
    if len(challenge) > MESSAGE_BYTES_MAX:
        raise SaslError(f"its message of {len(challenge)} bytes is too long")
    try:
        found = json.loads(challenge)
        return str(found["status"])[:200]
    except (ValueError, KeyError, TypeError, RecursionError):
        return "it does not say why"
