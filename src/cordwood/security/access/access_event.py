"""What the authorizer reports: refusals, and administrative changes that were allowed."""

from collections.abc import Callable
from typing import NamedTuple

from cordwood.protocol.acl_codes import AclOperation, AclResource
from cordwood.security.principal import Principal
from cordwood.security.security_state import AclRule


class AccessRequest(NamedTuple):
    """What a client asks to do: with a resource, by a request, on a connection.

    `api` is the name of the request, such as ``CreateTopics``.
    """

    api: str
    operation: AclOperation
    resource: AclResource
    name: str
    listener: str = ""
    client_id: str = ""  # any text


class AccessEvent(NamedTuple):
    """One decision. `reason` is the rule that decided, or says why there is none."""

    principal: Principal
    host: str
    request: AccessRequest
    is_allowed: bool
    reason: "AclRule | str"


class AccessEvents:
    """Passes events on to one listener, if there is one.

    Any thread reports, also the loops that serve clients: a listener must not block.
    """

    __slots__ = ("listener",)

    def __init__(self, listener: Callable[[AccessEvent], None] | None = None) -> None:
        self.listener = listener
