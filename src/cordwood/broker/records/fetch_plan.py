"""What the answer to a fetch would hold now. A plan reads nothing but a few batch headers.

Limits are Kafka's: partitions are served in the order of the request; the answer holds about
`max_bytes`, a partition `partition_max_bytes`; the first batch of the answer is sent whole however
large it is, so that every consumer makes progress.
"""

import logging
from collections.abc import Mapping
from operator import attrgetter
from typing import Final
from uuid import UUID

from cordwood.broker.error_codes import error_code
from cordwood.broker.net.requests.session import Session
from cordwood.broker.records.archive_reads import ArchivedPlace, ArchivedRange
from cordwood.broker.records.cluster_partitions import Fetcher
from cordwood.broker.records.lost_records import lost_before
from cordwood.broker.records.partition_table import PartitionTable
from cordwood.broker.security import access_table as needs
from cordwood.errors import CordwoodError, OffsetOutOfRangeError
from cordwood.format.compression import Codec
from cordwood.format.small_files.segment_manifest import Hole
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.log.reading.file_range import FileRange, read_range
from cordwood.log.reading.log_source import LogView
from cordwood.log.rules.leader_epochs import UNKNOWN_EPOCH_END
from cordwood.protocol.error_code import ErrorCode
from cordwood.protocol.fetch_request import FetchPartition
from cordwood.protocol.fetch_response import FIRST_WITH_RACK, FetchedPart
from cordwood.quantities import LeaderEpoch, Offset

logger = logging.getLogger(__name__)

_FIRST_WITH_ZSTD: Final = 10


