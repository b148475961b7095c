"""Which requests are answered at all. Pure.

A browser sends requests to any address that a page in it names. Three things protect from pages of
others:

    Host            a name that was made to point here (DNS rebinding) is not ours
    Sec-Fetch-Site  another site may lead here by a link, but not load anything from here
    Origin, token   a change comes from a form of ours, with a token that only our pages have
"""

import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from http import HTTPStatus
from ipaddress import ip_address
from typing import Final

BODY_BYTES_MAX: Final = 64 * 1024
_SAFE: Final = frozenset({"GET", "HEAD"})
_HOST: Final = re.compile(r"(?:\[(?P<address>[0-9a-f:.]+)\]|(?P<name>[^\s:@/\[\]]+))(?::[0-9]*)?")
_OWN_SITES: Final = frozenset({"same-origin", "none"})

# Scripts, styles and pictures of this server only; no frames, no plugins, no other base.
CONTENT_SECURITY_POLICY: Final = (
    "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; "
    "object-src 'none'"
)
SECURITY_HEADERS: Final[Mapping[str, str]] = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    status: HTTPStatus
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestGuard:
    """`names` are host names in lower case. An IP address cannot be rebound, so any is accepted."""

    names: frozenset[str]
    scheme: str

    def refusal(self, method: str, headers: Mapping[str, str]) -> Refusal | None:
        """Why a request is refused; None: it is not. Names of headers are in lower case."""
        host = headers.get("host", "")
        if not self._is_ours(host):
            return Refusal(
                status=HTTPStatus.MISDIRECTED_REQUEST,
                reason=f"{host!r} is not a name of this console; --name can add it",
            )
        if method not in _SAFE and method != "POST":
            return Refusal(
                status=HTTPStatus.METHOD_NOT_ALLOWED, reason=f"{method} is not used here"
            )
        if method == "POST" and headers.get("origin") != f"{self.scheme}://{host}":
            return Refusal(
                status=HTTPStatus.FORBIDDEN, reason="a change must come from a page of this console"
            )
        site = headers.get("sec-fetch-site", "none")
        if site not in _OWN_SITES and headers.get("sec-fetch-mode") != "navigate":
            return Refusal(
                status=HTTPStatus.FORBIDDEN, reason="pages of other sites may not load this"
            )
        length = headers.get("content-length", "0")
        if not length.isdigit() or int(length[:12]) > BODY_BYTES_MAX:
            return Refusal(
                status=HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                reason=f"a request may have {BODY_BYTES_MAX} bytes",
            )
        if "transfer-encoding" in headers:
            return Refusal(
                status=HTTPStatus.LENGTH_REQUIRED, reason="a request must say how long it is"
            )
        return None

    def _is_ours(self, host: str) -> bool:
        name = _name(host)
        if name in self.names:
            return True
        try:
            ip_address(name)
        except ValueError:
            return False
        return True


def _name(host: str) -> str:
    """The name in a ``Host`` header, without its port, in lower case; empty if it is none."""
    found = _HOST.fullmatch(host.strip().lower())
    return "" if found is None else (found["address"] or found["name"]).rstrip(".")


@dataclass(frozen=True, slots=True, repr=False)
class FormTokens:
    """Tokens for forms: each belongs to one session, and only this process can make them."""

    secret: bytes

    def token(self, session: str) -> str:
        return hmac.new(self.secret, session.encode(), sha256).hexdigest()

    def is_valid(self, session: str, token: str) -> bool:
        return hmac.compare_digest(self.token(session).encode(), token.encode("utf-8", "replace"))
