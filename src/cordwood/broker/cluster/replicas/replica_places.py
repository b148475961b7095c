"""Which data directory has which replica, and what the controllers know of it (KIP-858).

The controllers must know which replicas are gone if one directory fails. A broker with one
directory has nothing to tell: they assign it themselves. With several,

    a replica was made or opened    its directory is told, unless the image has it already
    a directory failed              heartbeats say so, and its replicas are offline; those whose
                                    directory was not confirmed before are told as lost
"""

import os
from collections.abc import Callable, Mapping
from typing import Final
from uuid import UUID

from cordwood.cluster.image.partition_image import PartitionImage
from cordwood.cluster.replication.replica_fetch import PartitionPlace
from cordwood.log.partition.partition_log import PartitionLog

LOST: Final = UUID(int=1)  # Kafka's id of a directory that nobody has any more

Assign = Callable[[UUID, int, UUID], None]


class ReplicaPlaces:
    """The directories of a member, by path. Belongs to the data loop.

    `assign` tells the controllers the directory of a replica; it may be told more than once.
    """

    def __init__(self, directories: Mapping[str, UUID], *, node_id: int, assign: Assign) -> None:
        self._directories = dict(directories)
        self._node_id = node_id
        self._assign = assign
        self._failed: set[str] = set()

    @property
    def has_any(self) -> bool:
        """Whether a directory is left that has not failed."""
        return len(self._failed) < len(self._directories)

    def directory_of(self, log: PartitionLog) -> str:
        return os.path.dirname(log.directory)

    def has_failed(self, log: PartitionLog) -> bool:
        return self.directory_of(log) in self._failed

    def hosted(self, place: PartitionPlace, log: PartitionLog, image: PartitionImage) -> None:
        """A replica is open, or the controllers have changed it."""
        if len(self._directories) == 1:
            return
        found = self._directories[self.directory_of(log)]
        if self._assigned(image) != found:
            self._assign(*place, found)

    def fail(self, path: str) -> UUID | None:
        """Take a directory offline; its id, or None if it was before."""
        if path in self._failed:
            return None
        self._failed.add(path)
        return self._directories[path]

    def lost(self, place: PartitionPlace, path: str, image: PartitionImage | None) -> None:
        """A replica was in the directory that failed. The controllers may not know where it was."""
        if image is not None and self._assigned(image) != self._directories[path]:
            self._assign(*place, LOST)

    def _assigned(self, image: PartitionImage) -> UUID | None:
        """The directory that the controllers know for this broker's replica."""
        at = image.replicas.index(self._node_id) if self._node_id in image.replicas else -1
        return image.directories[at] if 0 <= at < len(image.directories) else None