class FetchPlan:
    """The parts of an answer, in the order of the request and within its limits.

    parts      what each partition answers
    logs       the logs that were found, and in
    marks      their high watermarks when they were looked at
    archived   places in archives that have to be read before all records are here
    lost       lost records that were asked for, with their logs
    size       bytes of records in `parts`
    is_urgent  the answer holds an error or a diverging epoch, and must not wait
    """

    __slots__ = (
        "_bytes_left",
        "_bytes_max",
        "_client_id",
        "_fetcher",
        "_found",
        "_is_again",
        "_is_committed",
        "_rack",
        "_session",
        "_table",
        "_version",
        "archived",
        "is_urgent",
        "logs",
        "lost",
        "marks",
        "parts",
        "size",
    )

    def __init__(
        self,
        table: PartitionTable,
        *,
        version: int,
        is_committed: bool,
        bytes_max: int,
        found: Mapping[ArchivedPlace, ArchivedRange],
        session: Session,
        client_id: str | None,
        fetcher: Fetcher | None = None,
        is_again: bool = False,
        rack: str = "",
    ) -> None:
        """`fetcher` is the follower that fetches; None: a consumer does, in `rack`.

        `is_again`: the request was planned before and has waited since, so it is no news of the
        follower.
        """
        self._rack = rack
        self._fetcher = fetcher
        self._is_again = is_again
        self.parts: list[FetchedPart] = []
        self.logs: list[PartitionLog] = []
        self.marks: list[Offset] = []
        self.archived: list[ArchivedPlace] = []
        self.lost: list[tuple[PartitionLog, Hole]] = []
        self.size = 0
        self.is_urgent = False
        self._table = table
        self._version = version
        self._is_committed = is_committed
        self._found = found  # what was read from archives before
        self._bytes_max = self._bytes_left = bytes_max
        self._session = session
        self._client_id = client_id

    def add(self, part: FetchPartition) -> None:
        """Plan the next partition of the request."""
        if (
            self._fetcher is None
            and not self._session.access.is_unlimited
            and not self._may_read(part.topic)
        ):
            self._add_error(part, needs.FETCH_TOPIC.code)
            return
        try:
            log = self._table.log(part.topic, part.partition)
        except CordwoodError as error:
            self._add_error(part, error_code(error))
            return
        if log is None:
            self._add_error(part, self._table.why_absent(part.topic, part.partition))
            return
        if self._fetcher is not None:
            self._add_for_follower(log, part, self._fetcher)
            return
        self.logs.append(log)
        try:
            if not log.archive.is_settled:
                self._ask_archive(log, part)
                return
            view = log.view()  # includes the archive, and may fail
            self.marks.append(view.high_watermark)
            refused = self._refusal(log, part)
            if refused is not None:
                self._add_error(part, refused)
            elif not self._send_elsewhere(log, view, part):
                self._add_records(log, view, part)
        except OffsetOutOfRangeError as error:
            self._add_error(part, error_code(error))
        except (CordwoodError, OSError) as error:
            logger.error("%s: a fetch at offset %d failed: %s", log.name, part.offset, error)
            self._add_error(part, error_code(error))

    def _add_error(self, part: FetchPartition, code: ErrorCode) -> None:
        self.is_urgent = True
        leader = self._table.leader_hint(code, part.topic, part.partition)
        self.parts.append(FetchedPart(part.topic, part.partition, code, leader=leader))

    def _may_read(self, wanted: str | UUID) -> bool:
        name = self._table.name_of(wanted)
        # That an id is unknown is no secret, as in Kafka.
        return name is None or self._session.may(needs.FETCH_TOPIC, name, self._client_id)

    def _refusal(self, log: PartitionLog, part: FetchPartition) -> ErrorCode | None:
        # A consumer that can be told of another replica may read from one that follows.
        may_follow = self._version >= FIRST_WITH_RACK
        refusal = self._table.reader_refusal if may_follow else self._table.leader_refusal
        refused = refusal(log, part.leader_epoch)
        if refused is not None:
            return refused
        if self._version < _FIRST_WITH_ZSTD and log.config.codec is Codec.ZSTD:
            return ErrorCode.unsupported_compression_type
        if log.is_closed:  # its topic is being deleted: it will not move again
            return ErrorCode.not_leader_or_follower
        return None

    def _send_elsewhere(self, log: PartitionLog, view: LogView, part: FetchPartition) -> bool:
        """Name the replica that is nearer to the consumer, if there is one (KIP-392)."""
        if not self._rack:
            return False
        here = self._session.listener
        nearest = self._table.nearest_replica(log, part.offset, self._rack, here)
        if nearest is None:
            return False
        self.is_urgent = True
        self.parts.append(
            FetchedPart(
                topic=part.topic,
                partition=part.partition,
                high_watermark=view.high_watermark,
                last_stable_offset=log.last_stable_offset,
                log_start_offset=view.start,
                aborted=() if self._is_committed else None,
                preferred_replica=nearest,
            )
        )
        return True

    def _add_records(self, log: PartitionLog, view: LogView, part: FetchPartition) -> None:
        # The real one for both kinds of readers, as with Kafka; only one of them stops there.
        last_stable = log.last_stable_offset
        stable = last_stable if self._is_committed else None
        diverging = _diverging(log, part)
        records = None
        if diverging is None:
            records = self._range(log, view, part, stable)
        else:
            self.is_urgent = True
        aborted = None
        if stable is not None:
            aborted = () if records is None else _aborted(log, part.offset, records, stable)
        view = log.view()  # once more: its marks must not lie behind the records
        self.parts.append(
            FetchedPart(
                topic=part.topic,
                partition=part.partition,
                high_watermark=view.high_watermark,
                last_stable_offset=last_stable,
                log_start_offset=view.start,
                aborted=aborted,
                diverging=diverging,
                size=0 if records is None else records.length,
                records=records,
            )
        )

    def _add_for_follower(self, log: PartitionLog, part: FetchPartition, fetcher: Fetcher) -> None:
        """Plan what a follower gets: everything up to the end, and where its log diverges.

        A full answer has no batches of the partition, but says the rest: a high watermark is true
        only for a follower whose log was found to be part of the leader's.
        """
        # Not at the top: a broker that is alone does not load it.
        from cordwood.cluster.replication.replica_fetch import FetchPosition

        replica = self._table.replica_of(log)
        if replica is None:
            self._add_error(part, ErrorCode.not_leader_or_follower)
            return
        self.logs.append(log)
        self.marks.append(log.end_offset)
        is_full = self._bytes_left <= 0 and self.size > 0
        read = replica.fetch(
            FetchPosition(
                place=replica.site.place,
                leader_epoch=LeaderEpoch(part.leader_epoch),
                offset=Offset(part.offset),
                last_epoch=LeaderEpoch(part.last_fetched_epoch),
                log_start=Offset(part.log_start),
                high_watermark=Offset(part.high_watermark),
            ),
            replica=fetcher.node_id,
            broker_epoch=fetcher.broker_epoch,
            bytes_max=0 if is_full else max(min(part.max_bytes, self._bytes_left), 1),
            is_again=self._is_again,
        )
        if read.error:
            self._add_error(part, ErrorCode(read.error))
            return
        batches, diverging = read.batches, read.diverging
        if batches is not None:
            self.size += batches.length
            self._bytes_left -= batches.length
        self.is_urgent |= read.is_news
        self.parts.append(
            FetchedPart(
                topic=part.topic,
                partition=part.partition,
                high_watermark=read.high_watermark,
                last_stable_offset=read.high_watermark,
                log_start_offset=read.log_start,
                diverging=None if diverging is None else (diverging.epoch, diverging.end_offset),
                size=0 if batches is None else batches.length,
                records=batches,
            )
        )

    def _range(
        self, log: PartitionLog, view: LogView, part: FetchPartition, stable: Offset | None
    ) -> FileRange | None:
        """The records to send, none at or behind `stable`. Raises `OffsetOutOfRangeError`."""
        offset = part.offset
        if not view.start <= offset <= max(view.high_watermark, log.end_offset):
            raise OffsetOutOfRangeError(Offset(offset), start=view.start, end=view.high_watermark)
        if offset >= view.high_watermark:
            return None
        limit = min(part.max_bytes, self._bytes_left)
        if limit <= 0 and self.size:
            return None
        segment = view.segments[max(view.segments.floor(Offset(offset)), 0)]
        if segment.is_archived:
            found = self._archived_range(log, part)
        else:
            found = read_range(
                log.source,
                offset,
                max_bytes=max(limit, 0),
                min_one_batch=not self.size,
                stop=stable,
                with_stop_offset=self._is_committed,
            )
        if found is not None:
            if found.base_offset > offset:
                hole = lost_before(log, view, offset, found.base_offset)
                if hole is not None:
                    self.lost.append((log, hole))
            self.size += found.length
            self._bytes_left -= found.length
        return found

    def _ask_archive(self, log: PartitionLog, part: FetchPartition) -> None:
        """Only the object store knows where the log begins: a reader's thread asks it."""
        mark = log.high_watermark
        self.marks.append(mark)
        self._archived_range(log, part)
        self.parts.append(
            FetchedPart(
                topic=part.topic,
                partition=part.partition,
                high_watermark=mark,
                last_stable_offset=mark,
                log_start_offset=log.archive.known_start_offset,
            )
        )

    def _archived_range(self, log: PartitionLog, part: FetchPartition) -> FileRange | None:
        place = ArchivedPlace(log, part.offset, min(part.max_bytes, self._bytes_max))
        if place not in self._found:
            self.archived.append(place)
            return None
        found = self._found[place]
        if isinstance(found, Exception):
            raise found
        return found


