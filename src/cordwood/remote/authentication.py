"""SASL over Kafka's protocol, as the client sees it.

    SaslHandshake(17) v1      mechanism            ->  error, mechanisms of the broker
    SaslAuthenticate(36) v0-1 message of the client ->  error, text, message of the broker,
                                                        lifetime of the session in ms (v1)

A broker may end the session after its lifetime unless the client authenticates again on the same
connection. This client does so after about nine tenths of it, before its next request.
"""

import random
import struct
from collections.abc import Callable
from typing import Final

from cordwood.errors import AuthenticationFailedError, BrokerUnreachableError, FormatError
from cordwood.protocol.error_code import ErrorCode
from cordwood.protocol.wire_values import (
    encode_string,
    read_count,
    read_exactly,
    read_int16,
    read_int32,
    read_int64,
    read_name,
    read_string,
)
from cordwood.security.clients.client_security import ClientSecurity
from cordwood.security.sasl.sasl_client import BearerClient, SaslClient
from cordwood.security.sasl.scram_client import SaslError

SASL_HANDSHAKE: Final = 17
SASL_AUTHENTICATE: Final = 36
NAMES: Final = {SASL_HANDSHAKE: "SaslHandshake", SASL_AUTHENTICATE: "SaslAuthenticate"}

_HANDSHAKE_VERSION: Final = 1
_AUTHENTICATE_MAX: Final = 1
_UNSUPPORTED_MECHANISM: Final = 33
_ILLEGAL_STATE: Final = 34
_AUTHENTICATION_FAILED: Final = 58
_MESSAGES_MAX: Final = 8  # of one exchange; SCRAM has two
_EARLIEST: Final = 0.85  # of the lifetime; the rest is spread, so that clients do not crowd
_LATEST: Final = 0.95

Exchange = Callable[[int, int, bytes], memoryview]


class Authentication:
    """Authenticates one connection, again and again. For the thread of the connection."""

    def __init__(
        self,
        security: ClientSecurity,
        address: str,
        exchange: Exchange,
        now_s: Callable[[], float],
    ) -> None:
        self._security = security
        self._address = address
        self._exchange = exchange
        self._now_s = now_s
        self._again_s: float | None = None

    @property
    def is_due(self) -> bool:
        """Whether the client must authenticate again before its next request."""
        return self._again_s is not None and self._now_s() >= self._again_s

    def run(self, versions: dict[int, tuple[int, int]]) -> None:
        """Authenticate, with what the broker serves. Raises `AuthenticationFailedError`."""
        if SASL_HANDSHAKE not in versions or SASL_AUTHENTICATE not in versions:
            raise AuthenticationFailedError(
                self._address, "this listener has no SASL; leave out the user and the password"
            )
        self._handshake()
        version = min(_AUTHENTICATE_MAX, versions[SASL_AUTHENTICATE][1])
        begun_s = self._now_s()
        lifetime_ms = self._authenticate(self._security.sasl_client(), version)
        self._again_s = None
        if lifetime_ms > 0:
            share = random.uniform(_EARLIEST, _LATEST)
            self._again_s = begun_s + share * lifetime_ms / 1000

    def _handshake(self) -> None:
        mechanism = self._security.mechanism
        body = self._exchange(
            SASL_HANDSHAKE, _HANDSHAKE_VERSION, encode_string(mechanism, is_flexible=False)
        )
        code, position = read_int16(body, 0)
        count, position = read_count(body, position, is_flexible=False)
        offered: list[str] = []
        for _ in range(count):
            name, position = read_name(body, position, is_flexible=False)
            offered.append(name)
        if code == _UNSUPPORTED_MECHANISM:
            raise AuthenticationFailedError(
                self._address,
                f"it does not offer {mechanism}; it offers {', '.join(offered) or 'nothing'} "
                "(sasl.mechanism, --mechanism)",
            )
        if code == _ILLEGAL_STATE:
            raise AuthenticationFailedError(
                self._address, "this listener has no SASL; leave out the user and the password"
            )
        if code:
            raise AuthenticationFailedError(self._address, f"it refuses SASL with {_named(code)}")

    def _authenticate(self, client: SaslClient, version: int) -> int:
        message: bytes | None = client.first()
        lifetime_ms = 0
        for _ in range(_MESSAGES_MAX):
            if message is None:
                break
            challenge, lifetime_ms = self._send(client, message, version)
            try:
                message = client.answer(challenge)
            except SaslError as error:
                raise AuthenticationFailedError(self._address, str(error)) from None
        if not client.is_complete:
            raise AuthenticationFailedError(self._address, "the exchange does not come to an end")
        return lifetime_ms

    def _send(self, client: SaslClient, message: bytes, version: int) -> tuple[bytes, int]:
        body = self._exchange(SASL_AUTHENTICATE, version, struct.pack(">i", len(message)) + message)
        code, position = read_int16(body, 0)
        text, position = read_string(body, position, is_flexible=False)
        size, position = read_int32(body, position)
        if size < 0:
            raise FormatError(f"a message of {size} bytes", position=position)
        challenge, position = read_exactly(body, position, size, "a SASL message")
        lifetime_ms = read_int64(body, position)[0] if version >= 1 else 0
        if code:
            raise AuthenticationFailedError(self._address, self._refusal(client, code, text))
        return bytes(challenge), lifetime_ms

    def _refusal(self, client: SaslClient, code: int, text: str | None) -> str:
        if isinstance(client, BearerClient) and client.refusal is not None:
            return f"it refuses the token: {client.refusal}"
        if code != _AUTHENTICATION_FAILED:
            return f"it answers {_named(code)}: {text or 'without a reason'}"
        said = f" ({text})" if text else ""
        return (
            f"it does not accept {self._security.who} with this password and "
            f"{client.mechanism}{said}"
            if self._security.user
            else f"it does not accept the token{said}"
        )


def not_asked_for(error: BrokerUnreachableError) -> BrokerUnreachableError:
    """The error of a first request that the broker answered by closing the connection."""
    return BrokerUnreachableError(
        error.address,
        f"{error.reason}, though it answered before; does the listener require a user "
        "(--user, security.protocol=SASL_SSL)?",
    )


def _named(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"error {code}"
