"""Lets a connection's requests pass once its client has proved who it is.

Before that, only ApiVersions, SaslHandshake and SaslAuthenticate are answered, see
`sasl_conversation`. Requests that follow wait, because the answer before them is not ready. A
client that fails is answered after a while, and disconnected.

A session that ends at some time keeps its gate: until then all requests pass, and afterwards only
a handshake, with which the client authenticates again. A session without an end loses it.
"""

import logging
import math
import struct
from collections.abc import Mapping, Sequence
from typing import Any, Final, Required, TypedDict

from cordwood.broker.net.connections.connection_host import ConnectionHost
from cordwood.broker.net.requests.answer import Answer, Connection, begin_answer
from cordwood.broker.net.requests.session import Session
from cordwood.broker.security.authentication import ListenerAuthentication
from cordwood.broker.security.authentication_events import Attempt, AttemptResult
from cordwood.errors import FormatError, TruncatedInputError
from cordwood.protocol.api_catalog import API_CATALOG, KNOWN_APIS, ApiKey
from cordwood.protocol.error_code import ErrorCode
from cordwood.protocol.messages import decode_request, encode_response
from cordwood.protocol.request_header import RequestHeader
from cordwood.security.principal import USER, Principal
from cordwood.security.sasl.sasl_conversation import Proved, SaslConversation, SaslState
from cordwood.security.sasl.sasl_exchange import (
    Accepted,
    Challenge,
    Check,
    Outcome,
    Refused,
    session_lifetime_ms,
)
from cordwood.value_class import replace

logger = logging.getLogger(__name__)

_HEADER_BYTES_MIN: Final = 10
_KEY_AND_VERSION: Final = struct.Struct(">hh")
_SIZE: Final = struct.Struct(">i")
_API_VERSIONS: Final = int(ApiKey.API_VERSIONS)
_HANDSHAKE: Final = int(ApiKey.SASL_HANDSHAKE)
_AUTHENTICATE: Final = int(ApiKey.SASL_AUTHENTICATE)
_OURS: Final = frozenset({_API_VERSIONS, _HANDSHAKE, _AUTHENTICATE})
_WITHOUT_HEADER: Final = RequestHeader(_AUTHENTICATE, 0, 0, None)
_AGAIN_S_MIN: Final = 1.0  # between two authentications of a connection, as in Kafka


class _Refusal(TypedDict, total=False):
    """Fields of the three answers."""

    error_code: Required[ErrorCode]
    error_message: str
    mechanisms: Sequence[str]


def guarded(
    session: Session, authentication: ListenerAuthentication, host: ConnectionHost, now_s: float
) -> Session:
    """The session of a client that has to authenticate first."""
    gate = SaslGate(authentication, host, session.client_host, now_s)
    return replace(session, gate=gate, frame_bytes_max=authentication.frame_bytes_max)


