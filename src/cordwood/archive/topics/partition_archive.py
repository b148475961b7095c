"""The archive of one partition: its manifest, and the segments read through it.

The manifest in the object store is the truth. A copy of it lies in the partition's directory, so
that a store can open, and knows where its log begins, without the network. The copy is written
after the manifest, so at worst it lags behind.

A change takes four steps: read the manifest again, check that this store may still change it, put
the new one (`manifest_object`), write the copy. A crash in between leaves the old manifest or the
new one. Objects are put
before the manifest that names them, and deleted after it stops naming them: an object that no
manifest names is garbage, and `sweep` removes it.
"""

import logging
import os
import threading
from bisect import bisect_left
from collections.abc import Callable
from typing import Final

from cordwood.archive.cache.segment_cache import SegmentCache
from cordwood.archive.fetching.fetch_threads import FetchThreads
from cordwood.archive.fetching.fetched_segment import FetchedSegment
from cordwood.archive.manifests.manifest import (
    MANIFEST_BYTES_MAX,
    MANIFEST_NAME,
    Manifest,
    parse_manifest,
    partition_prefix,
    render_manifest,
)
from cordwood.archive.manifests.manifest_object import LedManifestObject, ManifestObject
from cordwood.archive.manifests.segment_copy import SegmentCopy
from cordwood.archive.objects.object_store import ObjectStore
from cordwood.errors import FormatError
from cordwood.format.file_names import FileKind
from cordwood.log.reading.archived_segments import ArchivedState, ArchivePlace
from cordwood.log.rules.fork_refusal import refuse_after_fork
from cordwood.quantities import Offset, TimestampMs
from cordwood.storage.files import FileSystem, read_whole, replace_file
from cordwood.storage.segment_parts.handle_cache import HandleCache
from cordwood.value_class import dataclass, field, replace

logger = logging.getLogger(__name__)

LOCAL_COPY_NAME: Final = "archive-manifest"


@dataclass(slots=True)
class Progress:
    """Archiving since the store was opened."""

    copied_segments: int = 0
    copied_bytes: int = 0
    last_success_ms: TimestampMs | None = None
    last_error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveParts:
    """What the archives of all partitions share."""

    fs: FileSystem
    cache: SegmentCache
    handles: HandleCache
    threads: FetchThreads


@dataclass(slots=True)
class _Loaded:
    manifest: Manifest
    state: ArchivedState
    segments: dict[str, FetchedSegment] = field(default_factory=dict)


