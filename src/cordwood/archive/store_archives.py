"""The archives of a store: one for each partition whose topic has an `archive.url`.

This implements the store's port to archives: see `log/store/archive_port.py`.
"""

import logging
import threading
from collections.abc import Callable, Collection, Iterable
from functools import partial
from uuid import UUID

from cordwood.archive.archive_turns import ArchiveTurns
from cordwood.archive.cache.segment_cache import SegmentCache
from cordwood.archive.copying.copier import SegmentCopier
from cordwood.archive.fetching.fetch_threads import FetchThreads
from cordwood.archive.objects.object_store import (
    ObjectStore,
    endpoint,
    open_object_store,
    shown_url,
)
from cordwood.archive.topics.partition_archive import ArchiveParts, PartitionArchive
from cordwood.archive.topics.restore import TopicRestore, find_topic
from cordwood.archive.topics.topic_keeper import TopicKeeper
from cordwood.clock import Clock
from cordwood.errors import CordwoodError, LogClosedError
from cordwood.log.beside.read_only_log import ReadOnlyLog
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.log.reading.archived_segments import ArchivedSegments, ArchivePlace, ArchiveStatus
from cordwood.log.rules.fork_refusal import is_forked, refuse_after_fork
from cordwood.log.rules.work_progress import WorkProgress
from cordwood.log.store.archive_port import ArchivableStore, ListedTopics, WantedTopic
from cordwood.log.topics.topic import Topic
from cordwood.quantities import Offset
from cordwood.storage.files import FileSystem
from cordwood.storage.segment_parts.handle_cache import HandleCache

logger = logging.getLogger(__name__)

_OPEN_SEGMENTS_MAX = 64
_CLOSE_S = 30.0  # longer than a call to S3 can take
_FETCH_CLOSE_S = 1.0  # what is fetched ahead is wanted by nobody


