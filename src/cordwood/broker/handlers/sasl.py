"""SaslHandshake and SaslAuthenticate from clients that cannot use them.

A client that has to authenticate does not come here: the gate of its connection answers it. These
are clients of a listener without SASL, and clients whose session has no end, or began just now.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cordwood.broker.error_codes import ErrorCode
from cordwood.broker.net.requests.request import RequestContext, Route, RunsOn, routes_on
from cordwood.protocol.api_catalog import ApiKey

if TYPE_CHECKING:
    from cordwood.protocol.schemas import user_messages as messages


class SaslHandler:
    """Refuses. Any thread may call it."""

    def routes(self) -> list[Route]:
        return routes_on(
            RunsOn.ANYWHERE,
            {
                ApiKey.SASL_HANDSHAKE: self.handshake,
                ApiKey.SASL_AUTHENTICATE: self.authenticate,
            },
        )

    def handshake(
        self, context: RequestContext, request: messages.SaslHandshakeRequest
    ) -> messages.SaslHandshakeResponseDict:
        return {"error_code": ErrorCode.illegal_sasl_state}

    def authenticate(
        self, context: RequestContext, request: messages.SaslAuthenticateRequest
    ) -> messages.SaslAuthenticateResponseDict:
        return {
            "error_code": ErrorCode.illegal_sasl_state,
            "error_message": "there is nothing to authenticate on this connection now",
        }
