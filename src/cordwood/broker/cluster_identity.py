"""The broker as clients know it: its id, its addresses, its cluster."""

import contextlib
import socket
from collections.abc import Iterable
from typing import Self

from cordwood.broker.config.broker_config import ANY_ADDRESS, BrokerConfig
from cordwood.broker.config.security_config import ListenerConfig
from cordwood.value_class import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientListener:
    """A listener as its clients know it: `host` and `port` are what they connect to."""

    name: str
    host: str
    port: int

    @classmethod
    def of_config(cls, config: ListenerConfig, bound_port: int) -> Self:
        """The listener of a socket that was bound to `bound_port`."""
        name, host, port = config.advertised
        return cls(name=name, host=_reachable(host), port=port or bound_port)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterIdentity:
    """One broker, which is the whole cluster: its leader, its controller, its coordinator.

    `host` and `port` are those of its first listener.
    """

    node_id: int
    cluster_id: str
    host: str
    port: int
    rack: str | None = None

    @classmethod
    def of_broker(
        cls, config: BrokerConfig, cluster_id: str, listeners: Iterable[ClientListener]
    ) -> Self:
        """The identity of a broker with these listeners, at least one."""
        first = next(iter(listeners))
        return cls(
            node_id=config.node_id,
            cluster_id=cluster_id,
            host=first.host,
            port=first.port,
            rack=config.broker_rack,
        )


def _reachable(host: str) -> str:
    """A name for this machine that other machines can resolve, if it listens on all addresses."""
    if host not in ANY_ADDRESS:
        return host
    with contextlib.suppress(OSError):
        return socket.getfqdn()
    return "localhost"
