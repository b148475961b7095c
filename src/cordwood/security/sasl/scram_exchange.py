"""SCRAM-SHA-256 and SCRAM-SHA-512 on the server's side (RFC 5802, RFC 7677).

    client-first  ->  server-first: salt and iterations, also for users that do not exist
    client-final  ->  server-final, or the refusal

The client proves that it knows the password, and the broker that it knows the credential. Nothing
that an eavesdropper could use again is sent. Both steps take microseconds.
"""

import hmac
from collections.abc import Callable

from cordwood.errors import FormatError
from cordwood.security.sasl.sasl_exchange import Accepted, Challenge, Outcome, Refused
from cordwood.security.sasl.scram_credentials import KnownCredential, digest, keyed_digest
from cordwood.security.sasl.scram_messages import (
    ClientFinal,
    ClientFirst,
    parse_client_final,
    parse_client_first,
    render_server_final,
    render_server_first,
)
from cordwood.security.security_state import ScramMechanism

_TOKEN_AUTHENTICATION = "tokenauth"  # Kafka's delegation tokens


class ScramExchange:
    """One login. `nonce` is ours: random, printable ASCII without commas."""

    def __init__(
        self,
        mechanism: ScramMechanism,
        find: Callable[[str, ScramMechanism], KnownCredential],
        nonce: str,
    ) -> None:
        self._mechanism = mechanism
        self._find = find
        self._nonce = nonce
        self._first: ClientFirst | None = None
        self._known: KnownCredential | None = None
        self._server_first = ""
        self._is_over = False

    def receive(self, token: bytes, now_ms: int) -> Outcome:
        if self._is_over:
            return Refused(reason="a message after the last one")
        try:
            if self._first is None:
                return self._begin(parse_client_first(token))
            return self._finish(self._first, parse_client_final(token))
        except FormatError as error:
            self._is_over = True
            return Refused(reason=str(error), user=self._first.user if self._first else None)

    def _begin(self, first: ClientFirst) -> Outcome:
        self._first = first
        if first.authorization_id is not None and first.authorization_id != first.user:
            raise FormatError("the authorization id differs from the user name")
        if first.extensions.get(_TOKEN_AUTHENTICATION, "").lower() == "true":
            raise FormatError("delegation tokens are not supported")
        self._known = self._find(first.user, self._mechanism)
        credential = self._known.credential
        self._server_first = render_server_first(
            first.nonce + self._nonce, credential.salt, credential.iterations
        )
        return Challenge(token=self._server_first.encode())

    def _finish(self, first: ClientFirst, final: ClientFinal) -> Outcome:
        self._is_over = True
        known, mechanism = self._known, self._mechanism
        assert known is not None
        if final.binding != first.header.encode():
            raise FormatError("c= is not the beginning of the first message")
        if not self._is_of_this_login(first, final):
            raise FormatError("r= is not the nonce of this login")
        credential = known.credential
        message = f"{first.bare},{self._server_first},{final.without_proof}".encode()
        signature = keyed_digest(mechanism, credential.stored_key, message)
        if len(final.proof) != len(signature):
            raise FormatError(f"a proof of {len(final.proof)} bytes")
        client_key = bytes(a ^ b for a, b in zip(final.proof, signature, strict=True))
        is_proved = hmac.compare_digest(digest(mechanism, client_key), credential.stored_key)
        if known.is_invented:
            return Refused(
                reason=f"no such user, or no credential for {mechanism.mechanism}", user=first.user
            )
        if not is_proved:
            return Refused(reason="wrong password", user=first.user)
        return Accepted(
            user=first.user,
            token=render_server_final(keyed_digest(mechanism, credential.server_key, message)),
        )

    def _is_of_this_login(self, first: ClientFirst, final: ClientFinal) -> bool:
        """Older versions of librdkafka, such as 2.0.2 in kcat 1.7.1, repeat their nonce in front.

        That is as safe: the proof covers the message, and the message has our nonce in full.
        """
        nonce = first.nonce + self._nonce
        return final.nonce in (nonce, first.nonce + nonce)
