"""The producers of a log as someone sees them who only reads its files."""

from varve.errors import FormatError
from varve.log.log_reader import LogView
from varve.log.producer_snapshots import read_snapshot, replay
from varve.log.producer_state import ProducerStates
from varve.quantities import INT64_MAX, Offset, TimestampMs
from varve.storage.files import FileSystem
from varve.storage.recovery import find_files


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
