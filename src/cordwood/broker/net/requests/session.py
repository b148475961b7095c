"""Who is at the other end of a connection: the listener, the principal, and what they may do."""

from typing import Any, Final, Protocol

from cordwood.broker.cluster_identity import ClientListener
from cordwood.broker.net.requests.gate import Gate
from cordwood.broker.security.access_table import Need
from cordwood.protocol.acl_codes import CLUSTER_NAME, AclOperation, AclResource
from cordwood.security.access.access_event import AccessEvents, AccessRequest
from cordwood.security.access.authorizer import OpenAccess
from cordwood.security.principal import ANONYMOUS, Principal
from cordwood.value_class import dataclass, field


class Access(Protocol):
    """What one principal may do from one host. Any thread may ask.

    `is_unlimited`: there is no authorizer. A super user's access is not unlimited in this sense.
    """

    @property
    def is_unlimited(self) -> bool: ...

    def allows(self, operation: AclOperation, resource: AclResource, name: str) -> bool: ...

    def allows_anywhere(self, operation: AclOperation, resource: AclResource) -> bool:
        """Whether there is a resource of that type, existing or not, that it may be done with."""
        ...

    def operations(self, resource: AclResource, name: str) -> int:
        """Everything that may be done with a resource, as bits."""
        ...

    def report(self, request: AccessRequest, *, is_allowed: bool) -> None:
        """Report a decision to the listener of `AccessEvents`, if there is one."""
        ...


UNLIMITED: Final[Access] = OpenAccess(ANONYMOUS, "", AccessEvents())  # and nobody listens


class ClientSoftware:
    """The software of a client, as it said in ApiVersions. Its connection is the owner."""

    __slots__ = ("name", "version")

    def __init__(self) -> None:
        self.name = ""
        self.version = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """What is known of a client. A new one replaces it when the client authenticates.

    Without a gate every request is started.
    """

    listener: ClientListener
    client_host: str
    frame_bytes_max: int  # the largest request
    gate: Gate[Any] | None = None
    principal: Principal = ANONYMOUS
    access: Access = UNLIMITED
    client_port: int = 0
    software: ClientSoftware = field(default_factory=ClientSoftware)

    @property
    def is_somebody(self) -> bool:
        """Whether the client has proved who it is, or need not."""
        return self.gate is None or self.gate.is_passed

    def may(self, need: Need, name: str = CLUSTER_NAME, client_id: str | None = None) -> bool:
        """Whether the client may do what an API needs, with the resource of that name.

        A refusal is reported, and so is the permission to change something; with `client_id`,
        which the request has.
        """
        is_allowed = self.access.allows(need.operation, need.resource, name)
        if need.is_change if is_allowed else not need.is_quiet:
            self.report(need, name, client_id, is_allowed=is_allowed)
        return is_allowed

    def report(self, need: Need, name: str, client_id: str | None, *, is_allowed: bool) -> None:
        """Report a decision that was made elsewhere."""
        request = AccessRequest(
            need.api, need.operation, need.resource, name, self.listener.name, client_id or ""
        )
        self.access.report(request, is_allowed=is_allowed)
