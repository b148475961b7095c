"""Writes rows to Parquet files, in executors, with pyarrow: no jar, and any of its file systems.

A task writes its rows into its own files and yields a row about each file. A repeated task writes
other files; only the files that its result names are committed.
"""

import logging
import os
import uuid
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.parquet as pq

from cordwood.quantities import MIB
from cordwood.spark.decoding.row_decoding import REASON
from cordwood.spark.tables.lake_table import WrittenFile
from cordwood.spark.tables.time_partitions import PartitionBy, split
from cordwood.value_class import dataclass

if TYPE_CHECKING:
    import pyarrow.fs as pafs
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

logger = logging.getLogger(__name__)

FILE_BYTES: Final = 512 * MIB  # as Arrow buffers; the file is smaller
# Rows wait in memory for a row group of this size. Small row groups cost readers time, and
# compress badly.
GROUP_BYTES: Final = 64 * MIB
WRITERS_MAX: Final = 32  # files that a task writes at the same time
WAITING_BYTES_MAX: Final = 128 * MIB  # of all files of a task
COMPRESSION: Final = "zstd"
FILE_SCHEMA: Final = "kind string, path string, size long, rows long, partition string"
_FILE_TYPES: Final[dict[str, pa.DataType]] = {
    "kind": pa.string(),
    "path": pa.string(),
    "size": pa.int64(),
    "rows": pa.int64(),
    "partition": pa.string(),
}
_FILE_ARROW: Final = pa.schema([pa.field(name, kind) for name, kind in _FILE_TYPES.items()])
# Columns in which the same values come again and again. For others, a dictionary is work in vain.
_REPEATED: Final = frozenset({"topic", "partition", "timestampType", "op", REASON})
_GROWING: Final = frozenset({"offset", "timestamp"})  # small differences, which are what is stored


def table_schema(schema: "StructType") -> pa.Schema:
    """The Arrow schema of files with these columns. Times are in UTC, not in the session's zone."""
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(schema, timezone="UTC")


@dataclass(frozen=True, slots=True, kw_only=True)
class FileKind:
    """A table that rows may go to: the directory of its files, and their columns."""

    name: str
    directory: str
    schema: pa.Schema


class LakeWriter:
    """Files of one kind, written by one task."""

    def __init__(
        self,
        kind: FileKind,
        label: str,
        *,
        file_bytes: int = FILE_BYTES,
        by: PartitionBy = PartitionBy.NONE,
    ) -> None:
        self._kind = kind
        self._label = label
        self._file_bytes = file_bytes
        self._by = by
        self._fs, self._directory = open_directory(kind.directory)
        self._open: dict[str | None, _OpenFile] = {}
        self.written: list[WrittenFile] = []

    def write(self, batch: pa.RecordBatch) -> None:
        """Write rows; columns that the kind does not have are ignored."""
        if not batch.num_rows:
            return
        chosen = batch.select(self._kind.schema.names).cast(self._kind.schema)
        for partition, rows in split(chosen, self._by):
            file = self._open.pop(partition, None) or self._opened(partition)
            self._open[partition] = file  # the last one is the one used last
            file.write(rows)
            if file.size >= self._file_bytes:
                self._close(partition)
        self._bound()

    def _opened(self, partition: str | None) -> "_OpenFile":
        self._fs.create_dir(self._directory, recursive=True)
        name = f"{self._label}-{uuid.uuid4().hex}.parquet"
        path = f"{self._directory}/{name}"
        return _OpenFile(self._fs, path, self._kind.schema)

    def _bound(self) -> None:
        """Limit open files and waiting rows."""
        while len(self._open) > WRITERS_MAX:
            self._close(next(iter(self._open)))
        while sum(file.waiting_bytes for file in self._open.values()) > WAITING_BYTES_MAX:
            max(self._open.values(), key=lambda file: file.waiting_bytes).flush()

    def _close(self, partition: str | None) -> None:
        file = self._open.pop(partition)
        size = file.close()
        url = f"{self._kind.directory.rstrip('/')}/{file.path.rpartition('/')[2]}"
        self.written.append(WrittenFile(path=url, size=size, rows=file.rows, partition=partition))

    def finish(self) -> pa.RecordBatch:
        """Close the last files; return rows about all files, as in `FILE_SCHEMA`."""
        for partition in list(self._open):
            self._close(partition)
        rows: list[dict[str, Any]] = [
            {
                "kind": self._kind.name,
                "path": file.path,
                "size": file.size,
                "rows": file.rows,
                "partition": file.partition,
            }
            for file in self.written
        ]
        return pa.RecordBatch.from_pylist(rows, schema=_FILE_ARROW)


