"""Opening the topics of a store: finish what a crash left half done, then open every log.

    1  remove directories of deleted partitions, and of topics that were not created in the end
    2  adopt partitions that the catalog does not know, as in a directory that Kafka wrote
    3  set aside the partitions that the disk does not let us read, and those that have not begun;
       make the directories again that a power cut took, of partitions that have not begun
    4  open the logs, several at a time; each recovers itself
    5  cut off publications that were not finished

A partition that has not begun has no records and stays closed until it is used. A partition that
cannot be read stays offline and does not stop the others; nothing of it is removed or made again.
"""

import logging
import os
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Final, NamedTuple

from cordwood.errors import ConfigError, CordwoodError
from cordwood.format.file_names import (
    CONSUMER_OFFSETS_TOPIC,
    TRANSACTION_STATE_TOPIC,
    parse_directory_name,
    partition_directory_name,
)
from cordwood.format.small_files.partition_metadata import new_topic_id
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.log.publishing.publication_ledger import (
    Place,
    Publications,
    read_publications,
    write_publications,
)
from cordwood.log.rules.topic_config import TopicConfig
from cordwood.log.topics.catalog_files import KeptCatalog
from cordwood.log.topics.data_directories import DataDirectories
from cordwood.log.topics.directory_listing import FoundPartition, find_partitions, is_pristine
from cordwood.log.topics.log_directory import LogDirectory, PartitionName
from cordwood.log.topics.offsets_topic import OFFSETS_CONFIG
from cordwood.log.topics.partition_opener import PartitionOpener
from cordwood.log.topics.replica_swap import finish_swaps
from cordwood.log.topics.store_share import StoreShare
from cordwood.log.topics.topic import Topic
from cordwood.log.topics.topic_catalog import CatalogChange, TopicEntry
from cordwood.log.transactions.transaction_topic import TRANSACTIONS_CONFIG
from cordwood.quantities import MIB
from cordwood.storage.files import FileSystem
from cordwood.value_class import dataclass

logger = logging.getLogger(__name__)

# The files do not say how long their owner wanted to keep them, so nothing is deleted until
# someone configures it.
_ADOPTED_CONFIG: Final = {"retention.ms": "-1", "retention.bytes": "-1"}
_INTERNAL_CONFIGS: Final = {
    CONSUMER_OFFSETS_TOPIC: OFFSETS_CONFIG,
    TRANSACTION_STATE_TOPIC: {**TRANSACTIONS_CONFIG, "segment.bytes": str(100 * MIB)},
}


class _Home(NamedTuple):
    """Where a partition was found."""

    directory: LogDirectory
    found: FoundPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedTopics:
    """The result: every topic of the catalog, and the ledger without the cuts that were made."""

    topics: Mapping[str, Topic[PartitionLog]]
    publications: Publications


