"""The rows of one task, encoded into one staged file in the inbox of the store."""

import os
from collections.abc import Iterable
from dataclasses import dataclass, field

import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage

from cordwood.clock import Clock
from cordwood.format.column_batches import ColumnBatches, RecordColumns
from cordwood.log.inbox.change_inbox import ChangeInbox, new_request_id, staging_directory
from cordwood.log.inbox.store_change import StagedBatches
from cordwood.spark.sink.row_places import RowPlaces
from cordwood.spark.sink.sink_columns import SinkColumns
from cordwood.spark.sink.sink_options import SinkOptions
from cordwood.storage.files import FileSystem
from cordwood.storage.small_files.staged_file import StagedFileWriter

_FILE_NAME = "rows.batches"


@dataclass(frozen=True)
class StagedRows(WriterCommitMessage):
    """The message of a task to the driver. `file` is None if the task had no rows.

    topics      topics to create, with their partition counts
    query_id    the stream that the task belongs to
    """

    file: StagedBatches | None
    topics: dict[str, int] = field(default_factory=dict)
    query_id: str | None = None
    row_count: int = 0


def stage_rows(
    batches: Iterable[pa.RecordBatch],
    options: SinkOptions,
    columns: SinkColumns,
    *,
    fs: FileSystem,
    clock: Clock,
    first_turn: int,
    query_id: str | None,
) -> StagedRows:
    """Write all rows to a staged file; if that fails, remove it."""
    staging_id = new_request_id()
    directory = staging_directory(options.path, staging_id)
    places = RowPlaces(options, fs, first_turn=first_turn)
    fs.make_directory(directory)
    try:
        writer = StagedFileWriter(fs, os.path.join(directory, _FILE_NAME))
        try:
            row_count = _encode(batches, options, columns, places, writer, clock)
            size = writer.finish()
        finally:
            writer.close()
    except BaseException:
        ChangeInbox(fs, options.path).discard_files(staging_id)
        raise
    if not row_count:
        ChangeInbox(fs, options.path).discard_files(staging_id)
        return StagedRows(file=None, query_id=query_id)
    return StagedRows(
        file=StagedBatches(staging_id=staging_id, name=_FILE_NAME, size=size),
        topics=places.missing,
        query_id=query_id,
        row_count=row_count,
    )


def _encode(
    batches: Iterable[pa.RecordBatch],
    options: SinkOptions,
    columns: SinkColumns,
    places: RowPlaces,
    writer: StagedFileWriter,
    clock: Clock,
) -> int:
    encoded = ColumnBatches(lambda place, data: writer.add(places.names[place], data))
    row_count = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        key = columns.take(batch, "key")
        rows = RecordColumns.of(
            value=batch.column(columns.value),
            key=key,
            timestamp=columns.take(batch, "timestamp"),
            headers=columns.take(batch, "headers"),  # type: ignore[arg-type]
            now_ms=clock.now_ms(),
        )
        topic = None if options.topic is not None else columns.take(batch, "topic")
        chosen = places.choose(
            rows, topic=topic, partition=columns.take(batch, "partition"), key=key
        )
        encoded.add(rows, chosen, places.style_of)
        row_count += batch.num_rows
    encoded.finish()
    return row_count
