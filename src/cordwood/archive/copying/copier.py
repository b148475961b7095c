"""Copying sealed segments into the archive.

A segment is due if it is sealed and synced, readers may see all of it, no open transaction can
still abort any of it, its last append is `archive.after.ms` old, and every segment before it is
archived. Then:

    1  put its log file, and then its other files packed in one object, under the id of this copy
    2  verify each object: by the store's checksum, or by reading it back
    3  put the manifest that names the copy

In a cluster the archive may end inside of a segment of this replica. Then what follows in that
segment is copied (`segment_tail`).

If this is interrupted before step 3, the objects are garbage: a sweep removes them, and the next
run starts over. After step 3 the segment is archived and is not copied again.
"""

import hashlib
import logging
import os
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from cordwood.archive.copying.segment_tail import segment_tail
from cordwood.archive.copying.verified_put import VerifiedPut
from cordwood.archive.manifests.block_sums import BLOCK_BYTES, BlockSums
from cordwood.archive.manifests.manifest import Manifest
from cordwood.archive.manifests.segment_copy import ArchivedFile, ArchivedSums, SegmentCopy
from cordwood.archive.objects.object_port import PIECE_BYTES
from cordwood.archive.topics.partition_archive import PartitionArchive
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
        if log.state.unsynced.segments:
            # One that was rolled a moment ago is not durable yet, and would wait for the next pass.
            log.syncing.sync_pending()
        manifest = self._touching(archive, archive.look_again(), log)
        copied = 0
        for segment, end in due_segments(
            log.archive.local_view,
            log.config,
            archived_up_to=manifest.end if manifest.segments else None,
            stable_offset=Offset(min(log.last_stable_offset, log.state.durable)),
            now_ms=self._clock.now_ms(),
        ):
            begin = max(segment.base_offset, manifest.end if manifest.segments else 0)
            try:
                with self._from(archive, log, segment, Offset(begin), end) as part:
                    self._copy(archive, log, segment, part, end)
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
        if archive.place.led is not None and manifest.end > view.segments.first_offset:
            return manifest  # replicas roll at different offsets
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

    @contextmanager
    def _from(
        self,
        archive: PartitionArchive,
        log: PartitionLog,
        segment: Segment,
        begin: Offset,
        end: Offset,
    ) -> Iterator[Segment]:
        """`segment`, or the part of it from `begin` on, as a segment of its own."""
        if begin == segment.base_offset:
            yield segment
            return
        with segment_tail(
            self._fs,
            archive.scratch_directory,
            segment,
            begin,
            end,
            config=log.config,
            allows_gaps=log.source.allows_gaps,
            now_ms=self._clock.now_ms(),
        ) as tail:
            yield tail

    def _copy(
        self,
        archive: PartitionArchive,
        log: PartitionLog,
        segment: Segment,
        part: Segment,
        end: Offset,
    ) -> None:
        """Copy `part`, which is `segment` or the end of it."""
        copy_id = uuid.uuid4().hex
        archive.begin_copy(copy_id)
        try:
            copy = self._put_files(archive, log, part, end, copy_id)
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
        log_file, sums = self._put_log(archive, draft, segment)
        draft = replace(
            draft,
            files=(log_file,),
            sums=ArchivedSums(block_bytes=BLOCK_BYTES, sha256=hashlib.sha256(sums).hexdigest()),
        )
        paths = [(kind, segment.path(kind)) for kind in _INDEX_KINDS]
        snapshot = os.path.join(log.directory, segment_file_name(end, FileKind.SNAPSHOT))
        paths.append((FileKind.SNAPSHOT, snapshot))
        packed = self._put_packed(archive, draft, sums, paths)
        return replace(draft, files=(log_file, *packed))

    def _put_log(
        self, archive: PartitionArchive, draft: SegmentCopy, segment: Segment
    ) -> tuple[ArchivedFile, bytes]:
        """The archived log file, and the sums of its blocks."""
        put = self._verified(archive, archive.key_of(draft, FileKind.LOG))
        sums = BlockSums(BLOCK_BYTES)

        def pieces() -> Iterator[bytes]:
            for piece in self._pieces(segment.path(FileKind.LOG), segment.size):
                sums.update(piece)
                yield piece

        put.run(pieces())
        file = ArchivedFile(kind=FileKind.LOG, size=put.size, sha256=put.sha256)
        return file, sums.finish()

    def _put_packed(
        self,
        archive: PartitionArchive,
        draft: SegmentCopy,
        sums: bytes,
        paths: Sequence[tuple[FileKind, str]],
    ) -> list[ArchivedFile]:
        """The files that exist, in the packed object of `draft`, behind the sums."""
        put = self._verified(archive, archive.packed_key(draft))
        files: list[ArchivedFile] = []

        def pieces() -> Iterator[bytes]:
            yield sums
            position = len(sums)
            for kind, path in paths:
                if not self._fs.exists(path):
                    continue
                digest, size = hashlib.sha256(), 0
                for piece in self._pieces(path, None):
                    digest.update(piece)
                    size += len(piece)
                    yield piece
                files.append(
                    ArchivedFile(kind=kind, size=size, sha256=digest.hexdigest(), position=position)
                )
                position += size

        put.run(pieces())
        return files

    def _verified(self, archive: PartitionArchive, key: str) -> VerifiedPut:
        return VerifiedPut(archive.objects, key, lambda: self._check_running(key))

    def _pieces(self, path: str, size: int | None) -> Iterator[bytes]:
        """The first `size` bytes of a file; all of it by default."""
        file = self._fs.open_read(path)
        try:
            left = file.size() if size is None else size
            position = 0
            while left:
                piece = file.read_at(position, min(PIECE_BYTES, left))
                if not piece:
                    raise StorageError(f"{path} is {left} bytes shorter than it should be")
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
