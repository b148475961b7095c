"""Metrics of a store: its disks, syncs, cleaner, archive, housekeeping and transactions."""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from cordwood.clock import Clock, SystemClock
from cordwood.log.compaction.cleaner import LogCleaning
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.log.reading.archived_segments import ArchiveStatus
from cordwood.log.rules.duration_histogram import STEPS_S, HistogramView
from cordwood.log.store.housekeeping import UpkeepStatus
from cordwood.log.store.store import Store
from cordwood.log.topics.log_directory import DirectoryStatus
from cordwood.log.transactions.transaction_metadata import TransactionMetadata
from cordwood.log.transactions.transaction_requests import CoordinatedTransactions

_PARTITION: Final = ("topic", "partition")


class StoreCollector(Collector):
    """Reads the store for each scrape."""

    def __init__(
        self,
        store: Store,
        clock: Clock | None = None,
        transactions: CoordinatedTransactions | None = None,
    ) -> None:
        """`transactions` are those that a member of a cluster coordinates."""
        self._store = store
        self._transactions: CoordinatedTransactions = transactions or store.transactions
        self._clock = SystemClock() if clock is None else clock

    def describe(self) -> Iterator[Metric]:
        return iter(())

    def collect(self) -> Iterator[Metric]:
        store = self._store
        yield from directory_metrics(store.directories.status())
        damages = GaugeMetricFamily(
            "cordwood_damages",
            "Damaged places that are known: found at the start, or missing segments.",
        )
        damages.add_metric([], len(store.damages()))
        yield damages
        syncs = HistogramMetricFamily(
            "cordwood_sync_duration_seconds", "Time to sync appends to the disk."
        )
        add_histogram(syncs, [], store.sync_times.view())
        yield syncs
        yield from upkeep_metrics(store.housekeeping.status())
        yield from cleaner_metrics(store.cleaner.status())
        yield from archive_metrics(store.archive_status())
        yield from transaction_metrics(
            self._transactions.all(), store.directories.logs(), self._clock.now_ms()
        )
        yield from marker_metrics(self._transactions)


def add_histogram(family: HistogramMetricFamily, labels: list[str], seen: HistogramView) -> None:
    """One series of a histogram, with the cumulative counts that scrapers expect."""
    buckets: list[tuple[str, float]] = []
    total = 0
    for step_s, count in zip((*map(str, STEPS_S), "+Inf"), seen.counts, strict=True):
        total += count
        buckets.append((step_s, total))
    family.add_metric(labels, buckets=buckets, sum_value=seen.sum_s)


def directory_metrics(directories: Iterable[DirectoryStatus]) -> Iterator[Metric]:
    gauges = _gauges(
        ("directory",),
        {
            "cordwood_directory_online": "1 while a data directory can be used.",
            "cordwood_directory_free_bytes": "Bytes free on the disk of a data directory.",
            "cordwood_directory_short_of_room": "1 while appends and followers wait for room.",
            "cordwood_directory_partitions": "Partitions in a data directory.",
            "cordwood_directory_offline_partitions": "Partitions whose files cannot be read.",
            "cordwood_directory_failed_partitions": "Partitions that refuse appends.",
        },
    )
    for status in directories:
        values = (
            int(status.error is None),
            status.free_bytes,
            int(status.is_short_of_room),
            status.partition_count,
            len(status.offline),
            len(status.failed),
        )
        for gauge, value in zip(gauges, values, strict=True):
            gauge.add_metric([status.path], value)
    yield from gauges


def upkeep_metrics(tasks: Iterable[UpkeepStatus]) -> Iterator[Metric]:
    counters = _counters(
        ("task", "directory"),
        {
            "cordwood_upkeep_runs": "Runs of a housekeeping task.",
            "cordwood_upkeep_failures": "Runs that failed.",
            "cordwood_upkeep_reclaimed_bytes": "Bytes of disk space that a task freed.",
        },
    )
    running, last_run, last_duration = _gauges(
        ("task", "directory"),
        {
            "cordwood_upkeep_running": "1 while a task runs.",
            "cordwood_upkeep_last_run_timestamp_seconds": "Start time of the last run.",
            "cordwood_upkeep_last_duration_seconds": "Duration of the last run.",
        },
    )
    for task in tasks:
        labels = [task.name, task.directory or ""]
        for counter, count in zip(
            counters, (task.runs, task.failures, task.bytes_reclaimed), strict=True
        ):
            counter.add_metric(labels, count)
        running.add_metric(labels, int(task.is_running))
        if task.last_run_ms is not None:
            last_run.add_metric(labels, task.last_run_ms / 1000)
        if task.last_duration_s is not None:
            last_duration.add_metric(labels, task.last_duration_s)
    yield from (*counters, running, last_run, last_duration)


