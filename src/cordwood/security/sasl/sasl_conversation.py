"""What a client may send while it authenticates, and what follows: the states of a connection.

    INITIAL       ApiVersions, SaslHandshake
    HANDSHAKE     SaslHandshake; ApiVersions was asked
    AUTHENTICATE  SaslAuthenticate, or tokens without headers if the handshake was of version 0
    COMPLETE      anything
    FAILED        nothing

Everything else is refused. A client that authenticates again begins with SaslHandshake in
COMPLETE, and must be the same user by the same mechanism.
"""

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Final, NamedTuple

from cordwood.protocol.error_code import ErrorCode
from cordwood.security.sasl.sasl_exchange import (
    Accepted,
    Challenge,
    Check,
    Exchange,
    Outcome,
    Refused,
)

_FIRST_WITH_HEADERS: Final = 1
_TOKENS_MAX: Final = 4  # no mechanism has more


class SaslState(Enum):
    INITIAL = "initial"
    HANDSHAKE = "handshake"
    AUTHENTICATE = "authenticate"
    COMPLETE = "complete"
    FAILED = "failed"


class Proved(NamedTuple):
    """Who a client has proved to be, and how."""

    user: str
    mechanism: str


class SaslConversation:
    """One authentication of one connection, or a later one of the same. For one thread at a time.

    `begin` starts the exchange of a mechanism that is enabled. `earlier` is what the client has
    proved before; it must prove the same again.
    """

    def __init__(
        self,
        mechanisms: Sequence[str],
        begin: Callable[[str], Exchange],
        *,
        earlier: Proved | None = None,
    ) -> None:
        self.state = SaslState.INITIAL if earlier is None else SaslState.HANDSHAKE
        self.mechanism: str | None = None  # that the client has chosen and that is enabled
        self.has_headers = True  # tokens are in SaslAuthenticate requests
        self._mechanisms = mechanisms
        self._begin = begin
        self._earlier = earlier
        self._exchange: Exchange | None = None
        self._tokens = 0

    @property
    def awaits_bare_token(self) -> bool:
        """Whether the next frame is a token without a header."""
        return self.state is SaslState.AUTHENTICATE and not self.has_headers

    def versions(self) -> bool:
        """Whether ApiVersions may be asked now. It may be once, as with Kafka."""
        if self.state is SaslState.INITIAL:
            self.state = SaslState.HANDSHAKE
            return True
        self.state = SaslState.FAILED
        return False

    def handshake(self, version: int, mechanism: str) -> ErrorCode:
        """The answer to a handshake. After an error the conversation is over."""
        if self.state not in {SaslState.INITIAL, SaslState.HANDSHAKE}:
            self.state = SaslState.FAILED
            return ErrorCode.illegal_sasl_state
        if mechanism not in self._mechanisms:
            self.state = SaslState.FAILED
            return ErrorCode.unsupported_sasl_mechanism
        self.mechanism = mechanism
        self.has_headers = version >= _FIRST_WITH_HEADERS
        self._exchange = self._begin(mechanism)
        self.state = SaslState.AUTHENTICATE
        return ErrorCode.none

    def receive(self, token: bytes, now_ms: int) -> Outcome | Check:
        """What follows from a token. The outcome of a `Check` is passed to `settle`."""
        self._tokens += 1
        if self.state is not SaslState.AUTHENTICATE or self._tokens > _TOKENS_MAX:
            return self.settle(Refused(reason="a token that was not expected"))
        if self._earlier is not None and self._earlier.mechanism != self.mechanism:
            return self.settle(
                Refused(
                    reason=f"authenticates again by {self.mechanism}, before by "
                    f"{self._earlier.mechanism}",
                    user=self._earlier.user,
                )
            )
        assert self._exchange is not None
        outcome = self._exchange.receive(token, now_ms)
        return outcome if isinstance(outcome, Check) else self.settle(outcome)

    def settle(self, outcome: Outcome) -> Outcome:
        """Take over the outcome; a client that has become somebody else is refused."""
        if (
            isinstance(outcome, Accepted)
            and self._earlier is not None
            and outcome.user != self._earlier.user
        ):
            outcome = Refused(
                reason=f"authenticates again as somebody else, before as {self._earlier.user}",
                user=outcome.user,
            )
        if not isinstance(outcome, Challenge):
            is_accepted = isinstance(outcome, Accepted)
            self.state = SaslState.COMPLETE if is_accepted else SaslState.FAILED
            self._exchange = None  # what it knew of the credential is not kept
        return outcome