class PartitionArchive:
    """Implements `ArchivedSegments`. Any thread may use it; changes take turns.

    A forked child is refused: the object store may not work there, and the cache is its parent's.
    """

    def __init__(self, objects: ObjectStore, place: ArchivePlace, parts: ArchiveParts) -> None:
        self.objects = objects
        self.place = place
        self.progress = Progress()
        self.prefix = partition_prefix(place.topic, place.topic_id, place.partition)
        self._parts = parts
        self._object = self._manifest_object()
        self._lock = threading.RLock()
        self._loaded: _Loaded | None = None
        self._copying: set[str] = set()
        self._garbage: list[str] = []
        self._needs_sweep = True
        refuse_after_fork(self, f"the archive of {self.name} in {objects.url}")

    @property
    def scratch_directory(self) -> str:
        """A directory for the archiver, in the cache, which is emptied at every start."""
        return f"{self._parts.cache.directory}/tail-{self.name}"

    def _manifest_object(self) -> ManifestObject:
        if self.place.led is None:
            return ManifestObject(self.objects, self.place)
        return LedManifestObject(self.objects, self.place, self.place.led, self._claimed)

    def _claimed(self) -> None:
        self._needs_sweep = True  # the leader before may have left copies that no manifest names

    @property
    def name(self) -> str:
        return f"{self.place.topic}-{self.place.partition}"

    # --- reading -----------------------------------------------------------------------------

    def state(self) -> ArchivedState:
        return self._known().state

    @property
    def manifest(self) -> Manifest:
        """The manifest as it was last read; see `refresh`."""
        return self._known().manifest

    @property
    def is_known(self) -> bool:
        if self._loaded is not None:
            return True
        if not self._lock.acquire(blocking=False):
            return False  # the object store is being asked
        try:
            copy = self._read_copy()
            if copy is not None:
                self._take(copy)
            return copy is not None
        finally:
            self._lock.release()

    def refresh(self) -> None:
        """Read the manifest again: the owner from the object store, a reader from the copy."""
        with self._lock:
            manifest = self._read_copy() if self.place.owner is None else None
            self._take(manifest or self._object.read())

    def _known(self) -> _Loaded:
        loaded = self._loaded
        if loaded is None:
            with self._lock:
                loaded = self._loaded or self._take(self._read_copy() or self._object.read())
        return loaded

    def _take(self, manifest: Manifest) -> _Loaded:
        """Use `manifest` from now on. Segments that it shares with the old one stay open."""
        old = self._loaded
        if old is not None and old.manifest == manifest:
            return old
        held = {} if old is None else old.segments
        segments = {
            copy.copy_id: held.get(copy.copy_id) or self._open(copy, manifest)
            for copy in manifest.segments
        }
        start = Offset(max(manifest.start, *(s.base_offset for s in manifest.segments[:1]), 0))
        state = ArchivedState(
            segments=tuple(segments.values()), start=start, end=Offset(max(manifest.end, start))
        )
        self._loaded = _Loaded(manifest, state, segments)
        return self._loaded

    def _open(self, copy: SegmentCopy, manifest: Manifest) -> FetchedSegment:
        return FetchedSegment(
            copy,
            objects=self.objects,
            prefix=self.prefix,
            fs=self._parts.fs,
            cache=self._parts.cache,
            handles=self._parts.handles,
            threads=self._parts.threads,
            allows_gaps=manifest.allows_gaps,
            following=lambda: self._starting_at(copy.next_offset),
        )

    def _starting_at(self, offset: Offset) -> FetchedSegment | None:
        """The archived segment that begins at `offset`, as far as the archive is known."""
        loaded = self._loaded
        if loaded is None:
            return None
        segments = loaded.manifest.segments
        at = bisect_left(segments, offset, key=lambda segment: segment.base_offset)
        return loaded.segments.get(segments[at].copy_id) if at < len(segments) else None

    def learn(self) -> None:
        """For a replica that does not lead: find out what its leader has archived."""
        with self._lock:
            manifest = self._object.read()
            if self._loaded is None or self._loaded.manifest != manifest:
                self._take(manifest)
                if manifest.generation:
                    self._write_copy(manifest)

    # --- the copy in the partition's directory -----------------------------------------------

    @property
    def _copy_path(self) -> str:
        return os.path.join(self.place.directory, LOCAL_COPY_NAME)

    def _read_copy(self) -> Manifest | None:
        """The copy; None if there is none of this archive. Its first line names the archive."""
        if not self.place.directory:
            return None
        try:
            content = read_whole(self._parts.fs, self._copy_path, limit=MANIFEST_BYTES_MAX)
            url, _, body = content.partition(b"\n")
            manifest = parse_manifest(body)
        except FileNotFoundError:
            return None
        except FormatError as error:
            logger.warning("%s is damaged, ignoring it: %s", self._copy_path, error)
            return None
        is_ours = url.decode("utf-8", "replace") == self.objects.url
        return manifest if is_ours and manifest.prefix == self.prefix else None

    def _write_copy(self, manifest: Manifest) -> None:
        if not self.place.directory:
            return
        content = self.objects.url.encode() + b"\n" + render_manifest(manifest)
        try:
            replace_file(self._parts.fs, self._copy_path, content)
        except OSError as error:
            # The copy lags behind until the next change.
            logger.warning("cannot write %s: %s", self._copy_path, error)

    # --- changing ----------------------------------------------------------------------------

    def look_again(self) -> Manifest:
        """The manifest in the object store now. Raises `StorageError` if another store owns it."""
        with self._lock:
            manifest = self._object.to_change()
            if self._loaded is None or self._loaded.manifest != manifest:
                self._take(manifest)
                if manifest.generation:
                    self._write_copy(manifest)
            return manifest

    @property
    def may_change(self) -> bool:
        return self._object.may_change

    def keep(self, start: Offset, end: Offset) -> None:
        """Forget offsets outside [start, end): in the manifest now, their objects later."""
        self._change(lambda manifest: manifest.kept(start, end))

    def _change(self, change: Callable[[Manifest], Manifest]) -> None:
        with self._lock:
            old = self._object.to_change()
            new = change(old)
            if new == old:
                self._take(old)
                return
            self._put(new)
            kept = {segment.copy_id for segment in new.segments}
            for segment in old.segments:
                if segment.copy_id not in kept:
                    self._garbage += self._keys_of(segment)

    def take_over(self) -> None:
        """Make this store the owner of an archive that another store began.

        A manifest is put even if there is none yet: otherwise the other store could begin one.
        """
        with self._lock:
            manifest = self._object.read()
            owner = self.place.owner
            assert owner is not None, self.name
            if manifest.owner != owner or not manifest.generation:
                self._put(replace(manifest, owner=owner, generation=manifest.generation + 1))

    def check_owner(self, owner: str) -> None:
        """Raise if a store with this `writer_id` could not archive here now."""
        with self._lock:
            manifest = self._object.read()
        if manifest.generation:
            self._object.check_owner(manifest, owner)

    def _put(self, manifest: Manifest) -> None:
        manifest = self._object.put(manifest)
        self._take(manifest)
        self._write_copy(manifest)

    # --- copies under way --------------------------------------------------------------------

    def begin_copy(self, copy_id: str) -> None:
        """Objects of `copy_id` are being put: not garbage, although no manifest names them."""
        with self._lock:
            self._copying.add(copy_id)

    def finish_copy(self, copy: SegmentCopy, change: Callable[[Manifest], Manifest]) -> None:
        """Add a copy to the manifest: all its objects are put and verified."""
        with self._lock:
            self._change(change)
            self._copying.discard(copy.copy_id)

    def abandon_copy(self, copy_id: str) -> None:
        """A copy failed: its objects are garbage."""
        with self._lock:
            self._copying.discard(copy_id)
            self._needs_sweep = True

    def key_of(self, copy: SegmentCopy, kind: FileKind) -> str:
        return f"{self.prefix}/{copy.object_name(kind)}"

    def packed_key(self, copy: SegmentCopy) -> str:
        return f"{self.prefix}/{copy.packed_name}"

    def _keys_of(self, copy: SegmentCopy) -> list[str]:
        return [f"{self.prefix}/{name}" for name in sorted(copy.object_names())]

    # --- garbage -----------------------------------------------------------------------------

    def sweep(self) -> int:
        """Remove objects that no manifest names; return how many.

        Objects are listed before the manifest is read: an object that is put meanwhile is not in
        the list, and one that is recorded meanwhile is in the manifest. In a cluster, whoever leads
        next claims the manifest before its first copy, so its objects are not in the list of one
        that could still read the manifest as its own. A full listing is made
        once, and again after a failed copy; otherwise only forgotten objects are removed.
        """
        with self._lock:
            garbage, self._garbage = self._garbage, []
            if self._needs_sweep:
                garbage += self._unnamed()
                self._needs_sweep = False
        removed = 0
        try:
            for key in dict.fromkeys(garbage):
                self.objects.delete(key)
                removed += 1
        except BaseException:
            self._needs_sweep = True
            raise
        return removed

    def _unnamed(self) -> list[str]:
        listed = [info.key for info in self.objects.listing(self.prefix)]
        manifest = self._object.to_change()
        named = {f"{self.prefix}/{MANIFEST_NAME}"}
        for copy in manifest.segments:
            named.update(self._keys_of(copy))
        return [
            key
            for key in listed
            if key not in named and not any(copy_id in key for copy_id in self._copying)
        ]
