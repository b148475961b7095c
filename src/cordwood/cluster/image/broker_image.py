"""One broker, and one controller, as the controllers know them."""

from collections.abc import Mapping
from typing import NamedTuple
from uuid import UUID

from cordwood.value_class import dataclass, field


class Endpoint(NamedTuple):
    """Where one listener of a broker is reached. `security_protocol` is Kafka's number."""

    listener: str
    host: str
    port: int
    security_protocol: int


class VersionRange(NamedTuple):
    """The levels of a feature that a node knows, both ends included."""

    min: int
    max: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerImage:
    """One registration of a broker.

    epoch           grows with each registration: it tells this life of the broker from the last
    incarnation     the random id of this life
    is_fenced       it may not lead and may not join an ISR; clients do not see it
    is_leaving      it is in a controlled shutdown
    directories     its log directories that are online
    cordoned        those of them that get no new replicas
    """

    node_id: int
    epoch: int
    incarnation: UUID
    endpoints: tuple[Endpoint, ...]
    rack: str | None = None
    is_fenced: bool = True
    is_leaving: bool = False
    directories: tuple[UUID, ...] = ()
    cordoned: tuple[UUID, ...] = ()
    features: Mapping[str, VersionRange] = field(default_factory=dict)

    def endpoint(self, listener: str) -> Endpoint | None:
        """The endpoint of the listener with this name; None if the broker has none."""
        return next((each for each in self.endpoints if each.listener == listener), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerImage:
    """One registration of a controller."""

    node_id: int
    incarnation: UUID
    endpoints: tuple[Endpoint, ...]
    features: Mapping[str, VersionRange] = field(default_factory=dict)
