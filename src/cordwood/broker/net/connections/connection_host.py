"""What all connections of a broker share."""

from collections.abc import Callable, Mapping

from cordwood.broker.net.connections.connection_registry import ConnectionRegistry
from cordwood.broker.net.memory.memory_budget import MemoryBudget
from cordwood.broker.net.requests.request_metrics import RequestMetrics
from cordwood.broker.net.requests.session import Access
from cordwood.broker.net.routing.request_router import RequestRouter
from cordwood.broker.security.authentication import ListenerAuthentication
from cordwood.broker.security.authentication_events import AuthenticationEvents, EventGroup
from cordwood.security.principal import Principal
from cordwood.value_class import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionHost:
    """The surroundings of a connection."""

    router: RequestRouter
    registry: ConnectionRegistry
    memory: MemoryBudget
    metrics: RequestMetrics
    frame_bytes_max: int
    access_of: Callable[[Principal, str], Access]  # by principal and client host
    # How clients authenticate, by the name of the listener; not there: they need not.
    authentications: Mapping[str, ListenerAuthentication] = field(default_factory=dict)
    # Hears of clients that show a certificate.
    certificate_events: AuthenticationEvents = field(default_factory=EventGroup)
