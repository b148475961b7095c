"""The client's side of SCRAM (RFC 5802, RFC 7677): proves a password without sending it.

    client-first   n,,n=<user>,r=<client nonce>
    server-first   r=<client nonce><server nonce>,s=<salt>,i=<iterations>
    client-final   c=biws,r=<both nonces>,p=<proof>
    server-final   v=<signature>                     or e=<error>

The server proves itself, too: only a server that has the user's credential can compute the
signature. A client that does not check it would hand its next requests to an impostor, so the
exchange is complete only when the signature is right.

Limits: fewer than 4096 iterations would let an impostor guess the password from the proof; more
than a million would keep the client busy for seconds. Pure: messages in, messages out.
"""

import base64
import binascii
import hashlib
import hmac
import re
import secrets
from enum import Enum, auto
from typing import Final

from cordwood.security.secret import Secret

ITERATIONS_MIN: Final = 4096
ITERATIONS_MAX: Final = 1_000_000
MESSAGE_BYTES_MAX: Final = 64 * 1024

_HASHES: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
_NO_CHANNEL_BINDING: Final = "n,,"
_CHANNEL: Final = base64.b64encode(_NO_CHANNEL_BINDING.encode()).decode()
_NONCE_BYTES: Final = 24
_SALT_BYTES_MAX: Final = 1024
_SERVER_FIRST: Final = re.compile(
    r"r=([\x21-\x2b\x2d-\x7e]+),s=([A-Za-z0-9+/=]+),i=([0-9]{1,10})(,.*)?", re.DOTALL
)
_SERVER_FINAL: Final = re.compile(r"v=([A-Za-z0-9+/=]+)(,.*)?", re.DOTALL)
_SERVER_ERROR: Final = re.compile(r"e=([^,]*)(,.*)?", re.DOTALL)


class SaslError(ValueError):
    """The exchange cannot go on: the server's message breaks a rule, or it refuses the client."""


class _State(Enum):
    START = auto()
    FIRST_SENT = auto()
    FINAL_SENT = auto()
    COMPLETE = auto()
    FAILED = auto()


class ScramClient:
    """One exchange. For one thread; messages alternate, beginning with `first`."""

    def __init__(
        self, mechanism: str, user: str, password: Secret, *, nonce: str | None = None
    ) -> None:
        self.mechanism = mechanism
        self._hash = _HASHES[mechanism]
        self._password = password
        self._nonce = nonce or secrets.token_urlsafe(_NONCE_BYTES)
        self._first_bare = f"n={_escaped(user)},r={self._nonce}"
        self._signature = b""
        self._state = _State.START

    @property
    def is_complete(self) -> bool:
        return self._state is _State.COMPLETE

    def first(self) -> bytes:
        assert self._state is _State.START, self._state
        self._state = _State.FIRST_SENT
        return f"{_NO_CHANNEL_BINDING}{self._first_bare}".encode()

    def answer(self, challenge: bytes) -> bytes | None:
        """The message that follows the server's; None if the exchange is complete.

        Raises `SaslError`.
        """
        state, self._state = self._state, _State.FAILED
        text = _text(challenge)
        if state is _State.FIRST_SENT:
            final = self._final(text)
            self._state = _State.FINAL_SENT
            return final
        assert state is _State.FINAL_SENT, state
        self._check_signature(text)
        self._state = _State.COMPLETE
        return None

    def _final(self, server_first: str) -> bytes:
        found = _SERVER_FIRST.fullmatch(server_first)
        if found is None:
            _raise_if_refused(server_first)
            raise SaslError("its first SCRAM message has not the form r=..,s=..,i=..")
        nonce, salt, iterations = found[1], _base64("salt", found[2]), int(found[3])
        if not nonce.startswith(self._nonce) or len(nonce) == len(self._nonce):
            raise SaslError("its nonce does not continue that of the client")
        if not 0 < len(salt) <= _SALT_BYTES_MAX:
            raise SaslError(f"its salt has {len(salt)} bytes, not 1 to {_SALT_BYTES_MAX}")
        if not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
            raise SaslError(
                f"it asks for {iterations} iterations; {ITERATIONS_MIN} to {ITERATIONS_MAX} are "
                "accepted"
            )
        without_proof = f"c={_CHANNEL},r={nonce}"
        signed = f"{self._first_bare},{server_first},{without_proof}".encode()
        salted = hashlib.pbkdf2_hmac(self._hash, self._password.reveal().encode(), salt, iterations)
        client_key = self._hmac(salted, b"Client Key")
        stored_key = hashlib.new(self._hash, client_key).digest()
        client_signature = self._hmac(stored_key, signed)
        self._signature = self._hmac(self._hmac(salted, b"Server Key"), signed)
        proof = bytes(a ^ b for a, b in zip(client_key, client_signature, strict=True))
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()

    def _check_signature(self, server_final: str) -> None:
        found = _SERVER_FINAL.fullmatch(server_final)
        if found is None:
            _raise_if_refused(server_final)
            raise SaslError("its last SCRAM message has no signature")
        if not hmac.compare_digest(_base64("signature", found[1]), self._signature):
            raise SaslError(
                "its signature is wrong: it does not know the user's credential, so it is not the "
                "broker that it claims to be"
            )

    def _hmac(self, key: bytes, data: bytes) -> bytes:
        return hmac.digest(key, data, self._hash)


def _escaped(user: str) -> str:
    return user.replace("=", "=3D").replace(",", "=2C")


def _text(message: bytes) -> str:
    if len(message) > MESSAGE_BYTES_MAX:
        raise SaslError(f"its message of {len(message)} bytes is too long")
    try:
        return message.decode()
    except UnicodeDecodeError:
        raise SaslError("its message is not UTF-8") from None


def _base64(what: str, text: str) -> bytes:
    try:
        found = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        found = None
    # There is one text for each value: bits that are not used are 0.
    if found is None or base64.b64encode(found).decode() != text:
        raise SaslError(f"its {what} is not base64")
    return found


def _raise_if_refused(message: str) -> None:
    found = _SERVER_ERROR.fullmatch(message)
    if found is not None:
        raise SaslError(f"it refuses the client: {found[1][:200]}")
