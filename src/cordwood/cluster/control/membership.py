"""Who this broker is in its cluster: what it registers with."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final
from uuid import UUID

from cordwood.cluster.image.broker_image import Endpoint, VersionRange
from cordwood.value_class import dataclass, field

NO_EPOCH: Final = -1

# The levels of Kafka's features that this broker can run with. The controllers refuse to register
# a broker that does not know a level that the cluster has finalised, and they refuse to finalise
# one that a broker does not know. So a feature that is missing here can only be at level 0.
#
#   metadata.version        7 is 3.3-IV3, the oldest one of Kafka 4; 30 is 4.3-IV0. The records of
#                           all of them are known: see `record_schemas`.
#   kraft.version           0 static voters, 1 voters that can be changed (KIP-853). Observers
#                           follow both.
#   group.version           1 is KIP-848.
#   transaction.version     1 flexible records of transactions, 2 an epoch for each (KIP-890).
#   eligible.leader.replicas.version   1 is KIP-966.
SUPPORTED_FEATURES: Final[Mapping[str, VersionRange]] = MappingProxyType(
    {
        "metadata.version": VersionRange(7, 30),
        "kraft.version": VersionRange(0, 1),
        "group.version": VersionRange(0, 1),
        "transaction.version": VersionRange(0, 2),
        "eligible.leader.replicas.version": VersionRange(0, 1),
    }
)
# What Kafka 4.3 finalises by default when it formats a cluster, and this broker does not have.
UNSUPPORTED_FEATURES: Final = ("share.version", "streams.version")


@dataclass(frozen=True, slots=True, kw_only=True)
class Membership:
    """One life of a broker.

    incarnation     a random id of this life
    endpoints       its listeners as others reach them
    directories     the ids of its data directories that are online
    previous_epoch  the epoch of its last life, if it still has everything that it acknowledged in
                    it; -1 if it cannot vouch for that. The controllers elect it cleanly only if
                    it vouches.
    """

    node_id: int
    cluster_id: str
    incarnation: UUID
    endpoints: tuple[Endpoint, ...]
    directories: tuple[UUID, ...]
    rack: str | None = None
    previous_epoch: int = NO_EPOCH
    features: Mapping[str, VersionRange] = field(default_factory=lambda: SUPPORTED_FEATURES)

    def __post_init__(self) -> None:
        assert self.node_id >= 0, self.node_id
        assert self.directories, "a broker has at least one data directory"
        assert self.endpoints, "a broker has at least one listener"
