"""Which controller to talk to, and connections to it."""

import random
from collections.abc import Callable
from functools import partial

from cordwood.broker.cluster.control.control_config import ControlConfig, ControllerAddress
from cordwood.broker.net.loop.event_loop import EventLoop
from cordwood.broker.net.outbound.outbound_peer import OutboundPeer
from cordwood.broker.net.outbound.outbound_target import Target
from cordwood.cluster.control.metadata_observer import NOBODY, MetadataObserver


class Quorum:
    """The controllers as far as they are known. Belongs to the thread of the control loop."""

    def __init__(self, config: ControlConfig, observer: MetadataObserver) -> None:
        self._config = config
        self._observer = observer
        self._turn = random.randrange(len(config.bootstrap))

    @property
    def leader_id(self) -> int:
        """The active controller; -1 if it is not known."""
        return self._observer.leader.leader_id

    def leader(self) -> ControllerAddress | None:
        """Where the active controller is; None if nobody knows now."""
        leader_id = self.leader_id
        return None if leader_id == NOBODY else self._address_of(leader_id)

    def anyone(self) -> ControllerAddress:
        """The next controller to ask who leads."""
        known = [*self._config.bootstrap]
        for node_id in (*self._observer.endpoints, *self._observer.image.controllers):
            address = self._address_of(node_id)
            if address is not None and address not in known:
                known.append(address)
        self._turn += 1
        return known[self._turn % len(known)]

    def _address_of(self, node_id: int) -> ControllerAddress | None:
        """Told by a controller in an answer, or registered by the controller itself."""
        told = self._observer.endpoints.get(node_id)
        if told is not None:
            return ControllerAddress(told.host, told.port)
        registered = self._observer.image.controllers.get(node_id)
        if registered is None:
            return None
        for endpoint in registered.endpoints:
            if endpoint.listener == self._config.listener:
                return ControllerAddress(endpoint.host, endpoint.port)
        return None

    def target(self, address: ControllerAddress) -> Target:
        return Target(address.host, address.port, self._config.security, self._config.tls)


class QuorumLink:
    """A connection to one controller at a time. Belongs to the thread of the control loop."""

    def __init__(self, loop: EventLoop, quorum: Quorum, *, client_id: str) -> None:
        self._quorum = quorum
        self._new_peer: Callable[[Target], OutboundPeer] = partial(
            OutboundPeer, loop, client_id=client_id
        )
        self._peer: OutboundPeer | None = None
        self._address: ControllerAddress | None = None

    def to(self, address: ControllerAddress) -> OutboundPeer:
        """The peer at `address`. What waits for any other controller gets an error."""
        if self._peer is None or address != self._address:
            if self._peer is not None:
                self._peer.give_up("another controller leads now")
            self._peer, self._address = self._new_peer(self._quorum.target(address)), address
        return self._peer

    def follow_leader(self) -> None:
        """Give up a connection to a controller that does not lead any more."""
        leader = self._quorum.leader()
        if leader is not None and self._peer is not None:
            self.to(leader)

    def close(self) -> None:
        """Forget everything; nobody is told."""
        if self._peer is not None:
            self._peer.close()
        self._peer = self._address = None
