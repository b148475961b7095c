"""What a log is given when it is opened: its place, its configuration, and what it works with."""

from collections.abc import Callable, Sequence
from random import Random
from typing import Protocol

from cordwood.clock import Clock
from cordwood.log.partition.state.disk_health import DiskHealth
from cordwood.log.partition.state.replica_role import SOLE_REPLICA, ReplicaRole
from cordwood.log.rules.duration_histogram import SharedHistogram
from cordwood.log.rules.topic_config import TopicConfig
from cordwood.quantities import Offset
from cordwood.storage.disk.flusher import Syncable
from cordwood.storage.files import FileSystem
from cordwood.storage.segment_parts.handle_cache import HandleCache
from cordwood.storage.segment_parts.segment_limits import SegmentLimits
from cordwood.storage.small_files.high_watermark_file import HighWatermarkFile
from cordwood.value_class import dataclass


class FlushQueue(Protocol):
    """Syncs logs that ask for it. See `storage.disk.flusher`."""

    def request(self, log: Syncable) -> None: ...


class LogOwner(Protocol):
    """The log directory, which keeps the checkpoints of all its logs."""

    @property
    def health(self) -> DiskHealth:
        """Whether appends are accepted. Told of every write and sync that fails."""
        ...

    def save_recovery_points(self) -> None: ...

    def save_unsaved_recovery_points(self) -> None:
        """As `save_recovery_points`, if one moved since they were saved."""
        ...

    def save_log_starts(self) -> None: ...
    def save_cleaned(self) -> None: ...
    def delete_later(self, paths: Sequence[str], delay_ms: int) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LogParts:
    """What a log is made of and works with.

    `config` is the configuration at opening; afterwards `StateHolder.config` is the current one.
    `steady_clock` tells the time for decisions that cannot be undone: see `SteadyClock`.
    `settle` makes the directory of a new log durable; None for a log that has begun.
    """

    topic: str
    partition: int
    directory: str
    config: TopicConfig
    fs: FileSystem
    clock: Clock
    steady_clock: Clock
    handles: HandleCache
    flusher: FlushQueue
    owner: LogOwner
    marks: HighWatermarkFile
    random: Random
    sync_times: SharedHistogram
    held_from: Offset | None = None
    settle: Callable[[], None] | None = None
    role: ReplicaRole = SOLE_REPLICA

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.partition}"


def segment_limits(config: TopicConfig, *, allows_gaps: bool) -> SegmentLimits:
    return SegmentLimits(
        index_bytes_max=config.segment_index_bytes,
        index_interval_bytes=config.index_interval_bytes,
        is_dense=not allows_gaps,
    )
