"""Connections to the other brokers of the cluster, at the addresses that the image has."""

from collections.abc import Callable
from functools import partial

from cordwood.broker.net.loop.event_loop import EventLoop
from cordwood.broker.net.outbound.outbound_call import OutboundCall
from cordwood.broker.net.outbound.outbound_peer import OutboundPeer
from cordwood.broker.net.outbound.outbound_target import Target
from cordwood.cluster.image.broker_image import Endpoint
from cordwood.cluster.image.metadata_image import MetadataImage
from cordwood.errors import BrokerUnreachableError


class BrokerPeers:
    """Belongs to the thread of `loop`. `listener` is the one that brokers use among each other.

    `target_of` says how an endpoint is connected to. A broker that moved gets a new connection.
    """

    def __init__(
        self,
        loop: EventLoop,
        *,
        image: Callable[[], MetadataImage],
        listener: str,
        target_of: Callable[[Endpoint], Target],
        client_id: str,
    ) -> None:
        self._loop = loop
        self._image = image
        self._listener = listener
        self._target_of = target_of
        self._client_id = client_id
        self._peers: dict[int, tuple[Endpoint, OutboundPeer]] = {}

    def send(self, node_id: int, call: OutboundCall) -> None:
        """Send a request to a broker; a connection is opened if there is none."""
        broker = self._image().brokers.get(node_id)
        endpoint = None if broker is None else broker.endpoint(self._listener)
        if endpoint is None:
            reason = f"it has no listener {self._listener} that is known"
            error = BrokerUnreachableError(f"broker {node_id}", reason)
            self._loop.call_soon(partial(call.when_done, error))
            return
        known = self._peers.get(node_id)
        if known is None or known[0] != endpoint:
            if known is not None:
                known[1].give_up("it has another address now")
            peer = OutboundPeer(self._loop, self._target_of(endpoint), client_id=self._client_id)
            known = self._peers[node_id] = endpoint, peer
        known[1].send(call)

    def close(self) -> None:
        """Close all connections and forget the requests."""
        for _, peer in self._peers.values():
            peer.close()
        self._peers.clear()
