"""Writing to a store: tasks stage their rows, and the driver publishes them together.

Exactly once. Until the driver requests the publication, no log contains anything of a batch. The
publication is all or nothing, and it has a number under which it is made only once. If Spark writes
a batch again after a crash, the batch is either found to be published or is published then. See
`log.publishing.publication`.

Spark recreates writers between calls, in other processes, so they hold only what was known when the
query was planned.
"""

import logging
import uuid
from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from cordwood.clock import SystemClock
from cordwood.errors import ConfigError
from cordwood.library import request_change
from cordwood.log.inbox.change_inbox import ChangeInbox
from cordwood.log.inbox.store_change import SKIPPED, PublishBatches
from cordwood.log.publishing.publication import PublicationId
from cordwood.spark.sink.sink_columns import SinkColumns
from cordwood.spark.sink.sink_options import SinkOptions
from cordwood.spark.sink.task_output import StagedRows, stage_rows
from cordwood.spark.worker_heap import settle_heap
from cordwood.storage.disk.file_access import FileAccess
from cordwood.storage.files import RealFileSystem

logger = logging.getLogger(__name__)

_QUERY_ID = "sql.streaming.queryId"
_BATCH_ID = "streaming.sql.batchId"

Messages = Sequence[WriterCommitMessage | None]


class _StoreWriter:
    """The common part of batch and stream writers."""

    def __init__(self, options: SinkOptions, columns: SinkColumns) -> None:
        self._options = options
        self._columns = columns

    def _stage(self, batches: Iterator[pa.RecordBatch]) -> StagedRows:
        context = TaskContext.get()
        assert context is not None, "only tasks write rows"
        settle_heap()
        batch_id = context.getLocalProperty(_BATCH_ID) or "0"
        return stage_rows(
            batches,
            self._options,
            self._columns,
            fs=RealFileSystem(FileAccess.of_store(self._options.path)),
            clock=SystemClock(),
            # Differs by task and batch, and stays the same if Spark runs the task again.
            first_turn=context.partitionId() + int(batch_id),
            query_id=context.getLocalProperty(_QUERY_ID),
        )

    def _publish(self, publication: PublicationId, messages: Messages) -> None:
        staged = _staged(messages)
        topics: dict[str, int] = {}
        for rows in staged:
            topics |= rows.topics
        files = tuple(rows.file for rows in staged if rows.file is not None)
        if not files:
            return
        answer = request_change(
            self._options.path,
            PublishBatches(publication=publication, files=files, topics=topics),
            timeout_s=self._options.timeout_s,
            data_dirs=self._options.paths[1:],
        )
        if answer.outcome == SKIPPED:
            logger.warning("%s was already published; nothing was written", publication)

    def _discard(self, messages: Messages) -> None:
        """Remove staged files that will not be published."""
        inbox = ChangeInbox(RealFileSystem(), self._options.path)
        for rows in _staged(messages):
            if rows.file is not None:
                inbox.discard_files(rows.file.staging_id)


def _staged(messages: Messages) -> list[StagedRows]:
    """The messages of tasks that succeeded; Spark passes None for a failed task."""
    return [message for message in messages if isinstance(message, StagedRows)]


class StoreBatchWriter(_StoreWriter, DataSourceArrowWriter):
    """Writes a batch query. Each planning gets a new id, unless the options set one."""

    def __init__(self, options: SinkOptions, columns: SinkColumns) -> None:
        super().__init__(options, columns)
        if options.application is not None and options.number is not None:
            self._publication = PublicationId(
                application=options.application, number=options.number
            )
        else:
            self._publication = PublicationId(
                application=f"batch query {uuid.uuid4()}", number=0, is_transient=True
            )

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedRows:  # type: ignore[override]
        return self._stage(iterator)

    def commit(self, messages: Messages) -> None:
        self._publish(self._publication, messages)

    def abort(self, messages: Messages) -> None:
        self._discard(messages)


class StoreStreamWriter(_StoreWriter, DataSourceStreamArrowWriter):
    """Writes a stream; the stream's id and the batch's number identify a publication.

    The id of a stream is that of its checkpoint, wherever that lies. A stream that starts with an
    empty checkpoint is a new stream.
    """

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedRows:  # type: ignore[override]
        return self._stage(iterator)

    def commit(self, messages: Messages, batchId: int) -> None:  # noqa: N803
        if any(rows.file is not None for rows in _staged(messages)):
            publication = PublicationId(application=self._application(messages), number=batchId)
            self._publish(publication, messages)

    def abort(self, messages: Messages, batchId: int) -> None:  # noqa: N803
        self._discard(messages)

    def _application(self, messages: Messages) -> str:
        if self._options.application is not None:
            return self._options.application
        for rows in _staged(messages):
            if rows.query_id is not None:
                return f"stream {rows.query_id}"
        if self._options.checkpoint is not None:
            return f"stream {self._options.checkpoint}"
        raise ConfigError("applicationId", "", "is required, because this stream has no checkpoint")
