"""SASL of a connection that this broker opens, as a machine: answers in, requests out.

SaslHandshake(17) v1       mechanism             ->  error, mechanisms of the server
SaslAuthenticate(36) v2    message of the client ->  error, text, message of the server,
                                                     lifetime of the session in ms
"""

from typing import TYPE_CHECKING, Final, NamedTuple, cast

from cordwood.errors import AuthenticationFailedError
from cordwood.protocol.api_catalog import ApiKey
from cordwood.protocol.error_code import ErrorCode
from cordwood.protocol.messages import decode_response, encode_request
from cordwood.security.clients.client_security import ClientSecurity
from cordwood.security.sasl.sasl_client import SaslClient
from cordwood.security.sasl.scram_client import SaslError

if TYPE_CHECKING:
    from cordwood.protocol.schemas import user_messages as messages

HANDSHAKE_VERSION: Final = 1
AUTHENTICATE_VERSION: Final = 2
_MESSAGES_MAX: Final = 8  # of one exchange; SCRAM has two


class SaslRequest(NamedTuple):
    api: ApiKey
    version: int
    body: bytes


class OutboundSasl:
    """One authentication. Belongs to its connection. Raises `AuthenticationFailedError`."""

    def __init__(self, security: ClientSecurity, address: str) -> None:
        self._address = address
        self._security = security
        self._client: SaslClient = security.sasl_client()
        self._is_greeted = False
        self._messages_left = _MESSAGES_MAX
        self.lifetime_ms = 0

    def first(self) -> SaslRequest:
        body = encode_request(
            ApiKey.SASL_HANDSHAKE, HANDSHAKE_VERSION, {"mechanism": self._security.mechanism}
        )
        return SaslRequest(ApiKey.SASL_HANDSHAKE, HANDSHAKE_VERSION, body)

    def receive(self, body: memoryview) -> SaslRequest | None:
        """The next request; None once both sides are satisfied."""
        if not self._is_greeted:
            self._greet(body)
            return self._message(self._client.first())
        answer = cast(
            "messages.SaslAuthenticateResponse",
            decode_response(ApiKey.SASL_AUTHENTICATE, AUTHENTICATE_VERSION, body),
        )
        if answer.error_code:
            raise self._failed(
                f"it does not accept {self._security.who} with {self._security.mechanism}"
                f" ({answer.error_message or _named(answer.error_code)})"
            )
        self.lifetime_ms = answer.session_lifetime
        try:
            following = self._client.answer(answer.auth_bytes)
        except SaslError as error:
            raise self._failed(str(error)) from None
        if following is not None:
            return self._message(following)
        if not self._client.is_complete:
            raise self._failed("the exchange does not come to an end")
        return None

    def _greet(self, body: memoryview) -> None:
        answer = cast(
            "messages.SaslHandshakeResponse",
            decode_response(ApiKey.SASL_HANDSHAKE, HANDSHAKE_VERSION, body),
        )
        if answer.error_code:
            offered = ", ".join(answer.mechanisms) or "nothing"
            raise self._failed(
                f"it refuses {self._security.mechanism} with {_named(answer.error_code)}; "
                f"it offers {offered}"
            )
        self._is_greeted = True

    def _message(self, message: bytes) -> SaslRequest:
        self._messages_left -= 1
        if self._messages_left < 0:
            raise self._failed("the exchange does not come to an end")
        body = encode_request(
            ApiKey.SASL_AUTHENTICATE, AUTHENTICATE_VERSION, {"auth_bytes": message}
        )
        return SaslRequest(ApiKey.SASL_AUTHENTICATE, AUTHENTICATE_VERSION, body)

    def _failed(self, reason: str) -> AuthenticationFailedError:
        return AuthenticationFailedError(self._address, reason)


def _named(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"error {code}"
