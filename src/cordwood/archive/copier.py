"""Copying sealed segments into the archive.

A segment is due if it is sealed and synced, readers may see all of it, no open transaction can
still abort any of it, its last append is `archive.after.ms` old, and every segment before it is
archived. Then:

    1  put each of its files under the id of this copy
    2  read each file back, and compare its size and SHA-256 with what was put
    3  put the manifest that names the copy

If this is interrupted before step 3, the objects are garbage: a sweep removes them, and the next
run starts over. After step 3 the segment is archived and is not copied again.
"""

import hashlib
import logging
import os
import uuid
from collections.abc import Callable, Iterator, Sequence

from cordwood.archive.manifest import ArchivedFile, Manifest, SegmentCopy
from cordwood.archive.object_store import PIECE_BYTES
from cordwood.archive.partition_archive import PartitionArchive
from cordwood.clock import Clock
from cordwood.errors import LogClosedError, StorageError
from cordwood.format.file_names import FileKind, segment_file_name
from cordwood.format.small_files.checkpoint_text import EpochEntry
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.log.reading.log_source import LogView
from cordwood.log.rules.topic_config import TopicConfig
from cordwood.quantities import NO_TIMESTAMP, Offset, TimestampMs
from cordwood.storage.files import FileSystem
from cordwood.storage.segment import Segment
from cordwood.value_class import replace

logger = logging.getLogger(__name__)

_INDEX_KINDS = (FileKind.INDEX, FileKind.TIMEINDEX, FileKind.TXNINDEX, FileKind.KEYINDEX)


def due_segments(
    view: LogView[Segment],
    config: TopicConfig,
    *,
    archived_up_to: Offset | None,
    stable_offset: Offset,
    now_ms: TimestampMs,
) -> list[tuple[Segment, Offset]]:
    """The segments to copy now, in order, each with the offset where it ends.

    `view` shows the local segments. `archived_up_to` is None if nothing is archived yet.
    """
    due: list[tuple[Segment, Offset]] = []
    after_ms = config.archive_after_ms or 0
    segments = view.segments
    for index in range(len(segments) - 1):
        segment, end = segments[index], segments.end_of(index)
        if archived_up_to is not None and end <= archived_up_to:
            continue
        if end <= view.start or end == segment.base_offset:
            continue
        if segment.is_active or not segment.is_sealed or end > stable_offset:
            break
        if now_ms - segment.modified_ms() < after_ms:
            break
        due.append((segment, end))
    return due


