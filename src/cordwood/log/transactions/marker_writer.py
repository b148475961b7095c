"""Writes the markers that tell partitions how a transaction ended.

Markers of many transactions are written first, to all their logs; then each log is synced once.
A transaction is complete when all its partitions have the marker durably. Writing one twice does
no harm, so after a crash all of them are written again.
"""

import logging
import threading
from collections.abc import Callable, Iterable, Mapping

from cordwood.clock import Clock
from cordwood.errors import (
    CordwoodError,
    InvalidProducerEpochError,
    LogHeldError,
    TransactionCoordinatorFencedError,
)
from cordwood.format.file_names import CONSUMER_OFFSETS_TOPIC
from cordwood.format.transaction_records import TopicPartition, TransactionState
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.log.rules.producer_state import MarkerFacts
from cordwood.log.topics.committed_offsets import CommittedOffsets
from cordwood.log.transactions.log_syncs import LogSyncs
from cordwood.log.transactions.marker_turns import MarkerTurns
from cordwood.log.transactions.transaction_entry import TransactionEntry
from cordwood.log.transactions.transaction_metadata import TransactionMetadata
from cordwood.quantities import Offset, ProducerId
from cordwood.value_class import dataclass

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedMarker:
    """A marker for one partition. `version` is that of the transaction: see `check_marker`."""

    place: TopicPartition
    producer_id: ProducerId
    epoch: int
    is_commit: bool
    version: int
    coordinator_epoch: int


