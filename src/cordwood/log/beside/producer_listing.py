"""The producers of a log as someone sees them who only reads its files."""

from cordwood.errors import FormatError
from cordwood.log.partition.producer_snapshots import read_snapshot, replay
from cordwood.log.reading.log_source import LogView
from cordwood.log.rules.producer_state import ProducerStates
from cordwood.quantities import INT64_MAX, Offset, TimestampMs
from cordwood.storage.files import FileSystem
from cordwood.storage.recovery import find_files


def read_producers(
    fs: FileSystem, directory: str, view: LogView, now_ms: TimestampMs
) -> ProducerStates:
    """What the owner of the log remembers of its producers: snapshot, and what came behind it.

    Without a snapshot everything is walked over.
    """
    states = ProducerStates(end_offset=view.segments.first_offset)
    for offset in sorted(find_files(fs, directory).snapshots, reverse=True):
        if not view.segments.first_offset <= offset <= view.high_watermark:
            continue
        try:
            entries = read_snapshot(fs, directory, offset)
        except (FormatError, FileNotFoundError):
            continue  # the one before it leads to the same, by a longer way
        states = ProducerStates.from_snapshot(entries, end_offset=offset, now_ms=now_ms)
        break
    replay(states, view.segments, Offset(INT64_MAX))
    return states