class _OpenFile:
    """One Parquet file; rows wait until there are enough for a row group."""

    def __init__(self, fs: "pafs.FileSystem", path: str, schema: pa.Schema) -> None:
        self._fs = fs
        self.path = path
        self._schema = schema
        self._writer = pq.ParquetWriter(
            path,
            schema,
            filesystem=fs,
            compression=COMPRESSION,
            use_dictionary=_with_dictionary(schema),  # type: ignore[arg-type]
            column_encoding={
                name: "DELTA_BINARY_PACKED" for name in schema.names if name in _GROWING
            },
        )
        self._waiting: list[pa.RecordBatch] = []
        self.waiting_bytes = self.size = self.rows = 0

    def write(self, batch: pa.RecordBatch) -> None:
        self._waiting.append(batch)
        size = batch.nbytes
        self.waiting_bytes += size
        self.size += size
        self.rows += batch.num_rows
        if self.waiting_bytes >= GROUP_BYTES:
            self.flush()

    def flush(self) -> None:
        if self._waiting:
            table = pa.Table.from_batches(self._waiting, self._schema)
            self._writer.write_table(table, row_group_size=table.num_rows)
        self._waiting = []
        self.waiting_bytes = 0

    def close(self) -> int:
        """Finish the file, on the disk as well; return its size."""
        self.flush()
        self._writer.close()
        _sync(self._fs, self.path)
        return int(self._fs.get_file_info(self.path).size)


def _with_dictionary(schema: pa.Schema) -> list[str]:
    """The columns, and fields of structs, in which values are likely to come again."""

    def leaves(kind: Any, path: str) -> Iterator[str]:
        if pa.types.is_struct(kind):
            for number in range(kind.num_fields):
                child = kind.field(number)
                yield from leaves(child.type, f"{path}.{child.name}")
        elif not pa.types.is_nested(kind):
            yield path

    found = [name for name in schema.names if name in _REPEATED]
    for field in schema:
        if pa.types.is_struct(field.type):
            found += leaves(field.type, field.name)
    return found


def write_files(df: "DataFrame", kind: FileKind) -> "DataFrame":
    """The query that writes all rows; it returns a row for each file. Collect it exactly once."""

    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        writer = LakeWriter(kind, "part")
        for batch in batches:
            writer.write(batch)
        yield writer.finish()

    return df.mapInArrow(write, FILE_SCHEMA)


def collect_files(df: "DataFrame") -> dict[str, list[WrittenFile]]:
    """Run the query that writes files; return the files by kind."""
    found: dict[str, list[WrittenFile]] = {}
    for row in df.collect():
        file = WrittenFile(
            path=row["path"], size=row["size"], rows=row["rows"], partition=row["partition"]
        )
        found.setdefault(row["kind"], []).append(file)
    return found


def open_directory(url: str) -> "tuple[pafs.FileSystem, str]":
    """The file system of a directory or URL, and the path in it."""
    import pyarrow.fs as pafs

    if not urlsplit(url).scheme:
        return pafs.LocalFileSystem(), os.path.abspath(url)
    fs, path = pafs.FileSystem.from_uri(url)
    return fs, path


def remove_directory(url: str) -> None:
    """Remove files that no table names, as far as that is possible; upkeep removes the rest."""
    fs, path = open_directory(url)
    try:
        fs.delete_dir(path)
    except OSError as error:
        if not isinstance(error, FileNotFoundError):
            logger.warning("cannot remove %s: %s", url, error)


def has_files(url: str) -> bool:
    """Whether a directory has files, as far as its store says."""
    import pyarrow.fs as pafs

    try:
        fs, path = open_directory(url)
        return bool(fs.get_file_info(pafs.FileSelector(path, allow_not_found=True)))
    except OSError:
        return False


def _sync(fs: "pafs.FileSystem", path: str) -> None:
    """Sync local files before they are reported."""
    import pyarrow.fs as pafs

    if isinstance(fs, pafs.LocalFileSystem):
        fd = os.open(path, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