def cleaner_metrics(logs: Iterable[LogCleaning]) -> Iterator[Metric]:
    counters = _counters(
        _PARTITION,
        {
            "cordwood_cleaner_runs": "Compactions of a partition.",
            "cordwood_cleaner_read_bytes": "Bytes that compaction read.",
            "cordwood_cleaner_written_bytes": "Bytes that compaction wrote.",
            "cordwood_cleaner_reclaimed_bytes": "Bytes of disk space that compaction freed.",
        },
    )
    running, uncleanable, last_run, last_duration = _gauges(
        _PARTITION,
        {
            "cordwood_cleaner_running": "1 while a partition is compacted.",
            "cordwood_cleaner_uncleanable": "1 when a partition cannot be compacted.",
            "cordwood_cleaner_last_run_timestamp_seconds": "Start time of the last compaction.",
            "cordwood_cleaner_last_duration_seconds": "Duration of the last compaction.",
        },
    )
    for log in logs:
        labels = [log.topic, str(log.partition)]
        counts = (log.runs, log.bytes_read, log.bytes_written, log.bytes_reclaimed)
        for counter, count in zip(counters, counts, strict=True):
            counter.add_metric(labels, count)
        running.add_metric(labels, int(log.is_running))
        uncleanable.add_metric(labels, int(log.is_uncleanable))
        if log.last_result is not None:
            last_run.add_metric(labels, log.last_result.started_ms / 1000)
            last_duration.add_metric(labels, log.last_result.duration_s)
    yield from (*counters, running, uncleanable, last_run, last_duration)


def archive_metrics(partitions: Iterable[ArchiveStatus]) -> Iterator[Metric]:
    counters = _counters(
        _PARTITION,
        {
            "cordwood_archive_copied_segments": "Segments copied to the archive since the start.",
            "cordwood_archive_copied_bytes": "Bytes copied to the archive since the start.",
        },
    )
    gauges = _gauges(
        _PARTITION,
        {
            "cordwood_archive_start_offset": "The first offset in the archive.",
            "cordwood_archive_end_offset": "The offset after the last one in the archive.",
            "cordwood_archive_segments": "Segments in the archive.",
            "cordwood_archive_size_bytes": "Bytes in the archive.",
            "cordwood_archive_failing": "1 when the last attempt to archive failed.",
        },
    )
    last_success = GaugeMetricFamily(
        "cordwood_archive_last_success_timestamp_seconds",
        "Time of the last successful archiving.",
        labels=_PARTITION,
    )
    for status in partitions:
        labels = [status.topic, str(status.partition)]
        for counter, count in zip(
            counters, (status.copied_segments, status.copied_bytes), strict=True
        ):
            counter.add_metric(labels, count)
        values = (
            status.start_offset,
            status.archived_up_to,
            status.segment_count,
            status.size_bytes,
            int(status.last_error is not None),
        )
        for gauge, value in zip(gauges, values, strict=True):
            gauge.add_metric(labels, value)
        if status.last_success_ms is not None:
            last_success.add_metric(labels, status.last_success_ms / 1000)
    yield from (*counters, *gauges, last_success)


def transaction_metrics(
    transactions: Iterable[TransactionMetadata], logs: Iterable[PartitionLog], now_ms: int
) -> Iterator[Metric]:
    states = GaugeMetricFamily(
        "cordwood_transactional_ids",
        "Transactional ids by the state of their newest transaction.",
        labels=("state",),
    )
    oldest = GaugeMetricFamily(
        "cordwood_transaction_oldest_open_seconds",
        "Age of the oldest transaction that is open or being completed.",
    )
    lag = GaugeMetricFamily(
        "cordwood_partition_last_stable_lag",
        "Offsets that committed readers cannot read yet, of partitions that have some.",
        labels=_PARTITION,
    )
    counts: Counter[str] = Counter()
    begun_ms: list[int] = []
    for found in transactions:
        counts[found.state.kafka_name] += 1
        if not found.is_complete and found.start_ms >= 0:
            begun_ms.append(found.start_ms)
    for state, count in sorted(counts.items()):
        states.add_metric([state], count)
    oldest.add_metric([], max(now_ms - min(begun_ms, default=now_ms), 0) / 1000)
    for log in logs:
        behind = log.high_watermark - log.last_stable_offset
        if behind > 0:
            lag.add_metric([log.topic, str(log.partition)], behind)
    yield from (states, oldest, lag)


def marker_metrics(markers: CoordinatedTransactions) -> Iterator[Metric]:
    unwritten = GaugeMetricFamily(
        "cordwood_transaction_unmarked_partitions",
        "Partitions whose transaction markers could not be written; they are tried again.",
    )
    unwritten.add_metric([], markers.unwritten_count)
    failures = CounterMetricFamily(
        "cordwood_transaction_marker_failures", "Transaction markers that could not be written."
    )
    failures.add_metric([], markers.failure_count)
    yield from (unwritten, failures)


def _gauges(labels: tuple[str, ...], texts: dict[str, str]) -> list[GaugeMetricFamily]:
    return [GaugeMetricFamily(name, text, labels=labels) for name, text in texts.items()]


def _counters(labels: tuple[str, ...], texts: dict[str, str]) -> list[CounterMetricFamily]:
    return [CounterMetricFamily(name, text, labels=labels) for name, text in texts.items()]
