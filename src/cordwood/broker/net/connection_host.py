"""What all connections of a broker share."""

from dataclasses import dataclass

from cordwood.broker.net.connection_registry import ConnectionRegistry
from cordwood.broker.net.memory_budget import MemoryBudget
from cordwood.broker.net.request_metrics import RequestMetrics
from cordwood.broker.net.request_router import RequestRouter


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionHost:
    """The surroundings of a connection."""

    router: RequestRouter
    registry: ConnectionRegistry
    memory: MemoryBudget
    metrics: RequestMetrics
    frame_bytes_max: int
