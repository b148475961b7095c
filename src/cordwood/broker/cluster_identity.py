"""The broker as clients know it: its id, its address, its cluster."""

import contextlib
import socket
from dataclasses import dataclass
from typing import Self

from cordwood.broker.config.broker_config import BrokerConfig


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

    @classmethod
    def of_broker(cls, config: BrokerConfig, cluster_id: str, listening: tuple[str, int]) -> Self:
        """The identity of a broker that listens at `listening`."""
        host, port = listening
        return cls(
            node_id=config.node_id,
            cluster_id=cluster_id,
            host=config.advertised_host or _reachable(host),
            port=config.advertised_port or port,
            rack=config.broker_rack,
        )


def _reachable(host: str) -> str:
    """A name for this machine that other machines can resolve, if it listens on all addresses."""
    if host not in {"0.0.0.0", "::"}:
        return host
    with contextlib.suppress(OSError):
        return socket.getfqdn()
    return "localhost"
