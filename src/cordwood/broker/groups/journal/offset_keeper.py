"""Commits and deletes offsets of groups, and keeps the two in order."""

from collections import Counter
from collections.abc import Iterable, Mapping

from cordwood.broker.groups.journal.group_log import Done, GroupLog
from cordwood.log.rules.producer_state import VerificationGuard
from cordwood.log.topics.committed_offsets import (
    CommittedOffset,
    CommittedOffsets,
    GroupOffsets,
    GroupRecord,
    TopicPartition,
    offset_record,
    offset_tombstone,
)
from cordwood.log.transactions.transaction_metadata import ProducerIdentity
from cordwood.protocol.error_code import ErrorCode


class OffsetKeeper:
    """Writes commits and tombstones of offsets. For the control loop alone.

    The table of offsets changes when records are in the log, not before. Commits that are being
    written are counted, so that the deletion of a group's offsets includes them.
    """

    def __init__(self, table: CommittedOffsets, group_log: GroupLog) -> None:
        self._table = table
        self._log = group_log
        self._under_way: dict[str, Counter[TopicPartition]] = {}

    def commit(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, CommittedOffset],
        done: Done,
        producer: ProducerIdentity | None = None,
        guard: VerificationGuard | None = None,
    ) -> None:
        """Commit offsets; in the transaction of `producer`, if it has one.

        For `guard` see `GroupLog.append_pending`.
        """
        under_way = self._under_way.setdefault(group_id, Counter())
        under_way.update(offsets.keys())

        def appended(code: ErrorCode) -> None:
            under_way.subtract(offsets.keys())
            for place in offsets:
                if not under_way[place]:
                    del under_way[place]
            if not under_way and self._under_way.get(group_id) is under_way:
                del self._under_way[group_id]
            done(code)

        records = [offset_record(group_id, place, offset) for place, offset in offsets.items()]
        if producer is None:
            self._log.append(group_id, records, appended)
        else:
            self._log.append_pending(group_id, records, producer, appended, guard)

    def is_committing(self, group_id: str) -> bool:
        return group_id in self._under_way

    def is_known(self, group_id: str) -> bool:
        """Whether the group has offsets, or a commit of it is being written or is pending."""
        return (
            group_id in self._under_way
            or self._table.is_known(group_id)
            or bool(self.pending(group_id))
        )

    def pending(self, group_id: str) -> set[TopicPartition]:
        """The partitions whose offset an open transaction may still change."""
        return self._table.pending_places(group_id)

    def of_group(self, group_id: str) -> GroupOffsets:
        return self._table.known_of_group(group_id)

    def at(
        self, group_id: str, places: Iterable[TopicPartition]
    ) -> dict[TopicPartition, int | None]:
        """The offsets of a group in some partitions; None: there is none."""
        return self._table.known_at(group_id, places)

    def group_ids(self) -> list[str]:
        return self._table.known_groups()

    def tombstones(
        self, group_id: str, places: Iterable[TopicPartition] | None = None
    ) -> list[GroupRecord]:
        """Tombstones for the offsets of `places` that exist; without `places`, for all offsets."""
        known = {
            *self._table.known_places(group_id),
            *self._under_way.get(group_id, ()),
            *self.pending(group_id),
        }
        wanted = known if places is None else known.intersection(places)
        return [offset_tombstone(group_id, place) for place in sorted(wanted)]

    def replaced_topics(self, group_id: str) -> set[TopicPartition]:
        """Partitions of topics that were deleted and created again: their offsets are invalid."""
        return self._table.known_places(group_id) - self.of_group(group_id).keys()
