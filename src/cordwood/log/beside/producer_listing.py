"""The producers of a log, found in its files by a process that only reads them."""

from cordwood.errors import FormatError
from cordwood.log.partition.derived_state.producer_snapshots import read_snapshot, replay
from cordwood.log.reading.log_source import LogView
from cordwood.log.rules.producer_state import ProducerStates
from cordwood.quantities import INT64_MAX, Offset, TimestampMs
from cordwood.storage.files import FileSystem
from cordwood.storage.replacement.segment_files import find_snapshots


def read_producers(
    fs: FileSystem, directory: str, view: LogView, now_ms: TimestampMs
) -> ProducerStates:
    """The state of the log's producers: the newest snapshot, and the batches after it.

    Without a usable snapshot, all batches are read.
    """
    states = ProducerStates(end_offset=view.segments.first_offset)
    for offset in reversed(find_snapshots(fs, directory)):
        if not view.segments.first_offset <= offset <= view.high_watermark:
            continue
        try:
            entries = read_snapshot(fs, directory, offset)
        except (FormatError, FileNotFoundError):
            continue  # an older snapshot gives the same state, but takes longer
        states = ProducerStates.from_snapshot(entries, end_offset=offset, now_ms=now_ms)
        break
    replay(states, view.segments, Offset(INT64_MAX))
    return states
