"""Publishing: batches into several logs, all of them or none, and each publication once.

A publication has an id: the application, and a number that grows. These are the steps:

    step                                   after a crash here, the next opening has
    1  hold the logs                       nothing of it
    2  the ledger: cut them back to here   nothing of it
    3  append to each log, unseen          nothing of it: the logs are cut back
    4  sync each log                       nothing of it: the logs are cut back
    5  the ledger: number, no cuts         all of it
    6  show it in each log                 all of it

Invariant: a log that has a cut in the ledger takes no appends but those of the publication. So
nothing that is cut was ever acknowledged. A number that is not higher than the last one of its
application was published before, and is skipped.

If a step fails and the process lives on, the logs are cut back at once. A log that cannot be cut
takes no more appends and keeps its cut in the ledger; the next start cuts it.
"""

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from uuid import UUID

from cordwood.clock import Clock
from cordwood.errors import ConfigError, DiskFullError, StorageError
from cordwood.format.batch_builder import build_batches
from cordwood.format.file_names import INTERNAL_TOPICS
from cordwood.format.record import Record
from cordwood.log.partition.appends.appending import batch_style
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.log.publishing.publication_ledger import (
    APPLICATION_CHARS_MAX,
    LastPublished,
    Place,
    Publications,
    read_publications,
    write_publications,
)
from cordwood.log.rules.append_checks import BatchBytes, check_produced_batch
from cordwood.log.rules.interruption import insist
from cordwood.log.rules.lifetime import Lifetime
from cordwood.log.topics.topic import Topic
from cordwood.quantities import INT64_MAX, Offset
from cordwood.storage.files import FileSystem
from cordwood.value_class import dataclass, replace

