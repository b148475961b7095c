"""How a client proves who it is: tokens from it, and what follows from each.

A mechanism (`scram_exchange`, `plain_exchange`, `oauth_exchange`) knows no sockets, threads or
clocks. What takes milliseconds is returned as a `Check`, which the broker runs in a thread of its
own.
"""

from collections.abc import Callable
from typing import Final, Protocol, TypeAlias

from cordwood.value_class import dataclass

PLAIN: Final = "PLAIN"
OAUTHBEARER: Final = "OAUTHBEARER"


@dataclass(frozen=True, slots=True, kw_only=True)
class Challenge:
    """The client must answer `token`."""

    token: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """The client is `user`. `token` is the last one for it; the proof is good until `expires_ms`.

    `expires_ms` is in milliseconds since 1970. None: the proof does not expire.
    """

    user: str
    token: bytes = b""
    expires_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """The client is not who it claims to be. `reason` and `user` are for our log only.

    The client must not be able to tell one reason from another.
    """

    reason: str
    user: str | None = None


Outcome: TypeAlias = Challenge | Accepted | Refused


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """Work that takes milliseconds: for a thread that nobody waits for."""

    run: Callable[[], Outcome]


class Exchange(Protocol):
    """One client's proof by one mechanism. For one thread at a time.

    Any number of tokens may be passed, in any state: what does not belong is refused.
    """

    def receive(self, token: bytes, now_ms: int) -> Outcome | Check: ...


MakeExchange: TypeAlias = Callable[[], Exchange]


def session_lifetime_ms(now_ms: int, expires_ms: int | None, reauth_ms: int) -> int | None:
    """How long a client may stay before it must authenticate again; None: for ever.

    `reauth_ms` is the limit that the operator set; 0: none. At least 1, because 0 means "for ever"
    to clients.
    """
    limits = [reauth_ms] if reauth_ms > 0 else []
    if expires_ms is not None:
        limits.append(expires_ms - now_ms)
    return max(min(limits), 1) if limits else None