class SegmentCopier:
    """Copies the due segments of one partition at a time. Asks `should_stop` between pieces."""

    def __init__(self, fs: FileSystem, clock: Clock, should_stop: Callable[[], bool]) -> None:
        self._fs = fs
        self._clock = clock
        self._should_stop = should_stop

    def copy_due(self, archive: PartitionArchive, log: PartitionLog) -> int:
        """Copy every segment that is due; return how many."""
        manifest = self._touching(archive, archive.look_again(), log)
        copied = 0
        for segment, end in due_segments(
            log.archive.local_view,
            log.config,
            archived_up_to=manifest.end if manifest.segments else None,
            stable_offset=Offset(min(log.last_stable_offset, log.state.durable)),
            now_ms=self._clock.now_ms(),
        ):
            try:
                self._copy(archive, log, segment, end)
            except FileNotFoundError:
                if segment in list(log.state.segments):
                    raise
                logger.info("%s was deleted while it was being archived", segment.name)
                break
            copied += 1
        return copied

    def _touching(
        self, archive: PartitionArchive, manifest: Manifest, log: PartitionLog
    ) -> Manifest:
        """The manifest to continue: it ends where a segment of the log begins."""
        view = log.archive.local_view
        if not manifest.segments:
            return manifest
        if manifest.end > log.end_offset:
            raise StorageError(
                f"the archive of {log.name} ends at offset {manifest.end}, but the log ends at "
                f"{log.end_offset}: the log lost records; restore the topic from the archive"
            )
        bases = {segment.base_offset for segment in view.segments}
        if manifest.end in bases or manifest.end == log.end_offset:
            return manifest
        if manifest.end < view.segments.first_offset:
            # Retention deleted the records in between, so older records have expired too.
            logger.warning(
                "%s: the archive ends at %d, before the log starts at %d; it starts over",
                log.name,
                manifest.end,
                view.segments.first_offset,
            )
            archive.keep(view.start, manifest.end)
            return archive.manifest
        return self._without_outgrown(archive, manifest, log)

    def _without_outgrown(
        self, archive: PartitionArchive, manifest: Manifest, log: PartitionLog
    ) -> Manifest:
        """Forget the last archived segment: after a crash it became active again and grew.

        The log has all of it, so the whole segment is copied again.
        """
        view = log.archive.local_view
        segment = view.segments[view.segments.floor(manifest.end)]
        bases = {copy.base_offset for copy in manifest.segments}
        if segment.base_offset not in bases or segment.base_offset < view.start:
            raise StorageError(
                f"the archive of {log.name} ends at offset {manifest.end}, inside the segment "
                f"that begins at {segment.base_offset}, but has no segment that begins there"
            )
        archive.keep(manifest.start, segment.base_offset)
        return archive.manifest

    def _copy(
        self, archive: PartitionArchive, log: PartitionLog, segment: Segment, end: Offset
    ) -> None:
        copy_id = uuid.uuid4().hex
        archive.begin_copy(copy_id)
        try:
            copy = self._put_files(archive, log, segment, end, copy_id)
            epochs = log.epochs.known.entries
            start = log.view().start
            if segment not in list(log.state.segments) or log.end_offset < end:
                raise FileNotFoundError(segment.name)
            gaps = log.source.allows_gaps

            def recorded(manifest: Manifest) -> Manifest:
                self._check_running(segment.name)  # a closed store may belong to another process
                return _recorded(manifest, copy, epochs, start, gaps)

            archive.finish_copy(copy, recorded)
        except BaseException:
            archive.abandon_copy(copy_id)
            raise
        archive.progress.copied_segments += 1
        archive.progress.copied_bytes += sum(file.size for file in copy.files)

    def _put_files(
        self,
        archive: PartitionArchive,
        log: PartitionLog,
        segment: Segment,
        end: Offset,
        copy_id: str,
    ) -> SegmentCopy:
        largest, largest_offset = segment.largest_timestamp
        draft = SegmentCopy(
            copy_id=copy_id,
            base_offset=segment.base_offset,
            next_offset=end,
            first_timestamp=segment.first_timestamp() or NO_TIMESTAMP,
            max_timestamp=largest,
            max_timestamp_offset=largest_offset,
            modified_ms=segment.modified_ms(),
            archived_ms=self._clock.now_ms(),
            files=(),
        )
        paths: list[tuple[FileKind, str, int | None]] = [
            (FileKind.LOG, segment.path(FileKind.LOG), segment.size)
        ]
        paths += [(kind, segment.path(kind), None) for kind in _INDEX_KINDS]
        snapshot = os.path.join(log.directory, segment_file_name(end, FileKind.SNAPSHOT))
        paths.append((FileKind.SNAPSHOT, snapshot, None))
        files = [
            self._put_file(archive, archive.key_of(draft, kind), kind, path, size)
            for kind, path, size in paths
            if kind is FileKind.LOG or self._fs.exists(path)
        ]
        return replace(draft, files=tuple(files))

    def _put_file(
        self, archive: PartitionArchive, key: str, kind: FileKind, path: str, size: int | None
    ) -> ArchivedFile:
        put = hashlib.sha256()
        sizes: list[int] = []
        archive.objects.put(key, self._pieces(path, size, put.update, sizes))
        back = hashlib.sha256()
        size_back = 0
        for piece in archive.objects.read(key):
            self._check_running(key)
            back.update(piece)
            size_back += len(piece)
        if back.digest() != put.digest() or size_back != sum(sizes):
            raise StorageError(
                f"{archive.objects.url}/{key} differs from what was put: {size_back} bytes were "
                f"read back, {sum(sizes)} bytes were put"
            )
        return ArchivedFile(kind=kind, size=sum(sizes), sha256=put.hexdigest())

    def _pieces(
        self, path: str, size: int | None, note: Callable[[bytes], None], sizes: list[int]
    ) -> Iterator[bytes]:
        file = self._fs.open_read(path)
        try:
            left = file.size() if size is None else size
            position = 0
            while left:
                self._check_running(path)
                piece = file.read_at(position, min(PIECE_BYTES, left))
                if not piece:
                    raise StorageError(f"{path} is {left} bytes shorter than it should be")
                note(piece)
                sizes.append(len(piece))
                yield piece
                position += len(piece)
                left -= len(piece)
        finally:
            file.close()

    def _check_running(self, what: str) -> None:
        if self._should_stop():
            raise LogClosedError(f"the store that archives {what}")


def _recorded(
    manifest: Manifest,
    copy: SegmentCopy,
    epochs: Sequence[EpochEntry],
    start: Offset,
    allows_gaps: bool,
) -> Manifest:
    """`manifest` with `copy` added at its end.

    `allows_gaps`: the log was compacted, maybe since the manifest was begun.
    """
    if manifest.segments and manifest.end != copy.base_offset:
        raise StorageError(
            f"{manifest.prefix} ends at offset {manifest.end}, but the next copy begins at "
            f"{copy.base_offset}: the manifest was changed meanwhile"
        )
    manifest = replace(manifest, allows_gaps=manifest.allows_gaps or allows_gaps)
    return manifest.plus(copy, tuple(epochs), start)