def markers_of(
    metadata: TransactionMetadata, places: Iterable[TopicPartition], coordinator_epoch: int
) -> list[WantedMarker]:
    """The markers of a prepared transaction for some of its partitions."""
    return [
        WantedMarker(
            place=place,
            producer_id=metadata.producer_id,
            epoch=metadata.epoch,
            is_commit=metadata.state is TransactionState.PREPARE_COMMIT,
            version=metadata.client_version,
            coordinator_epoch=coordinator_epoch,
        )
        for place in sorted(places)
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkerRound:
    """The markers that a prepared transaction still needs. `entry` is the table's."""

    entry: TransactionEntry
    metadata: TransactionMetadata
    wanted: list[WantedMarker]


class WrittenMarkers:
    """Markers that are in their logs, and not yet durable.

    ends      where each log must be durable
    places    the partitions of each log
    tried     all partitions
    failures  those whose marker was not written
    held      those that were not tried, because a publication holds the log
    """

    __slots__ = ("ends", "failures", "held", "places", "tried")

    def __init__(self) -> None:
        self.ends: dict[PartitionLog, Offset] = {}
        self.places: dict[PartitionLog, set[TopicPartition]] = {}
        self.tried: set[TopicPartition] = set()
        self.failures: dict[TopicPartition, Exception] = {}
        self.held: set[TopicPartition] = set()


class MarkerWriter:
    """Appends markers to logs. Any thread may call it, for partitions that no other writes to.

    turns            a round lasts while markers are written and synced
    syncs            for a thread that waits for its round
    unwritten_count  partitions that have no marker yet because the last try failed
    failure_count    tries that failed, since the start
    """

    def __init__(
        self,
        find_log: Callable[[str, int], PartitionLog | None],
        offsets: CommittedOffsets,
        clock: Clock,
    ) -> None:
        """`find_log` returns None for a partition that was deleted, and may raise for others."""
        self._find_log = find_log
        self._offsets = offsets
        self._clock = clock
        self._failing: dict[TopicPartition, tuple[type[Exception], int | None]] = {}
        self.failure_count = 0
        self.turns = MarkerTurns()
        self.syncs = LogSyncs()
        self._syncing = threading.Lock()  # held by whoever uses `syncs`

    @property
    def unwritten_count(self) -> int:
        return len(self._failing)

    def close(self) -> None:
        """Nothing is written any more. Safe to repeat."""
        self.syncs.close()

    def write(self, markers: Iterable[WantedMarker]) -> dict[TopicPartition, Exception]:
        """Write markers; durable on return. The result has the partitions that failed."""
        with self.turns.round():
            written = self.append(markers)
            return self.finish(written, self.await_kept(written.ends))

    def await_kept(self, ends: Mapping[PartitionLog, Offset]) -> dict[PartitionLog, Exception]:
        """Wait until each log keeps its promise below its end; the result has those that failed."""
        with self._syncing:
            return self.syncs.await_kept(ends)

    def append(self, markers: Iterable[WantedMarker], *, wait: bool = True) -> WrittenMarkers:
        """Write markers, in a round. They are not durable: `finish` follows.

        Without `wait`, a log that is held by a publication is left out.
        """
        written = WrittenMarkers()
        for marker in markers:
            try:
                placed = self._write(marker, wait=wait)
            except (CordwoodError, OSError) as error:
                if isinstance(error, LogHeldError) and not wait:
                    written.held.add(marker.place)
                    continue
                written.tried.add(marker.place)
                written.failures[marker.place] = error
                continue
            written.tried.add(marker.place)
            if placed is not None:
                log, end = placed
                written.ends[log] = end
                written.places.setdefault(log, set()).add(marker.place)
        return written

    def finish(
        self, written: WrittenMarkers, unsynced: Mapping[PartitionLog, Exception]
    ) -> dict[TopicPartition, Exception]:
        """All logs were synced, but those in `unsynced`; the partitions that failed."""
        failures = written.failures
        for log, places in written.places.items():
            if log in unsynced:
                failures.update(dict.fromkeys(places, unsynced[log]))
        self._tell(written.tried, failures)
        return failures

    def _tell(self, tried: set[TopicPartition], failures: dict[TopicPartition, Exception]) -> None:
        """Log what changed. Markers are tried every second, and a disk may fail for days."""
        self.failure_count += len(failures)
        for place, failure in failures.items():
            kind = (type(failure), getattr(failure, "errno", None))
            if self._failing.get(place) != kind:
                self._failing[place] = kind
                logger.warning(
                    "%s-%d has no transaction marker yet, and is tried again: %s", *place, failure
                )
        for place in tried - failures.keys():
            if self._failing.pop(place, None) is not None:
                logger.info("%s-%d has its transaction markers now", *place)

    def write_one(self, wanted: WantedMarker) -> None:
        """Write one marker; durable on return. Raises if its partition refuses it."""
        with self.turns.round():
            written = self._append(wanted, wait=True)
            if written is not None:
                log, end = written
                log.promises.await_kept(end)

    def _write(self, wanted: WantedMarker, *, wait: bool) -> tuple[PartitionLog, Offset] | None:
        try:
            return self._append(wanted, wait=wait)
        except (InvalidProducerEpochError, TransactionCoordinatorFencedError) as error:
            # A newer producer, or this transaction's own successor: the marker was there before.
            log = self._find_log(*wanted.place)
            logger.info("%s-%d needs no transaction marker: %s", *wanted.place, error)
            return None if log is None else (log, log.end_offset)

    def _append(self, wanted: WantedMarker, *, wait: bool) -> tuple[PartitionLog, Offset] | None:
        topic, partition = wanted.place
        log = self._find_log(topic, partition)
        if log is None:
            return None  # its topic was deleted: nobody can read the records any more
        marker = MarkerFacts(
            producer_id=wanted.producer_id,
            producer_epoch=wanted.epoch,
            coordinator_epoch=wanted.coordinator_epoch,
            offset=log.end_offset,
            timestamp=self._clock.now_ms(),
            is_abort=not wanted.is_commit,
        )
        if topic == CONSUMER_OFFSETS_TOPIC:
            at = self._offsets.append_marker(partition, marker, transaction_version=wanted.version)
        else:
            at = log.batches.end_transaction(
                marker, transaction_version=wanted.version, wait=False, is_patient=wait
            )
        return log, Offset(at + 1)
