"""Groups as they were when the broker last ran, read from ``__consumer_offsets``."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from cordwood.broker.groups.managed_group import EpochGroup
from cordwood.errors import FormatError
from cordwood.format.groups.group_metadata import GroupMetadata, decode_group_metadata
from cordwood.format.groups.group_offsets import GroupMetadataKey, decode_group_key
from cordwood.log.topics.committed_offsets import CommittedOffsets

logger = logging.getLogger(__name__)

# Makes groups of their records, whose keys are of other kinds than ours. Called by a worker, so
# it touches nothing shared; the groups are started by `resume`.
ConsumerGroupRestorer = Callable[[Sequence[tuple[bytes, bytes]]], Sequence[EpochGroup]]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedGroups:
    """All groups there are records of, but for their offsets."""

    classic: dict[str, GroupMetadata]
    consumer: Sequence[EpochGroup]


class GroupLoader:
    """Reads the topic once. Blocks: for a worker thread."""

    def __init__(
        self, offsets: CommittedOffsets, restore_consumer_groups: ConsumerGroupRestorer
    ) -> None:
        self._offsets = offsets
        self._restore_consumer_groups = restore_consumer_groups

    def load(self) -> LoadedGroups:
        """A record that cannot be read costs its own group and no other."""
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
                logger.warning("a record of a group cannot be read and is left out: %s", error)
        return LoadedGroups(classic=classic, consumer=self._restore_consumer_groups(others))
