"""Appends to a topic of a data directory: as the owner of the store, or through its owner."""

import itertools
import os
import uuid
from collections.abc import Sequence
from typing import Final

from cordwood.cli.at.backend import AppendedTo, NewRecord
from cordwood.clock import SystemClock
from cordwood.errors import DirectoryLockedError
from cordwood.format import record_encoding
from cordwood.format.batch_builder import build_batches
from cordwood.format.record import Record
from cordwood.library import open_writer, request_change
from cordwood.log.beside.read_only_log import ReadOnlyLog
from cordwood.log.inbox.change_inbox import ChangeInbox, new_request_id, staging_directory
from cordwood.log.inbox.store_change import PublishBatches, StagedBatches
from cordwood.log.partition.appends.appending import batch_style
from cordwood.log.publishing.publication import PublicationId
from cordwood.log.rules.topic_config import TopicConfig
from cordwood.log.store.store import Store
from cordwood.log.topics.topic import Topic
from cordwood.storage.disk.file_access import FileAccess
from cordwood.storage.files import RealFileSystem
from cordwood.storage.small_files.staged_file import StagedFileWriter
from cordwood.value_class import replace

_FILE_NAME: Final = "records.batches"


def open_owned(paths: Sequence[str], defaults: TopicConfig) -> Store | None:
    """Open the store as its owner; None if another process owns it.

    Housekeeping is off: a short command must not decide what is deleted, and when.
    """
    try:
        return open_writer(list(paths), defaults=defaults, has_housekeeping=False)
    except DirectoryLockedError:
        return None


class OwnerAppender:
    """Appends to a store that this process owns, and serves change requests of others."""

    def __init__(self, store: Store, topic: str) -> None:
        self._store = store
        self._topic = store.topic(topic)

    @property
    def partition_count(self) -> int:
        return self._topic.partition_count

    def append(self, records: list[NewRecord], partition: int | None) -> list[AppendedTo]:
        appended = self._topic.append_many(records, partition=partition)
        self.idle()
        return [AppendedTo(r.partition, r.first_offset, r.next_offset) for r in appended.ranges]

    def idle(self) -> None:
        if self._store.changes.inbox.has_requests():
            self._store.changes.serve(wait=False)  # long changes continue in the background

    def close(self) -> None:
        self._store.close()


class InboxAppender:
    """Appends to a store that another process owns: stages batches, which the owner publishes.

    The records of one call become visible together.
    """

    def __init__(self, paths: Sequence[str], topic: Topic[ReadOnlyLog]) -> None:
        self._paths = list(paths)
        self._topic = topic
        self._clock = SystemClock()
        self._fs = RealFileSystem(FileAccess.of_store(self._paths[0]))
        self._turn = itertools.count()
        # As a producer sends them: the owner sets the append time.
        self._style = replace(batch_style(topic.config), is_log_append_time=False)

    @property
    def partition_count(self) -> int:
        return self._topic.partition_count

    def append(self, records: list[NewRecord], partition: int | None) -> list[AppendedTo]:
        staging_id = new_request_id()
        try:
            file = self._stage(staging_id, self._split(records, partition))
            answer = request_change(
                self._paths[0],
                PublishBatches(
                    publication=PublicationId(
                        application=f"cordwood produce {uuid.uuid4()}", number=0, is_transient=True
                    ),
                    files=(file,),
                ),
                data_dirs=self._paths[1:],
            )
        except BaseException:
            ChangeInbox(self._fs, self._paths[0]).discard_files(staging_id)
            raise
        offsets = answer.facts.get("offsets", [])
        return sorted(AppendedTo(number, first, end) for _, number, first, end in offsets)

    def _split(self, records: list[NewRecord], partition: int | None) -> dict[int, list[NewRecord]]:
        count = self._topic.partition_count
        if partition is not None:
            self._topic.partition(partition)  # raises if there is no such partition
            return {partition: records}
        lists, _ = record_encoding.split_by_key(records, Record, count, next(self._turn) % count)
        return {number: part for number, part in enumerate(lists) if part}

    def _stage(self, staging_id: str, parts: dict[int, list[NewRecord]]) -> StagedBatches:
        directory = staging_directory(self._paths[0], staging_id)
        self._fs.make_directory(directory)
        writer = StagedFileWriter(self._fs, os.path.join(directory, _FILE_NAME))
        now_ms = self._clock.now_ms()
        try:
            for number, part in parts.items():
                for batch in build_batches(part, now_ms, self._style):
                    writer.add((self._topic.name, number), batch.data)
            size = writer.finish()
        finally:
            writer.close()
        return StagedBatches(staging_id=staging_id, name=_FILE_NAME, size=size)

    def idle(self) -> None:
        """Nothing to do: another process owns the store."""

    def close(self) -> None:
        """Nothing to release."""
