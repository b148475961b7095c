"""Partitions that could not be opened come back by themselves once they can be.

A start may meet a full disk or too few descriptors. Then a partition is offline, and the store
goes on without it. This task tries again, with pauses that grow.
"""

import logging
from collections.abc import Callable
from typing import Final

from cordwood.clock import Clock
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.log.publishing.publication import Publisher
from cordwood.log.publishing.publication_ledger import Place
from cordwood.log.topics.data_directories import DataDirectories
from cordwood.log.topics.log_directory import LogDirectory, PartitionName
from cordwood.log.topics.partition_opener import PartitionOpener
from cordwood.log.topics.topic_catalog import TopicEntry
from cordwood.log.topics.topic_registry import TopicRegistry

logger = logging.getLogger(__name__)

_PAUSE_S: Final = 5.0
_PAUSE_S_MAX: Final = 300.0  # an attempt may read much, so it is not repeated often


class OfflinePartitions:
    """Opens the offline partitions of one store again. Called by the housekeeping."""

    def __init__(
        self,
        directories: DataDirectories,
        registry: TopicRegistry,
        opener: PartitionOpener,
        publisher: Publisher,
        clock: Clock,
        entry_of: Callable[[str], TopicEntry | None],
        admit: Callable[[PartitionLog], None],
    ) -> None:
        """`entry_of` gives the catalog's entry of a topic; None if the topic does not exist.

        `admit` gets a log before anyone else does: to end transactions that nobody has.
        """
        self._directories = directories
        self._registry = registry
        self._opener = opener
        self._publisher = publisher
        self._clock = clock
        self._entry_of = entry_of
        self._admit = admit
        self._pause_s = 0.0
        self._not_before_s = clock.monotonic()

    def is_needed(self) -> bool:
        """Whether a partition is offline that may come back, and the pause is over."""
        return self._clock.monotonic() >= self._not_before_s and any(
            self._candidates(directory) for directory in self._directories
        )

    def run(self) -> None:
        """Try all of them. Those that stay offline are tried again after a longer pause."""
        are_open = [
            self._reopen(directory, name)
            for directory in self._directories
            for name in self._candidates(directory)
        ]
        self._pause_s = 0.0 if all(are_open) else self._longer_pause_s()
        self._not_before_s = self._clock.monotonic() + self._pause_s

    def _longer_pause_s(self) -> float:
        return min(max(2 * self._pause_s, _PAUSE_S), _PAUSE_S_MAX)

    def _candidates(self, directory: LogDirectory) -> list[PartitionName]:
        """Offline partitions for which an attempt makes sense: their disk works."""
        if not directory.is_usable:
            return []
        offline = list(directory.offline.items())
        return [name for name, error in offline if isinstance(error, OSError)]

    def _reopen(self, directory: LogDirectory, name: PartitionName) -> bool:
        """Whether the partition is open now, or no longer exists."""
        topic_name, number = name
        with self._registry.changing:
            topic, entry = self._registry.find(topic_name), self._entry_of(topic_name)
            if topic is None or entry is None or number >= entry.partitions:
                directory.offline.pop(name, None)
                return True
            if topic.has_partition(number):  # of a later topic of that name
                directory.offline.pop(name, None)
                return True
            place = Place.of(entry, number)
            held_from = self._publisher.publications.cuts.get(place)
            try:
                self._opener.check_identity(directory, entry, number)
                log = self._opener.open(directory, entry, number, held_from=held_from)
                if held_from is not None:
                    log.publication.drop()
                    self._publisher.forget_cut(place)
                self._admit(log)
            except Exception as error:
                directory.offline[name] = error
                half_open = directory.logs.pop(name, None)
                if half_open is not None:
                    half_open.close(is_orderly=False)
                return False
            del directory.offline[name]
            topic.add_log(number, log)
        logger.info("%s-%d is online again", *name)
        return True