def _aborted(
    log: PartitionLog, start: int, records: FileRange, stable: Offset
) -> list[tuple[int, Offset]]:
    """Producer id and first offset of each aborted transaction with records in the range.

    In the order of first offsets: clients rely on it.
    """
    stop = stable if records.stop_offset is None else min(records.stop_offset, stable)
    found = log.source.aborted_transactions(Offset(start), stop)
    found.sort(key=attrgetter("first_offset"))
    return [(transaction.producer_id, transaction.first_offset) for transaction in found]


def _diverging(log: PartitionLog, part: FetchPartition) -> tuple[int, int] | None:
    """The last epoch and offset that the client and we share, if its last epoch is not ours.

    Raises `OffsetOutOfRangeError` if the client has records of an epoch that this log does not
    have yet: a consumer that was sent to this follower goes back to the leader then.
    """
    if part.last_fetched_epoch < 0:
        return None
    end = log.epochs.known.end_offset_for(LeaderEpoch(part.last_fetched_epoch), log.end_offset)
    if end == UNKNOWN_EPOCH_END:
        state = log.state
        raise OffsetOutOfRangeError(
            Offset(part.offset), start=state.start, end=state.high_watermark
        )
    if end.epoch < part.last_fetched_epoch or end.end_offset < part.offset:
        return end.epoch, end.end_offset
    return None
