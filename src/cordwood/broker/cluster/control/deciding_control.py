"""Who decides for this broker, as its handlers see it: Kafka's controllers, or a local keeper."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from cordwood.broker.cluster.control.control_requests import ControlRequest
from cordwood.cluster.image.metadata_image import MetadataImage
from cordwood.errors import CordwoodError

if TYPE_CHECKING:
    from cordwood.protocol.schemas import control_messages as messages


class RelayedRequests(Protocol):
    """What clients ask through this broker."""

    def send(self, request: ControlRequest) -> None: ...


class DecidingControl(Protocol):
    """Belongs to the control loop. Any thread may read `image`."""

    @property
    def image(self) -> MetadataImage: ...
    @property
    def relay(self) -> RelayedRequests: ...

    def allocate_producer_ids(
        self, when_done: Callable[["messages.AllocateProducerIdsResponse | CordwoodError"], None]
    ) -> None:
        """Ask for a block of producer ids."""
        ...
