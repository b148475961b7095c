"""Publishing to a store: records for several partitions, all or none, each publication once."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from cordwood.format.batch_builder import build_batches
from cordwood.format.record import Record
from cordwood.log.partition.appending import batch_style
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.log.publishing.publication import Part, PublicationId, Published, Publisher
from cordwood.log.publishing.publication_ledger import Place
from cordwood.log.store.opened_directories import StoreSetup
from cordwood.log.store.topic_store import TopicStore
from cordwood.quantities import TimestampMs

Records = Sequence[Record | tuple[bytes | None, bytes | None]]


class PublishingStore(TopicStore):
    """Topics, and publications to them. Any thread may use it."""

    def __init__(self, directories: Sequence[str], setup: StoreSetup) -> None:
        super().__init__(directories, setup)
        self.publisher = Publisher(
            setup.fs,
            lambda: self.data_dirs,
            setup.clock,
            self._publications,
            threads=setup.opening_threads,
        )

    def publish(
        self, application: str, number: int, records: Mapping[tuple[str, int], Records]
    ) -> Published:
        """Append `records`, by (topic, partition), as one: readers see all of it or nothing.

        `application` and `number` say what it is. A number that is not higher than the last one
        the application published was published before: nothing is done, and the answer says so.
        A crash at any moment leaves all of it or nothing, so whoever is not sure publishes again.
        """
        self._check_open()
        parts = [self._part(*place, list(items)) for place, items in records.items() if len(items)]
        publication = PublicationId(application=application, number=number)
        return self.publisher.publish(publication, parts)

    def _part(self, topic: str, partition: int, records: list[Any]) -> Part:
        log = self.topic(topic).partition(partition)

        def batches() -> Iterator[memoryview]:
            # As a producer sends them: that they get the time of the append is added later.
            style = replace(batch_style(log.config), is_log_append_time=False)
            now_ms: TimestampMs = self._clock.now_ms()
            for batch in build_batches(records, now_ms, style):
                yield batch.data

        return Part(log=log, place=self.place_of(log), batches=batches, size=0)

    def place_of(self, log: PartitionLog) -> Place:
        """How the ledger calls a log."""
        topic = self.topic(log.topic)
        return Place(topic=log.topic, topic_id=topic.topic_id, partition=log.partition)

    def last_published(self, application: str) -> int | None:
        """The highest number that an application has published; None when it never did."""
        self._check_open()
        return self.publisher.publications.last_of(application)

    def applications(self) -> dict[str, int]:
        """Who has published, and the highest number of each."""
        self._check_open()
        known = self.publisher.publications.applications
        return {name: last.number for name, last in known.items()}

    def forget_application(self, application: str) -> bool:
        """Forget what an application published: all its numbers are new again.

        False when nothing was known of it.
        """
        self._check_open()
        return self.publisher.forget(application)

    def delete_topic(self, name: str) -> None:
        with self._lock:
            topic_id = self.topic(name).topic_id
            super().delete_topic(name)
            self.publisher.forget_cuts(topic_id)