class SaslGate:
    """The authentication of one connection. Belongs to the thread of the connection's loop."""

    __slots__ = (
        "_authentication",
        "_began_s",
        "_client_host",
        "_conversation",
        "_deadline_s",
        "_expires_s",
        "_has_left",
        "_host",
        "_proved",
    )

    def __init__(
        self,
        authentication: ListenerAuthentication,
        host: ConnectionHost,
        client_host: str,
        now_s: float,
    ) -> None:
        self._authentication = authentication
        self._host = host
        self._client_host = client_host
        self._conversation: SaslConversation | None = None  # None: the client is authenticated
        self._proved: Proved | None = None
        self._expires_s = math.inf
        self._began_s = -math.inf  # when the client last began to authenticate again
        self._deadline_s = math.inf
        self._has_left = False
        self._begin(now_s)

    @property
    def is_passed(self) -> bool:
        return self._proved is not None

    def admits(self, connection: Connection, data: memoryview, begin: int, end: int) -> bool:
        conversation = self._conversation
        if conversation is not None and conversation.awaits_bare_token:
            token = bytes(data[begin:end])
            self._receive(conversation, Answer(connection, _WITHOUT_HEADER), token)
            return False
        if end - begin < _HEADER_BYTES_MIN:
            raise TruncatedInputError("request header", needed=_HEADER_BYTES_MIN, got=end - begin)
        api_key, version = _KEY_AND_VERSION.unpack_from(data, begin)
        if conversation is None:
            now_s = connection.loop.turn_s
            if (api_key != _HANDSHAKE and now_s < self._expires_s) or self._passes(api_key, now_s):
                return True
            conversation = self._begin(now_s)
        if api_key not in _OURS:
            self._failed(f"API {api_key} before the end of the authentication")
            raise FormatError(f"API {api_key} from a client that is not authenticated")
        if api_key == _API_VERSIONS and (
            not API_CATALOG[api_key].serves(version)  # answered with those that are
            or conversation.versions()
        ):
            return True
        self._start(conversation, connection, data, begin, end)
        return False

    def overdue(self, now_s: float) -> str | None:
        conversation = self._conversation
        if (
            now_s < self._deadline_s
            or conversation is None
            or conversation.state is SaslState.FAILED
        ):
            return None
        conversation.state = SaslState.FAILED
        self._failed(f"not authenticated after {self._authentication.timeout_s:g} s")
        return ""

    # --- requests ----------------------------------------------------------------------------

    def _begin(self, now_s: float) -> SaslConversation:
        authentication = self._authentication
        self._conversation = SaslConversation(
            authentication.mechanisms, authentication.begin, earlier=self._proved
        )
        self._deadline_s = now_s + authentication.timeout_s
        return self._conversation

    def _passes(self, api_key: int, now_s: float) -> bool:
        """Whether a request of an authenticated client is started.

        False: it begins another authentication.
        """
        if api_key == _HANDSHAKE and now_s - self._began_s >= _AGAIN_S_MIN:
            self._began_s = now_s
            return False
        if now_s >= self._expires_s:
            authentication, proved = self._authentication, self._proved
            authentication.counts.count(
                authentication.name, proved and proved.mechanism, AttemptResult.EXPIRED
            )
            raise FormatError("the client has not authenticated again in time")
        return True

    def _start(
        self,
        conversation: SaslConversation,
        connection: Connection,
        data: memoryview,
        begin: int,
        end: int,
    ) -> None:
        answer, body = begin_answer(connection, data, begin, end)
        header = answer.header
        request = decode_request(header.api_key, header.api_version, body)
        if header.api_key == _HANDSHAKE:
            code = conversation.handshake(header.api_version, request.mechanism)
            response: _Refusal = {
                "error_code": code,
                "mechanisms": self._authentication.mechanisms,
            }
            if code:
                wanted = request.mechanism[:32]
                self._refuse(answer, response, f"{code.name} {wanted!r}")
            else:
                answer.give_here([_encoded(header, response)])
        elif header.api_key == _AUTHENTICATE and conversation.state is SaslState.AUTHENTICATE:
            self._receive(conversation, answer, bytes(request.auth_bytes))
        else:
            conversation.state = SaslState.FAILED
            response = {"error_code": ErrorCode.illegal_sasl_state}
            name = KNOWN_APIS[header.api_key].name
            self._refuse(answer, response, f"{name} was not expected")

    def _receive(self, conversation: SaslConversation, answer: Answer, token: bytes) -> None:
        outcome = conversation.receive(token, self._authentication.clock.now_ms())
        if not isinstance(outcome, Check):
            self._settle(conversation, answer, outcome)
            return
        check = outcome
        loop = answer.connection.loop

        def run() -> None:  # in a thread for checks
            if self._has_left:
                return
            try:
                found: Outcome = check.run()
            except Exception:
                logger.exception("a check of credentials failed")
                found = Refused(reason="the check failed")
            loop.call_soon(lambda: self._checked(conversation, answer, found))

        answer.when_left = lambda: self._left(answer)
        self._authentication.checks.submit(self._client_host, run)

    def _left(self, answer: Answer) -> None:
        """The client has left, and its check is not worth the time."""
        self._has_left = True
        answer.abandon("")

    def _checked(self, conversation: SaslConversation, answer: Answer, found: Outcome) -> None:
        answer.when_left = None
        if self._has_left:
            return
        try:
            self._settle(conversation, answer, conversation.settle(found))
        except Exception:  # a bug of ours: do not leave the client waiting
            logger.exception("%s: a login failed", self._client_host)
            answer.abandon("the broker failed")

    # --- answers -----------------------------------------------------------------------------

    def _settle(self, conversation: SaslConversation, answer: Answer, outcome: Outcome) -> None:
        match outcome:
            case Challenge(token=token):
                answer.give_here([_token_frame(answer.header, token)])
            case Accepted():
                self._accept(conversation, answer, outcome)
            case Refused(reason=reason, user=user):
                # The same text whatever the reason is.
                text = f"authentication by {conversation.mechanism} failed: invalid credentials"
                code = ErrorCode.sasl_authentication_failed
                self._refuse(answer, {"error_code": code, "error_message": text}, reason, user)

    def _accept(self, conversation: SaslConversation, answer: Answer, accepted: Accepted) -> None:
        authentication, connection = self._authentication, answer.connection
        mechanism = conversation.mechanism
        assert mechanism is not None
        lifetime_ms = session_lifetime_ms(
            authentication.clock.now_ms(),
            accepted.expires_ms,
            authentication.reauth_ms(mechanism),
        )
        principal = Principal(USER, accepted.user)
        authentication.events.succeeded(
            self._attempt(accepted.user, answer.header.client_id), principal
        )
        self._proved = Proved(accepted.user, mechanism)
        self._conversation = None
        self._deadline_s = math.inf
        self._expires_s = (
            math.inf if lifetime_ms is None else connection.loop.now_s() + lifetime_ms / 1000
        )
        connection.session = replace(
            connection.session,
            principal=principal,
            access=self._host.access_of(principal, self._client_host),
            frame_bytes_max=self._host.frame_bytes_max,
            gate=None if lifetime_ms is None else self,
        )
        answer.give_here([_token_frame(answer.header, accepted.token, lifetime_ms or 0)])

    def _refuse(
        self, answer: Answer, response: _Refusal, reason: str, user: str | None = None
    ) -> None:
        """Answer after a while, then disconnect: guessing takes its time."""
        connection, header = answer.connection, answer.header
        self._failed(reason, user, header.client_id)
        self._host.metrics.failed(header.api_key, response["error_code"])

        def end() -> None:
            # A client that sends tokens without headers expects no errors either.
            is_expected = header is not _WITHOUT_HEADER
            answer.give_here([_encoded(header, response)] if is_expected else [])
            connection.close("")  # `FailureLog` has the reason

        connection.loop.call_later(self._authentication.failure_delay_s, end)

    def _failed(self, reason: str, user: str | None = None, client_id: str | None = None) -> None:
        self._authentication.events.failed(self._attempt(user, client_id), reason)

    def _attempt(self, user: str | None, client_id: str | None) -> Attempt:
        conversation = self._conversation
        return Attempt(
            listener=self._authentication.name,
            client_host=self._client_host,
            mechanism=None if conversation is None else conversation.mechanism,
            user=user,
            is_again=self._proved is not None,
            client_id=client_id or "",
        )


def _encoded(header: RequestHeader, response: Mapping[str, Any]) -> bytes:
    return encode_response(header.api_key, header.api_version, header.correlation_id, response)


def _token_frame(header: RequestHeader, token: bytes, lifetime_ms: int = 0) -> bytes:
    if header is _WITHOUT_HEADER:
        return _SIZE.pack(len(token)) + token
    return _encoded(header, {"auth_bytes": token, "session_lifetime": lifetime_ms})