class StoreArchives:
    """Implements `Archives`. One pass runs at a time for each server; reading goes on beside it.

    A forked child is refused.
    """

    def __init__(
        self,
        *,
        fs: FileSystem,
        clock: Clock,
        cache: SegmentCache,
        open_objects: Callable[[str, FileSystem], ObjectStore] = open_object_store,
    ) -> None:
        self._fs = fs
        self._open_objects = open_objects
        self._clock = clock
        self._parts = ArchiveParts(
            fs=fs, cache=cache, handles=HandleCache(_OPEN_SEGMENTS_MAX), threads=FetchThreads()
        )
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._turns = ArchiveTurns()
        self._stores: dict[str, ObjectStore] = {}
        self._archives: dict[tuple[UUID, int], PartitionArchive] = {}
        self._copier = SegmentCopier(fs, clock, self._stopping.is_set)
        self._keeper = TopicKeeper(clock)
        refuse_after_fork(self, "the archive")

    @property
    def cache(self) -> SegmentCache:
        return self._parts.cache

    def objects(self, url: str) -> ObjectStore:
        """The object store of a URL; the same one for the same URL."""
        with self._lock:
            found = self._stores.get(url)
            if found is None:
                found = self._stores[url] = self._open_objects(url, self._fs)
            return found

    def source(self, place: ArchivePlace) -> ArchivedSegments | None:
        url = place.config.archive_url
        key = (place.topic_id, place.partition)
        if url is None:
            with self._lock:
                self._archives.pop(key, None)
            return None
        archive = PartitionArchive(self.objects(url), place, self._parts)
        with self._lock:
            known = self._archives.get(key)
            if known is not None and known.objects is archive.objects:
                return known  # the topic was altered, but it is archived in the same place
            self._archives[key] = archive
        return archive

    def archive_of(
        self, log: PartitionLog | ReadOnlyLog, topic_id: UUID
    ) -> PartitionArchive | None:
        with self._lock:
            return self._archives.get((topic_id, log.partition))

    # --- a pass ------------------------------------------------------------------------------

    def run(
        self,
        store: ArchivableStore,
        topics: Collection[str] | None = None,
        *,
        patience_s: float | None = None,
    ) -> None:
        self._forget_deleted(store)
        archived: dict[str, list[Topic]] = {}
        for name in store.topics() if topics is None else topics:
            topic = store.topic(name)
            if topic.config.archive_url is not None:
                archived.setdefault(endpoint(topic.config.archive_url), []).append(topic)
        passes = [
            self._turns.begin(
                place,
                partial(self._run_topics, store, topics_there),
                skips_if_busy=patience_s is not None,
            )
            for place, topics_there in archived.items()
        ]
        self._turns.wait(passes, patience_s)

    def _run_topics(self, store: ArchivableStore, topics: Iterable[Topic]) -> None:
        for topic in topics:
            if self._stopping.is_set():
                return
            self._run_topic(store, topic)

    def _forget_deleted(self, store: ArchivableStore) -> None:
        ids = {store.topic(name).topic_id for name in store.topics(include_internal=True)}
        with self._lock:
            for key in [key for key in self._archives if key[0] not in ids]:
                del self._archives[key]

    def _run_topic(self, store: ArchivableStore, topic: Topic) -> None:
        for log in map(topic.partition, _online(topic)):
            archive = self.archive_of(log, topic.topic_id)
            if archive is None or log.is_closed:
                continue
            if self._stopping.is_set():
                return
            try:
                self._run_partition(store, topic, archive, log)
            except LogClosedError:
                return
            except Exception as error:  # whatever it is: the other partitions are not concerned
                logger.warning("archiving %s failed, will retry: %r", log.name, error)
                archive.progress.last_error = _shown_error(error)
                continue
            archive.progress.last_error = None
            archive.progress.last_success_ms = self._clock.now_ms()

    def _run_partition(
        self, store: ArchivableStore, topic: Topic, archive: PartitionArchive, log: PartitionLog
    ) -> None:
        if not archive.may_change:
            archive.learn()  # its leader archives; this replica reads, and may drop its copies
            return
        archive.look_again()
        # The topic's own object first: without it, segments cannot be restored.
        if archive.place.led is None:
            self._keeper.save(store, topic, archive.objects)
        elif log.partition == 0:
            self._keeper.save_for_cluster(store, topic, archive.objects, archive.place.owner or "")
        self._copier.copy_due(archive, log)
        archive.sweep()

    def status(self, store: ListedTopics, *, checked_for: str | None = None) -> list[ArchiveStatus]:
        found: list[ArchiveStatus] = []
        unreachable: dict[str, str] = {}  # an object store that fails is not asked again
        for name in store.topics():
            topic: Topic | Topic[ReadOnlyLog] = store.topic(name)
            for number in _online(topic):
                archive = self.archive_of(topic.partition(number), topic.topic_id)
                if archive is None or topic.config.archive_url is None:
                    continue
                error = unreachable.get(archive.objects.url)
                if checked_for is not None and error is None:
                    try:
                        archive.check_owner(checked_for)
                    except CordwoodError as refused:
                        error = _shown_error(refused)
                    except OSError as failed:
                        error = unreachable[archive.objects.url] = _shown_error(failed)
                found.append(_status(archive, shown_url(topic.config.archive_url), error))
        return found

    # --- restoring ---------------------------------------------------------------------------

    def restore(self, store: ArchivableStore, wanted: WantedTopic, progress: WorkProgress) -> Topic:
        objects = self.objects(wanted.url)
        restore = TopicRestore(objects, self._parts, store, self._stopping.is_set, progress)
        archived = find_topic(objects, wanted.name, wanted.topic_id)
        with self._turns.turn(endpoint(wanted.url)):
            return restore.run(archived, wanted)

    def close(self, timeout_s: float | None = None) -> None:
        """Stop the passes that are running, and remove the cache.

        Waits for at most `timeout_s` for archives that do not answer. In a forked child it does
        nothing: the cache is its parent's.
        """
        if is_forked(self):
            return
        self._stopping.set()
        for place in self._turns.stop(_CLOSE_S if timeout_s is None else timeout_s):
            logger.warning(
                "stopped without waiting for the archive %s any longer", shown_url(place)
            )
        self._parts.threads.close(_FETCH_CLOSE_S if timeout_s is None else timeout_s)
        self.cache.close()


def _online(topic: Topic | Topic[ReadOnlyLog]) -> list[int]:
    """The partitions of an archived topic, without those that are offline."""
    if topic.config.archive_url is None:
        return []
    return [number for number in range(topic.partition_count) if topic.has_partition(number)]


def _shown_error(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _status(archive: PartitionArchive, url: str, error: str | None) -> ArchiveStatus:
    progress = archive.progress
    start, end, count, size = Offset(0), Offset(0), 0, 0
    error = error or progress.last_error
    try:
        # The owner does not wait for an object store here: it is asked by each pass.
        if archive.is_known or archive.place.owner is None:
            manifest = archive.manifest
            start, end = manifest.start, manifest.end
            count, size = len(manifest.segments), manifest.size_bytes
    except (OSError, CordwoodError) as unknown:
        error = error or _shown_error(unknown)
    return ArchiveStatus(
        topic=archive.place.topic,
        partition=archive.place.partition,
        url=url,
        start_offset=start,
        archived_up_to=end,
        segment_count=count,
        size_bytes=size,
        copied_segments=progress.copied_segments,
        copied_bytes=progress.copied_bytes,
        last_success_ms=progress.last_success_ms,
        last_error=error,
    )
