"""A log read by a process that does not own it: beside a live writer, or after its end."""

from cordwood.format.small_files.producer_snapshot import ProducerSnapshotEntry
from cordwood.log.beside.followed_files import FollowedFiles
from cordwood.log.beside.producer_listing import read_producers
from cordwood.log.beside.upkeep_preview import UpkeepPreview
from cordwood.log.reading.archived_segments import ArchivedSegments, ArchiveJoin
from cordwood.log.reading.log_reader import LogReader
from cordwood.log.reading.log_source import open_view
from cordwood.quantities import Offset, TimestampMs
from cordwood.storage.files import FileSystem
from cordwood.storage.recovery import Damage
from cordwood.storage.segment_parts.handle_cache import HandleCache


class ReadOnlyLog(LogReader):
    """One partition, read from its files. Any thread may use it."""

    def __init__(
        self,
        fs: FileSystem,
        directory: str,
        topic: str,
        partition: int,
        *,
        handles: HandleCache,
        log_start: Offset | None,
        allows_gaps: bool,
        was_compacted: bool,
        is_new: bool = False,
    ) -> None:
        """`is_new`: no record of the log has ever been synced, as far as the catalog knows."""
        self.directory = directory
        self._files = FollowedFiles(
            fs,
            directory,
            f"{topic}-{partition}",
            handles=handles,
            log_start=log_start,
            allows_gaps=allows_gaps,
            was_compacted=was_compacted,
            is_new=is_new,
        )
        super().__init__(topic, partition, self._files)
        self.upkeep = UpkeepPreview(topic, partition, self._files)

    def attach_archive(self, archived: ArchivedSegments | None) -> None:
        """Read the segments in `archived` as the beginning of this log."""
        self._files.archive = None if archived is None else ArchiveJoin(archived)

    @property
    def archived_up_to(self) -> Offset | None:
        """Every record below has a copy in the archive; None if there is no archive."""
        return self._files.archived_up_to

    def open_transactions(self, now_ms: TimestampMs) -> list[ProducerSnapshotEntry]:
        """The producers that have an open transaction, in the order of their first offsets.

        Reads the batches after the newest snapshot of producers.
        """
        files = self._files
        open_view(files)
        states = read_producers(files.fs, files.directory, files.local_view(), now_ms)
        return states.open_transactions()

    def check_current(self) -> None:
        """Raise `TopicDeletedError` if the topic was deleted, or deleted and created again."""
        self._files.check_current()

    def find_damages(self) -> list[Damage]:
        """Missing segments, and sealed segments that end too early, as they are now."""
        return self._files.find_damages()

    def close(self) -> None:
        self._files.close()
