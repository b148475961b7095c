"""Publishing: batches into several logs, all of them or none, and each publication once.

A publication has an id, the application and a number that grows. It goes in like this:

    step                                   a crash then leaves, once the store has opened again
    1  hold the logs                       nothing of it
    2  the ledger: cut them back to here   nothing of it
    3  append to each log, unseen          nothing of it: the logs are cut back
    4  sync each log                       nothing of it: the logs are cut back
    5  the ledger: number, no cuts         all of it
    6  show it in each log                 all of it

Invariant: a log that the ledger wants cut takes no appends but those of the publication. So what
is cut was never acknowledged to anyone. A number that is not higher than the last one of its
application was published before, and is skipped.

Where a step fails and the process lives on, the logs are cut back at once. A log that cannot
be, takes no more appends and stays on the list: the next start cuts it.
"""

import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from uuid import UUID

from cordwood.clock import Clock
from cordwood.errors import ConfigError, DiskFullError
from cordwood.format.file_names import INTERNAL_TOPICS
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.log.publishing.publication_ledger import (
    APPLICATION_CHARS_MAX,
    LastPublished,
    Place,
    Publications,
    write_publications,
)
from cordwood.log.rules.append_checks import BatchBytes, check_produced_batch
from cordwood.quantities import INT64_MAX, Offset
from cordwood.storage.files import FileSystem


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicationId:
    """Which batch of which application. A transient one is remembered for a week only."""

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
    """What one log gets: encoded batches, in order, as clients send them.

    batches  gives them; may be asked once. One that is writable is stamped in place
    size     their bytes, to see beforehand whether there is room
    """

    log: PartitionLog
    place: Place
    batches: Callable[[], Iterable[BatchBytes]]
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """What became of a publication: the offsets [begin, end) it has in each log.

    `is_repeated`: it was published before, and nothing was done now.
    """

    offsets: Mapping[tuple[str, int], tuple[Offset, Offset]]
    is_repeated: bool = False


class Publisher:
    """Publishes to the logs of one store, one publication at a time. Any thread may ask."""

    def __init__(
        self,
        fs: FileSystem,
        directories: Callable[[], Sequence[str]],
        clock: Clock,
        publications: Publications,
        *,
        threads: int,
    ) -> None:
        self.still = threading.Lock()  # held while a publication is under way
        self._fs = fs
        self._directories = directories
        self._clock = clock
        self._publications = publications
        self._threads = threads

    @property
    def publications(self) -> Publications:
        return self._publications

    def has_published(self, publication: PublicationId) -> bool:
        last = self._publications.last_of(publication.application)
        return last is not None and publication.number <= last

    def forget(self, application: str) -> bool:
        """Drop an application from the ledger; False when it is not there."""
        with self.still:
            if application not in self._publications.applications:
                return False
            self._save(self._publications.without_application(application))
            return True

    def forget_cuts(self, topic_id: UUID) -> None:
        """A topic is gone for good; one restored under its id must not be cut for it."""
        with self.still:
            places = [place for place in self._publications.cuts if place.topic_id == topic_id]
            if places:
                self._save(self._publications.without_cuts(places))

    def publish(self, publication: PublicationId, parts: Sequence[Part]) -> Published:
        """Publish, or find that it was. Durable and visible on return; raises if nothing of it is.

        Other appends to these logs wait meanwhile.
        """
        with self.still:
            if self.has_published(publication):
                return Published(offsets={}, is_repeated=True)
            self._publications.check_room_for(publication.application)
            self._check_parts(parts)
            ordered = sorted(parts, key=lambda part: (part.place.topic, part.place.partition))
            bases = self._hold(ordered)
            return self._run(publication, ordered, bases)

    def _check_parts(self, parts: Sequence[Part]) -> None:
        places = [part.place for part in parts]
        if len(set(places)) != len(places):
            raise ConfigError("partitions", len(places), "each may be given once")
        for part in parts:
            if part.place.topic in INTERNAL_TOPICS:
                raise ConfigError("topic", part.place.topic, "is internal to the store")
        needed: dict[str, int] = {}
        for part in parts:
            directory = os.path.dirname(part.log.directory)
            needed[directory] = needed.get(directory, 0) + part.size
        for directory, size in needed.items():
            if self._fs.free_bytes(directory) < size:
                raise DiskFullError(directory)

    def _hold(self, parts: Sequence[Part]) -> dict[Place, Offset]:
        held: list[Part] = []
        try:
            for part in parts:
                part.log.publication.begin()
                held.append(part)
        except BaseException:
            for part in held:
                part.log.publication.release()
            raise
        return {part.place: part.log.end_offset for part in parts}

    def _run(
        self, publication: PublicationId, parts: Sequence[Part], bases: Mapping[Place, Offset]
    ) -> Published:
        try:
            if parts:
                self._save(self._publications.with_cuts(bases))
            self._append(parts)
        except BaseException as error:
            self._take_back(parts)
            error.add_note(f"while publishing {publication}: nothing of it was published")
            raise
        offsets = {part.place: (bases[part.place], part.log.end_offset) for part in parts}
        last = LastPublished(
            number=publication.number,
            at_ms=self._clock.now_ms(),
            is_transient=publication.is_transient,
        )
        try:
            self._save(self._publications.with_published(publication.application, last, offsets))
        except BaseException as error:
            reason = f"whether {publication} was published is not known: {error}"
            for part in parts:
                part.log.publication.give_up(reason)
            raise
        for part in parts:
            part.log.publication.show()
        return Published(
            offsets={(place.topic, place.partition): found for place, found in offsets.items()}
        )

    def _append(self, parts: Sequence[Part]) -> None:
        """Steps 3 and 4, several logs at a time: much of it is waiting for the disk."""
        threads = min(self._threads, len(parts))
        if threads <= 1:
            for part in parts:
                self._append_part(part)
            return
        with ThreadPoolExecutor(threads, thread_name_prefix="cordwood-publish") as pool:
            for done in [pool.submit(self._append_part, part) for part in parts]:
                done.result()

    def _append_part(self, part: Part) -> None:
        now_ms = self._clock.now_ms()
        config = part.log.config
        for data in part.batches():
            part.log.publication.add(check_produced_batch(data, config, now_ms=now_ms), now_ms)
        part.log.publication.sync()

    def _take_back(self, parts: Sequence[Part]) -> None:
        """Undo what there is, take off the list what was undone, and only then let go of it."""
        if not parts:
            return
        undone = [part.place for part in parts if part.log.publication.undo()]
        try:
            self._save(self._publications.without_cuts(undone))
        except OSError as error:
            reason = f"a publication could not be taken back: {error}"
            for part in parts:
                part.log.publication.give_up(reason)
            return
        for part in parts:
            part.log.publication.release()

    def _save(self, publications: Publications) -> None:
        """Durable on return. Where it fails, either of both may be found at the next start."""
        try:
            write_publications(self._fs, self._directories(), publications)
        except BaseException:
            # What is saved next must be newer than what may be there now.
            self._publications = replace(self._publications, generation=publications.generation)
            raise
        self._publications = publications