class StoreOpening:
    """Opens the topics of one store. Runs once, before anyone uses the store."""

    def __init__(
        self,
        fs: FileSystem,
        directories: DataDirectories,
        catalog: KeptCatalog,
        opener: PartitionOpener,
        *,
        threads: int,
        share: StoreShare | None = None,
    ) -> None:
        """With a `share`, the directories of other partitions are not looked at, let alone removed:
        other processes have them open."""
        self._share = share
        self._fs = fs
        self._directories = directories
        self._catalog = catalog
        self._opener = opener
        self._threads = threads
        self._publications = read_publications(fs, directories.paths)
        self._homes: dict[PartitionName, _Home] = {}
        self._unreadable: dict[PartitionName, OSError] = {}

    def run(self) -> OpenedTopics:
        self._find_partitions()
        self._finish_deletions()
        self._adopt()
        self._set_aside_new()
        self._set_aside_unreadable()
        self._open_logs()
        self._drop_unpublished()
        for directory in self._directories:
            directory.save_found_log_starts()
        return OpenedTopics(topics=self._topics(), publications=self._publications)

    def _find_partitions(self) -> None:
        if self._share is None:
            finish_swaps(
                self._fs,
                self._directories.paths,
                are_all_usable=self._directories.are_all_usable,
            )
        for directory in self._directories:
            found = find_partitions(self._fs, directory.path, wants=self._is_ours)
            for leftover in found.deleted:
                parsed = parse_directory_name(leftover)
                if self._is_ours(parsed.topic, parsed.partition):
                    self._remove(os.path.join(directory.path, leftover))
            for partition in found.live:
                name = (partition.topic, partition.number)
                # It may have begun in one directory while another one was not there.
                if name not in self._homes or self._is_pristine(name):
                    self._homes[name] = _Home(directory, partition)
                    self._unreadable.pop(name, None)
                    if partition.error is not None:
                        self._unreadable[name] = partition.error

    def _is_ours(self, topic: str, number: int) -> bool:
        return self._share is None or self._share.owns(topic, number)

    def _remove(self, path: str) -> bool:
        """Remove a directory that is not needed; False if that must wait for another start."""
        try:
            self._fs.remove_tree(path)
        except OSError as error:
            logger.warning("%s is removed at the next start: %s", path, error)
            return False
        return True

    # --- unfinished changes ------------------------------------------------------------------

    def _finish_deletions(self) -> None:
        """Remove directories of topics that were deleted, or never created in the end."""
        changed: set[str] = set()
        kept: set[str] = set()  # topics of which something is left
        for name, (directory, found) in list(self._homes.items()):
            if self._is_leftover(found):
                del self._homes[name]
                path = os.path.join(directory.path, partition_directory_name(*name))
                if not self._remove(path):
                    kept.add(found.topic)
                changed.add(directory.path)
        kept.update(topic for topic, _ in self._unreadable)
        doomed = self._catalog.catalog.doomed
        gone = tuple(topic_id for topic_id, topic in doomed.items() if topic not in kept)
        if doomed:
            changed.update(self._directories.paths)
        for path in sorted(changed):
            self._fs.sync_directory(path)
        if gone:
            try:
                self._catalog.apply(CatalogChange(forget=gone))
            except OSError as error:
                logger.warning("deleted topics are forgotten at the next start: %s", error)

    def _is_leftover(self, found: FoundPartition) -> bool:
        name = (found.topic, found.number)
        if name in self._unreadable:
            return False
        doomed = self._catalog.catalog.doomed
        if found.topic_id in doomed:
            return True
        entry = self._catalog.topics.get(found.topic)
        if entry is not None and found.number < entry.partitions:
            if not entry.is_here(found.number):
                return True  # it was moved away, and a crash came before it was removed
            # Without its id, nothing in a new partition was synced: what it holds may be older.
            return found.topic_id is None and not entry.has_begun(found.number)
        if found.topic_id is None and found.topic in doomed.values():
            return True
        return not self._catalog.is_new and self._is_pristine(name)

    def _adopt(self) -> None:
        unknown = sorted({topic for topic, _ in self._homes} - set(self._catalog.topics))
        if self._share is not None:  # then the keeper knows all topics
            self._homes = {n: home for n, home in self._homes.items() if n[0] not in unknown}
            return
        adopted: list[TopicEntry] = []
        for topic in unknown:
            homes = {number: home for (name, number), home in self._homes.items() if name == topic}
            ids = [h.found.topic_id for h in homes.values() if h.found.topic_id is not None]
            if not ids and any((topic, number) in self._unreadable for number in homes):
                self._leave_alone(topic, homes)
                continue
            partitions = max(homes) + 1
            logger.info("adopting topic %s, partitions: %d", topic, partitions)
            adopted.append(
                TopicEntry(
                    name=topic,
                    topic_id=ids[0] if ids else new_topic_id(),
                    partitions=partitions,
                    config=_INTERNAL_CONFIGS.get(topic, _ADOPTED_CONFIG),
                    begun=(1 << partitions) - 1,
                    is_adopted=True,
                )
            )
        if adopted or self._catalog.is_new:
            # From here on, an unknown directory without records is an unfinished creation.
            self._catalog.apply(CatalogChange(put=tuple(adopted)))
        for (topic, number), (directory, found) in self._homes.items():
            if found.topic_id is None and (topic, number) not in self._unreadable:
                with suppress(OSError):  # the next start does it
                    self._opener.write_metadata(directory, self._catalog.topics[topic], number)

    def _leave_alone(self, topic: str, numbers: Iterable[int]) -> None:
        """Do not adopt a topic whose id cannot be read: with a new id it would be another topic."""
        for number in numbers:
            error = self._unreadable.pop((topic, number), None)
            logger.error("%s-%d is not adopted: %r", topic, number, error or "its id is unknown")
            del self._homes[topic, number]

    def _set_aside_unreadable(self) -> None:
        for name, error in self._unreadable.items():
            _take_offline(self._homes.pop(name).directory, name, error)

    def _set_aside_new(self) -> None:
        """Leave partitions closed that never had records, and make those that are missing."""
        for entry in self._catalog.topics.values():
            for number in range(entry.partitions):
                if entry.has_begun(number) or not entry.is_here(number):
                    continue
                name = (entry.name, number)
                home = self._homes.get(name)
                if name in self._unreadable:
                    continue
                if home is None:
                    if self._directories.are_all_usable:
                        self._opener.reserve(entry, number)
                elif home.directory.was_clean or self._is_pristine(name):
                    home.directory.unopened.add(name)
                    del self._homes[name]

    def _is_pristine(self, name: PartitionName) -> bool:
        if name in self._unreadable:
            return False
        path = os.path.join(self._homes[name].directory.path, partition_directory_name(*name))
        try:
            return is_pristine(self._fs, path)
        except OSError as error:
            self._unreadable[name] = error
            return False

    # --- logs --------------------------------------------------------------------------------

    def _open_logs(self) -> None:
        """Several at a time: after a crash each log may have much to read again."""
        names = sorted(self._homes)
        threads = min(self._threads, max(len(names), 1))
        if threads <= 1:
            for name in names:
                self._open_log(name)
            return
        with ThreadPoolExecutor(threads, thread_name_prefix="cordwood-open") as pool:
            for _ in pool.map(self._open_log, names):
                pass  # an interrupt is raised here

    def _open_log(self, name: PartitionName) -> None:
        directory = self._homes[name].directory
        entry = self._catalog.topics[name[0]]
        held_from = self._publications.cuts.get(Place.of(entry, name[1]))
        try:
            self._opener.open(directory, entry, name[1], held_from=held_from)
        except Exception as error:  # whatever it is: the other partitions are not concerned
            _take_offline(directory, name, error)

    def _drop_unpublished(self) -> None:
        """Cut off the records of unfinished publications, which nobody has seen.

        A log that cannot be cut goes offline. The cut of an offline log stays in the ledger.
        """
        cuts = self._publications.cuts
        if not cuts:
            return
        for directory in self._directories:
            for name, log in list(directory.logs.items()):
                if Place.of(self._catalog.topics[name[0]], name[1]) not in cuts:
                    continue
                try:
                    log.publication.drop()
                except Exception as error:  # as in `_open_log`
                    _take_offline(directory, name, error)
                    directory.logs.pop(name).close(is_orderly=False)
        done = [place for place in cuts if self._is_cut(place)]
        if done:
            self._publications = self._publications.without_cuts(done)
            write_publications(self._fs, self._directories.paths, self._publications)

    def _is_cut(self, place: Place) -> bool:
        """Whether the log is open, and so was cut, or its topic no longer exists."""
        entry = self._catalog.topics.get(place.topic)
        if entry is None or entry.topic_id != place.topic_id:
            return True
        return any((place.topic, place.partition) in d.logs for d in self._directories)

    def _topics(self) -> dict[str, Topic[PartitionLog]]:
        logs: dict[str, dict[int, PartitionLog]] = {name: {} for name in self._catalog.topics}
        for log in self._directories.logs():
            logs[log.topic][log.partition] = log
        unopened: dict[str, list[int]] = {name: [] for name in self._catalog.topics}
        for directory in self._directories:
            for name, number in directory.unopened:
                unopened[name].append(number)
        return {
            name: Topic(
                name,
                entry.topic_id,
                self._known_config_of(entry),
                logs[name],
                partition_count=entry.partitions,
                offline=self._directories.why_offline,
                unopened=unopened[name],
                open_log=self._opener.open_new,
                absent=[n for n in range(entry.partitions) if not entry.is_here(n)],
            )
            for name, entry in self._catalog.topics.items()
        }

    def _known_config_of(self, entry: TopicEntry) -> TopicConfig:
        """The topic's configuration; the default if it is not valid, and the logs are offline."""
        try:
            return self._opener.config_of(entry)
        except ConfigError:
            return self._opener.defaults


def _take_offline(directory: LogDirectory, name: PartitionName, error: Exception) -> None:
    is_expected = isinstance(error, (OSError, CordwoodError))
    logger.error("%s-%d is offline: %r", *name, error, exc_info=None if is_expected else error)
    directory.offline[name] = error