Records = Sequence[Record | tuple[bytes | None, bytes | None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicationId:
    """Which batch of which application. A transient one is remembered for only a week."""

    application: str
    number: int
    is_transient: bool = False

    def __post_init__(self) -> None:
        if not 0 < len(self.application) <= APPLICATION_CHARS_MAX:
            rule = f"must have 1 to {APPLICATION_CHARS_MAX} characters"
            raise ConfigError("application", self.application[:80], rule)
        if not 0 <= self.number <= INT64_MAX:
            raise ConfigError("number", self.number, f"must be 0 to {INT64_MAX}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """The batches for one log, in order, encoded as clients send them.

    batches  yields them; called once. A writable batch is stamped in place
    size     their size in bytes, to check for free space first; 0 if unknown
    """

    log: PartitionLog
    place: Place
    batches: Callable[[], Iterable[BatchBytes]]
    size: int


def part_of_records(
    topic: Topic[PartitionLog], partition: int, records: Records, clock: Clock
) -> Part:
    """The part of a publication for one log, built from records instead of batches."""
    log = topic.partition(partition)

    def batches() -> Iterator[memoryview]:
        # As a producer sends them: with LogAppendTime, the append stamps them later.
        style = replace(batch_style(log.config), is_log_append_time=False)
        for batch in build_batches(list(records), clock.now_ms(), style):
            yield batch.data

    return Part(log=log, place=Place.of(topic, partition), batches=batches, size=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """The offsets [begin, end) of a publication in each log.

    `is_repeated`: it was published before, and nothing was done.
    """

    offsets: Mapping[tuple[str, int], tuple[Offset, Offset]]
    is_repeated: bool = False


class Publisher:
    """Publishes to the logs of one store, one publication at a time. Any thread may call it.

    still  held while a publication is under way; hold it to keep any from starting
    """

    def __init__(
        self,
        fs: FileSystem,
        directories: Sequence[str],
        clock: Clock,
        publications: Publications,
        *,
        threads: int,
        lifetime: Lifetime,
    ) -> None:
        self.still = threading.Lock()
        self._fs = fs
        self._directories = directories
        self._clock = clock
        self._publications = publications
        self._threads = threads
        # Of the publication that is under way: whether the ledger may have its cuts, and the
        # ledger that says it is published, from the moment on when that may be on the disk.
        self._has_cuts = False
        self._in_doubt: Publications | None = None
        self._lifetime = lifetime

    @property
    def publications(self) -> Publications:
        """The ledger as it is on disk."""
        return self._publications

    def last_of(self, application: str) -> int | None:
        """The highest number an application has published; None if it never published."""
        return self._publications.last_of(application)

    def applications(self) -> dict[str, int]:
        """The highest number of each application that has published."""
        return {name: last.number for name, last in self._publications.applications.items()}

    def has_published(self, publication: PublicationId) -> bool:
        last = self._publications.last_of(publication.application)
        return last is not None and publication.number <= last

    def forget(self, application: str) -> bool:
        """Remove an application from the ledger: all its numbers are new again.

        False if the ledger does not have it.
        """
        self._lifetime.check_open()
        with self.still:
            if application not in self._publications.applications:
                return False
            self._save(self._publications.without_application(application))
            return True

    def forget_topic(self, topic_id: UUID) -> None:
        """Remove a deleted topic from the ledger: one restored under its id must not be cut."""
        with self.still:
            if self._publications.has_topic(topic_id):
                self._save(self._publications.without_topic(topic_id))

    def forget_cut(self, place: Place) -> None:
        """Remove the cut of a log that was cut."""
        with self.still:
            self._save(self._publications.without_cuts([place]))

    def publish(self, publication: PublicationId, parts: Sequence[Part]) -> Published:
        """Publish, unless this was published before. Durable and visible on return.

        Other appends to these logs wait meanwhile. If it raises an `Exception`, nothing was
        published. An interrupt may come when it is done already: publish it again to be sure.
        """
        self._lifetime.check_open()
        with self.still:
            if self.has_published(publication):
                return Published(offsets={}, is_repeated=True)
            self._publications.check_room_for(publication.application)
            self._check_parts(parts)
            ordered = sorted(parts, key=lambda part: (part.place.topic, part.place.partition))
            try:
                return self._run(publication, ordered)
            except BaseException as error:
                reason = error
                insist(lambda: self._settle(publication, ordered, reason))
                raise

    def _check_parts(self, parts: Sequence[Part]) -> None:
        places = [part.place for part in parts]
        if len(set(places)) != len(places):
            raise ConfigError("partitions", len(places), "must not name a partition twice")
        for part in parts:
            if part.place.topic in INTERNAL_TOPICS:
                raise ConfigError("topic", part.place.topic, "is internal to the store")
            part.log.publication.check_allowed()
        needed: dict[str, int] = {}
        for part in parts:
            directory = os.path.dirname(part.log.directory)
            needed[directory] = needed.get(directory, 0) + part.size
        for directory, size in needed.items():
            if self._fs.free_bytes(directory) < size:
                raise DiskFullError(directory)

    def _run(self, publication: PublicationId, parts: Sequence[Part]) -> Published:
        """The steps. If it raises, `_settle` must follow."""
        self._in_doubt, self._has_cuts = None, False
        bases = {part.place: part.log.publication.begin() for part in parts}
        if parts:
            self._has_cuts = True
            self._save(self._publications.with_cuts(bases))
        self._append(parts)
        offsets = {part.place: (bases[part.place], part.log.end_offset) for part in parts}
        last = LastPublished(
            number=publication.number,
            at_ms=self._clock.now_ms(),
            is_transient=publication.is_transient,
        )
        published = self._publications.with_published(publication.application, last, offsets)
        self._in_doubt = published
        self._save(published)
        self._show(parts)
        return Published(
            offsets={(place.topic, place.partition): found for place, found in offsets.items()}
        )

    def _settle(
        self, publication: PublicationId, parts: Sequence[Part], error: BaseException
    ) -> None:
        """Publish the whole of it or nothing, after a failure or an interrupt. Safe to repeat.

        The ledger decides. If it is unknown which ledger is on the disk, an interrupt lets us
        write it again; after a failure the logs fail, and the next start looks.
        """
        if self.has_published(publication):
            self._show(parts)
        elif self._in_doubt is None:
            self._take_back(parts)
            error.add_note(f"while publishing {publication}: nothing of it was published")
        elif isinstance(error, Exception):
            _give_up(parts, f"it is unknown whether {publication} was published: {error}")
        else:
            newer = replace(self._in_doubt, generation=self._publications.generation + 1)
            try:
                self._save(newer)
            except Exception as failure:
                _give_up(parts, f"it is unknown whether {publication} was published: {failure}")
            else:
                self._show(parts)

    def _show(self, parts: Sequence[Part]) -> None:
        for part in parts:
            part.log.publication.show()

    def _append(self, parts: Sequence[Part]) -> None:
        """Steps 3 and 4, several logs at a time: most of the time is spent waiting for disks."""
        threads = min(self._threads, len(parts))
        if threads <= 1:
            for part in parts:
                self._append_part(part)
            return
        pool = ThreadPoolExecutor(threads, thread_name_prefix="cordwood-publish")
        try:
            for done in [pool.submit(self._append_part, part) for part in parts]:
                done.result()
        finally:
            insist(lambda: pool.shutdown(cancel_futures=True))  # none may append afterwards

    def _append_part(self, part: Part) -> None:
        now_ms = self._clock.now_ms()
        config = part.log.config
        for data in part.batches():
            part.log.publication.add(check_produced_batch(data, config, now_ms=now_ms), now_ms)
        part.log.publication.sync()

    def _take_back(self, parts: Sequence[Part]) -> None:
        """Cut the logs back, remove the cuts of those that were cut, and only then release them."""
        parts = [part for part in parts if part.log.publication.is_held]
        if not parts:
            return
        undone = [part.place for part in parts if part.log.publication.undo()]
        try:
            if self._has_cuts:
                self._save(self._publications.without_cuts(undone))
        except OSError as error:
            if self._may_be_cut(parts):
                _give_up(parts, f"a failed publication could not be undone: {error}")
                return
        for part in parts:
            part.log.publication.release()

    def _may_be_cut(self, parts: Sequence[Part]) -> bool:
        """Whether the next start may cut these logs. Not if a full disk kept the old ledger."""
        try:
            cuts = read_publications(self._fs, self._directories).cuts
        except (OSError, StorageError):
            return True
        return any(part.place in cuts for part in parts)

    def _save(self, publications: Publications) -> None:
        """Durable on return. If it fails, the next start may find the old or the new ledger."""
        # First: if this fails, the next ledger must be newer than the one that may be on disk.
        self._publications = replace(self._publications, generation=publications.generation)
        write_publications(self._fs, self._directories, publications)
        self._publications = publications


def _give_up(parts: Sequence[Part], reason: str) -> None:
    for part in parts:
        part.log.publication.give_up(reason)
