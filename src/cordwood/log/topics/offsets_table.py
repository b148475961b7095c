"""The committed offsets in one partition of the offsets topic, as a fold over its log. Pure.

A commit inside a transaction is pending until the marker of its producer comes. A commit marker
makes it count, unless a newer commit of the same key is in the log: then compaction would have
removed the older one, and a restart would find only the newer. An abort marker drops it. So does a
tombstone.
"""

import logging
from collections.abc import Iterable, Iterator
from uuid import UUID

from cordwood.errors import FormatError
from cordwood.format.groups.group_offsets import (
    OFFSET_KEY_TYPES,
    OffsetKey,
    decode_group_key,
    decode_offset_value,
)
from cordwood.format.record import Record
from cordwood.quantities import NO_LEADER_EPOCH, NO_TIMESTAMP, LeaderEpoch, Offset, TimestampMs
from cordwood.value_class import dataclass

logger = logging.getLogger(__name__)

TopicPartition = tuple[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedOffset:
    """The offset at which a group continues to read a partition.

    A negative offset, which only clients of a broker can commit, says that the group has none.
    `expires_ms` is set if an old client chose how long the offset is kept. `topic_id` tells a
    topic from an earlier one of the same name; None if it was not recorded.
    """

    offset: Offset
    leader_epoch: LeaderEpoch = NO_LEADER_EPOCH
    metadata: str = ""
    committed_ms: TimestampMs
    expires_ms: TimestampMs = NO_TIMESTAMP
    topic_id: UUID | None = None

    @property
    def is_position(self) -> bool:
        return self.offset >= 0


GroupOffsets = dict[TopicPartition, CommittedOffset]


@dataclass(frozen=True, slots=True)
class OffsetsEvent:
    """A record of the offsets topic, and the producer whose transaction it is in, if any."""

    at: Offset
    key: bytes
    value: bytes | None
    producer_id: int | None = None


@dataclass(frozen=True, slots=True)
class OffsetsMarker:
    """The end of a transaction in the offsets topic."""

    producer_id: int
    is_commit: bool


class OffsetsTable:
    """Committed and pending offsets. Belongs to a `CommittedOffsets`, which guards it."""

    def __init__(self) -> None:
        self.groups: dict[str, GroupOffsets] = {}
        self._records: dict[OffsetKey, Offset] = {}  # where the committed ones are in the log
        self._pending: dict[int, dict[OffsetKey, tuple[Offset, CommittedOffset]]] = {}

    def apply(self, event: OffsetsEvent | OffsetsMarker) -> None:
        """Take the next record or marker of the log into account."""
        if isinstance(event, OffsetsMarker):
            self._finish(event)
        elif event.key[:2] in OFFSET_KEY_TYPES:
            self._apply_offset(event)

    def pending_places(self, group: str) -> set[TopicPartition]:
        """The partitions whose offset an open transaction may still change."""
        return {
            (key.topic, key.partition)
            for pending in self._pending.values()
            for key in pending
            if key.group == group
        }

    @property
    def has_pending(self) -> bool:
        return bool(self._pending)

    def pending_groups(self) -> Iterator[str]:
        for pending in self._pending.values():
            for key in pending:
                yield key.group

    def _apply_offset(self, event: OffsetsEvent) -> None:
        try:
            key = decode_group_key(event.key)
            found = None if event.value is None else decode_offset_value(event.value)
        except FormatError as error:
            logger.warning("ignoring a committed offset that cannot be read: %s", error)
            return
        assert isinstance(key, OffsetKey), key
        if found is None:
            self._drop(key)
            return
        committed = CommittedOffset(
            offset=found.offset,
            leader_epoch=found.leader_epoch,
            metadata=found.metadata,
            committed_ms=found.commit_timestamp,
            expires_ms=found.expire_timestamp,
            topic_id=found.topic_id,
        )
        if event.producer_id is None:
            self._commit(key, event.at, committed)
        else:
            self._pending.setdefault(event.producer_id, {})[key] = (event.at, committed)

    def _finish(self, marker: OffsetsMarker) -> None:
        pending = self._pending.pop(marker.producer_id, None)
        if pending is not None and marker.is_commit:
            for key, (at, committed) in pending.items():
                if at > self._records.get(key, Offset(-1)):
                    self._commit(key, at, committed)

    def _commit(self, key: OffsetKey, at: Offset, committed: CommittedOffset) -> None:
        self.groups.setdefault(key.group, {})[key.topic, key.partition] = committed
        self._records[key] = at

    def _drop(self, key: OffsetKey) -> None:
        self._records.pop(key, None)
        for producer_id, pending in list(self._pending.items()):
            pending.pop(key, None)
            if not pending:
                del self._pending[producer_id]
        offsets = self.groups.get(key.group)
        if offsets is not None:
            offsets.pop((key.topic, key.partition), None)
            if not offsets:
                del self.groups[key.group]


class OffsetsWalk:
    """What a walk over the topic finds: offsets in order, and the newest of all other records.

    Of offsets outside of transactions only the newest of each key is kept, at the place of the
    newest: nothing else of them can matter.
    """

    def __init__(self) -> None:
        self.others: dict[bytes, bytes | None] = {}
        self._plain: dict[bytes, OffsetsEvent] = {}
        self._sealed: list[OffsetsEvent | OffsetsMarker] = []

    @property
    def of_offsets(self) -> Iterable[OffsetsEvent | OffsetsMarker]:
        return [*self._sealed, *self._plain.values()]

    def record(self, record: Record, producer_id: int | None) -> None:
        key = record.key
        if key is None:
            return
        if key[:2] not in OFFSET_KEY_TYPES:
            self.others[key] = record.value
            return
        event = OffsetsEvent(Offset(record.offset), key, record.value, producer_id)
        if producer_id is None:
            self._plain.pop(key, None)
            self._plain[key] = event
        else:
            self._seal()
            self._sealed.append(event)

    def marker(self, producer_id: int, *, is_commit: bool) -> None:
        self._seal()
        self._sealed.append(OffsetsMarker(producer_id, is_commit))

    def _seal(self) -> None:
        """What follows must not be reordered with what came before."""
        if self._plain:
            self._sealed += self._plain.values()
            self._plain.clear()
