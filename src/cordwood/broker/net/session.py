"""Who is at the other end of a connection: the listener, the principal, and what they may do."""

from dataclasses import dataclass
from typing import Final, Protocol

from cordwood.broker.cluster_identity import ClientListener
from cordwood.protocol.acl_codes import OPERATIONS_OF, AclOperation, AclResource, operation_bits
from cordwood.security.principal import ANONYMOUS, Principal


class Access(Protocol):
    """What one principal may do from one host. Any thread may ask."""

    def allows(self, operation: AclOperation, resource: AclResource, name: str) -> bool: ...

    def allows_anywhere(self, operation: AclOperation, resource: AclResource) -> bool:
        """Whether there is a resource of that type, existing or not, that it may be done with."""
        ...

    def operations(self, resource: AclResource, name: str) -> int:
        """Everything that may be done with a resource, as bits."""
        ...


class UnlimitedAccess:
    """Everything is allowed: there is no authorizer."""

    def allows(self, operation: AclOperation, resource: AclResource, name: str) -> bool:
        return True

    def allows_anywhere(self, operation: AclOperation, resource: AclResource) -> bool:
        return True

    def operations(self, resource: AclResource, name: str) -> int:
        return operation_bits(OPERATIONS_OF[resource])


UNLIMITED: Final[Access] = UnlimitedAccess()


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """What is known of a client. A new one replaces it when the client authenticates."""

    listener: ClientListener
    client_host: str
    principal: Principal = ANONYMOUS
    access: Access = UNLIMITED
