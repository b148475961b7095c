"""Who is at the other end of a connection: the listener, the principal, and what they may do."""

from typing import TYPE_CHECKING, Final, Protocol

from cordwood.broker.cluster_identity import ClientListener
from cordwood.broker.security.access_table import Need
from cordwood.protocol.acl_codes import (
    CLUSTER_NAME,
    OPERATIONS_OF,
    AclOperation,
    AclResource,
    operation_bits,
)
from cordwood.security.principal import ANONYMOUS, Principal
from cordwood.value_class import dataclass

if TYPE_CHECKING:
    from cordwood.broker.net.answer import Connection


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

    def report(
        self,
        api: str,
        operation: AclOperation,
        resource: AclResource,
        name: str,
        *,
        is_allowed: bool,
    ) -> None:
        """Report a decision to the listener of `AccessEvents`, if there is one."""
        ...


class UnlimitedAccess:
    """Everything is allowed: there is no authorizer."""

    is_unlimited = True

    def allows(self, operation: AclOperation, resource: AclResource, name: str) -> bool:
        return True

    def allows_anywhere(self, operation: AclOperation, resource: AclResource) -> bool:
        return True

    def operations(self, resource: AclResource, name: str) -> int:
        return operation_bits(OPERATIONS_OF[resource])

    def report(
        self,
        api: str,
        operation: AclOperation,
        resource: AclResource,
        name: str,
        *,
        is_allowed: bool,
    ) -> None:
        pass


UNLIMITED: Final[Access] = UnlimitedAccess()


class Gate(Protocol):
    """Stands before the router while a client has to prove who it is, now or later.

    Belongs to the thread of the connection's loop, except for `is_passed`.
    """

    @property
    def is_passed(self) -> bool:
        """Whether the client has proved who it is, now or before. Any thread."""
        ...

    def admits(self, connection: "Connection", data: memoryview, begin: int, end: int) -> bool:
        """Whether the router may start the request in ``data[begin:end]``.

        If not, the gate answers it. Raises `FormatError` to close the connection.
        """
        ...

    def overdue(self, now_s: float) -> str | None:
        """Why the connection must be closed now; empty: that is logged. Asked repeatedly."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """What is known of a client. A new one replaces it when the client authenticates.

    Without a gate every request is started.
    """

    listener: ClientListener
    client_host: str
    frame_bytes_max: int  # the largest request
    gate: Gate | None = None
    principal: Principal = ANONYMOUS
    access: Access = UNLIMITED

    @property
    def is_somebody(self) -> bool:
        """Whether the client has proved who it is, or need not."""
        return self.gate is None or self.gate.is_passed

    def may(self, need: Need, name: str = CLUSTER_NAME) -> bool:
        """Whether the client may do what an API needs, with the resource of that name.

        A refusal is reported, and so is the permission to change something.
        """
        access, operation, resource = self.access, need.operation, need.resource
        is_allowed = access.allows(operation, resource, name)
        if need.is_change if is_allowed else not need.is_quiet:
            access.report(need.api, operation, resource, name, is_allowed=is_allowed)
        return is_allowed
