"""Writes the markers that tell partitions how a transaction ended.

Markers of many transactions are written first, to all their logs; then each log is synced once.
A transaction is complete when all its partitions have the marker durably. Writing one twice does
no harm, so after a crash all of them are written again.
"""

import logging
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from cordwood.clock import Clock
from cordwood.errors import (
    CordwoodError,
    InvalidProducerEpochError,
    TransactionCoordinatorFencedError,
)
from cordwood.format.file_names import CONSUMER_OFFSETS_TOPIC
from cordwood.format.transaction_records import TopicPartition, TransactionState
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.log.rules.producer_state import MarkerFacts
from cordwood.log.topics.committed_offsets import CommittedOffsets
from cordwood.log.transactions.transaction_metadata import TransactionMetadata
from cordwood.quantities import Offset, ProducerId
from cordwood.value_class import dataclass

logger = logging.getLogger(__name__)

_SYNC_THREADS: Final = 4  # logs that are synced side by side: what a solid-state disk makes use of


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


class MarkerWriter:
    """Appends markers to logs. Called by one thread at a time."""

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

    def write(self, markers: Iterable[WantedMarker]) -> dict[TopicPartition, Exception]:
        """Write markers; durable on return. The result has the partitions that failed."""
        failures: dict[TopicPartition, Exception] = {}
        ends: dict[PartitionLog, Offset] = {}
        places: dict[PartitionLog, set[TopicPartition]] = {}
        for marker in markers:
            try:
                written = self._write(marker)
            except (CordwoodError, OSError) as error:
                failures[marker.place] = error
                continue
            if written is not None:
                log, end = written
                ends[log] = end
                places.setdefault(log, set()).add(marker.place)
        for log, unsynced in self._sync(ends).items():
            failures.update(dict.fromkeys(places[log], unsynced))
        for place, failure in failures.items():
            logger.warning("%s-%d has no transaction marker yet: %s", *place, failure)
        return failures

    def write_one(self, wanted: WantedMarker) -> None:
        """Write one marker; durable on return. Raises if its partition refuses it."""
        written = self._append(wanted)
        if written is not None:
            log, end = written
            log.promises.await_kept(end)

    def _write(self, wanted: WantedMarker) -> tuple[PartitionLog, Offset] | None:
        try:
            return self._append(wanted)
        except (InvalidProducerEpochError, TransactionCoordinatorFencedError) as error:
            # A newer producer, or this transaction's own successor: the marker was there before.
            log = self._find_log(*wanted.place)
            logger.info("%s-%d needs no transaction marker: %s", *wanted.place, error)
            return None if log is None else (log, log.end_offset)

    def _append(self, wanted: WantedMarker) -> tuple[PartitionLog, Offset] | None:
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
            at = log.batches.end_transaction(marker, transaction_version=wanted.version, wait=False)
        return log, Offset(at + 1)

    def _sync(self, ends: dict[PartitionLog, Offset]) -> dict[PartitionLog, Exception]:
        """Wait for each log; the result has those that failed."""
        waiting = [(log, end) for log, end in ends.items() if not log.promises.is_kept(end)]
        failures: dict[PartitionLog, Exception] = {}

        def sync(item: tuple[PartitionLog, Offset]) -> None:
            log, end = item
            try:
                log.promises.await_kept(end)
            except (CordwoodError, OSError) as error:
                failures[log] = error

        if len(waiting) <= 1:
            for item in waiting:
                sync(item)
        else:
            threads = min(_SYNC_THREADS, len(waiting))
            with ThreadPoolExecutor(threads, thread_name_prefix="cordwood-marker-sync") as pool:
                list(pool.map(sync, waiting))
        return failures
