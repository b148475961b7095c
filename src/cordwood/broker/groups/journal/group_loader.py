"""Reads all groups from ``__consumer_offsets`` when the broker starts."""

import logging
from collections.abc import Callable, Sequence

from cordwood.broker.groups.managed_group import EpochGroup
from cordwood.errors import FormatError
from cordwood.format.groups.group_metadata import GroupMetadata, decode_group_metadata
from cordwood.format.groups.group_offsets import GroupMetadataKey, decode_group_key
from cordwood.log.topics.committed_offsets import CommittedOffsets
from cordwood.value_class import dataclass

logger = logging.getLogger(__name__)

# Makes consumer groups of their records. It is called by a worker thread and must not touch
# shared state; `resume` starts the groups later.
ConsumerGroupRestorer = Callable[[Sequence[tuple[bytes, bytes]]], Sequence[EpochGroup]]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedGroups:
    """All groups that have records other than offsets."""

    classic: dict[str, GroupMetadata]
    consumer: Sequence[EpochGroup]


class GroupLoader:
    """Reads the topic once. It blocks, so it is for a worker thread."""

    def __init__(
        self, offsets: CommittedOffsets, restore_consumer_groups: ConsumerGroupRestorer
    ) -> None:
        self._offsets = offsets
        self._restore_consumer_groups = restore_consumer_groups

    def load(self) -> LoadedGroups:
        """Load all groups. A damaged record is left out and affects no other group."""
        classic: dict[str, GroupMetadata] = {}
        others: list[tuple[bytes, bytes]] = []
        for key, value in self._offsets.load():
            try:
                decoded = decode_group_key(key)
                if isinstance(decoded, GroupMetadataKey):
                    classic[decoded.group] = decode_group_metadata(value)
                else:
                    others.append((key, value))
            except FormatError as error:
                logger.warning("record of a group left out, it cannot be decoded: %s", error)
        return LoadedGroups(classic=classic, consumer=self._restore_consumer_groups(others))
