"""Who may have a page: the names under which the endpoint answers, and its token. Pure.

A browser sends requests to any address that a page in it names. If a page's own name is made to
point here (DNS rebinding), the browser lets that page read the answer. But it sends that name as
``Host``, so a name that is not ours is refused. An IP address cannot be rebound.
"""

import hmac
from http import HTTPStatus
from ipaddress import ip_address
from typing import Final

from cordwood.value_class import dataclass

ANY_HOST: Final = "*"
_BEARER: Final = "bearer "


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpGuard:
    """`hosts` are names in lower case. Pages in `open_paths` need no token."""

    hosts: frozenset[str] = frozenset({ANY_HOST})
    token: str | None = None
    open_paths: frozenset[str] = frozenset()

    def refusal(self, path: str, headers: dict[str, str]) -> tuple[HTTPStatus, str] | None:
        """Why a request is refused; None: it is not. Names of headers are in lower case."""
        host = headers.get("host")
        if host is not None and not self._is_ours(host):
            return (
                HTTPStatus.MISDIRECTED_REQUEST,
                f"{host} is not a name of this endpoint; metrics.hosts can have it",
            )
        if self.token is None or path in self.open_paths:
            return None
        given = headers.get("authorization", "")
        is_bearer = given[: len(_BEARER)].lower() == _BEARER
        token = given[len(_BEARER) :].strip() if is_bearer else ""
        if hmac.compare_digest(token.encode("latin-1", "replace"), self.token.encode()):
            return None
        return HTTPStatus.UNAUTHORIZED, "send the token: Authorization: Bearer <metrics.token>"

    def _is_ours(self, host: str) -> bool:
        name = host_name(host)
        return ANY_HOST in self.hosts or name in self.hosts or _is_address(name)


def host_name(host: str) -> str:
    """The name in a ``Host`` header, without its port, in lower case."""
    text = host.strip().lower()
    if text.startswith("["):
        return text[1:].partition("]")[0]
    name, _, _ = text.partition(":")
    return name.rstrip(".")


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
