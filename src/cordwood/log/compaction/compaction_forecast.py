"""Forecasts what a compaction would save, by doing everything but the writing."""

import secrets
from collections.abc import Callable
from typing import Final

from cordwood.format.batch import BatchDecoder
from cordwood.log.compaction.batch_filter import BatchFilter
from cordwood.log.compaction.compaction_walk import (
    BATCHES_PER_CHUNK,
    CHUNK_BYTES,
    CompactionWalk,
    RunSettings,
)
from cordwood.log.partition.removal.segment_replacement import CompactionSource
from cordwood.log.rules.compaction_plan import CompactionPlan
from cordwood.quantities import MIB, FilePosition, Offset, TimestampMs
from cordwood.value_class import dataclass

_MAP_BYTES: Final = 128 * MIB  # the default of log.cleaner.dedupe.buffer.size
_LOAD_FACTOR: Final = 0.9


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionForecast:
    """The effect of one run. Bytes are those of log files."""

    bytes_before: int
    bytes_after: int
    records_read: int
    records_kept: int
    keys: int

    @property
    def bytes_saved(self) -> int:
        return self.bytes_before - self.bytes_after

    @property
    def records_removed(self) -> int:
        return self.records_read - self.records_kept


def forecast_compaction(
    source: CompactionSource,
    plan: CompactionPlan,
    *,
    now_ms: TimestampMs,
    pace: Callable[[int], None],
) -> CompactionForecast:
    """Walk over the log as a run of `plan` would. `pace` gets the bytes read."""
    settings = RunSettings(
        map_bytes=_MAP_BYTES,
        load_factor=_LOAD_FACTOR,
        secret=secrets.token_bytes(16),
        pace=pace,
    )
    return _Forecast(plan, settings, now_ms=now_ms).run(source)


class _Forecast(CompactionWalk):
    def run(self, source: CompactionSource) -> CompactionForecast:
        key_map = self._build_map(source)
        upper = self.plan.first_uncleanable
        if key_map.is_full:
            upper = Offset(max(min(key_map.latest + 1, upper), 0))
        batch_filter = self._new_filter(source, key_map, upper)
        before = self._filter(source, upper, batch_filter)
        self._note_counts(batch_filter)
        return CompactionForecast(
            bytes_before=before,
            bytes_after=self._written,
            records_read=self._records_read,
            records_kept=self._records_kept,
            keys=key_map.used,
        )

    def _filter(self, source: CompactionSource, upper: Offset, batch_filter: BatchFilter) -> int:
        """Filter all batches below `upper`; return their size in bytes."""
        self._written = before = 0
        decoder = BatchDecoder(batches_max=BATCHES_PER_CHUNK)
        for segment in source.segments:
            if segment.base_offset >= upper:
                break
            reader = segment.reader()
            reader.decoder = decoder
            for first, stop in reader.chunks(
                FilePosition(0),
                segment.base_offset,
                stop_offset=self.plan.first_uncleanable,
                chunk_bytes=CHUNK_BYTES,
            ):
                self._pass(reader)
                batch_filter.take(decoder, first, stop, self._count)
                batch_filter.aborted.clear()
            before += reader.position
        return before

    def _count(self, batches: memoryview) -> None:
        self._written += len(batches)
