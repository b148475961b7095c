"""A quorum of one controller, and the connection to it: calls wait until the test answers."""

from __future__ import annotations

from cordwood.broker.cluster.control.control_config import ControllerAddress
from cordwood.broker.net.outbound.outbound_call import OutboundCall


class OneController:
    """Satisfies what followers and heartbeats need of `Quorum` and `QuorumLink`."""

    def __init__(self) -> None:
        self.calls: list[OutboundCall] = []

    def leader(self) -> ControllerAddress:
        return ControllerAddress("127.0.0.1", 9093)

    def to(self, _address: ControllerAddress) -> OneController:
        return self

    def send(self, call: OutboundCall) -> None:
        self.calls.append(call)

    def close(self) -> None:
        self.calls.clear()
