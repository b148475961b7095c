"""What all connections of a broker share."""

from collections.abc import Callable
from dataclasses import dataclass

from cordwood.broker.net.connection_registry import ConnectionRegistry
from cordwood.broker.net.memory_budget import MemoryBudget
from cordwood.broker.net.request_metrics import RequestMetrics
from cordwood.broker.net.request_router import RequestRouter
from cordwood.broker.net.session import Access
from cordwood.security.principal import Principal


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionHost:
    """The surroundings of a connection."""

    router: RequestRouter
    registry: ConnectionRegistry
    memory: MemoryBudget
    metrics: RequestMetrics
    frame_bytes_max: int
    access_of: Callable[[Principal, str], Access]  # by principal and client host
