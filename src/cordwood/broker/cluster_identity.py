"""Who we are, as clients are told."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterIdentity:
    """One broker, which is the whole cluster: its leader, its controller, its coordinator.

    `host` and `port` are what clients connect to, which need not be what we listen on.
    """

    node_id: int
    cluster_id: str
    host: str
    port: int
    rack: str | None = None
