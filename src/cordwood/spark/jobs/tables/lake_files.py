"""Writes rows to Parquet files, in executors, with pyarrow: no jar, and any of its file systems.

A task writes its rows into its own files and yields a row about each file. A repeated task writes
other files; only the files that its result names are committed.
"""

import os
import uuid
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.parquet as pq

from cordwood.quantities import MIB
from cordwood.spark.jobs.tables.lake_table import WrittenFile
from cordwood.value_class import dataclass

if TYPE_CHECKING:
    import pyarrow.fs as pafs
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

FILE_BYTES: Final = 512 * MIB  # as Arrow buffers; the file is smaller
COMPRESSION: Final = "zstd"
FILE_SCHEMA: Final = "kind string, path string, size long, rows long"
_FILE_TYPES: Final[dict[str, pa.DataType]] = {
    "kind": pa.string(),
    "path": pa.string(),
    "size": pa.int64(),
    "rows": pa.int64(),
}
_FILE_ARROW: Final = pa.schema([pa.field(name, kind) for name, kind in _FILE_TYPES.items()])


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

    def __init__(self, kind: FileKind, label: str, *, file_bytes: int = FILE_BYTES) -> None:
        self._kind = kind
        self._label = label
        self._file_bytes = file_bytes
        self._fs, self._directory = open_directory(kind.directory)
        self._writer: pq.ParquetWriter | None = None
        self._path = ""
        self._bytes = self._rows = 0
        self.written: list[WrittenFile] = []

    def write(self, batch: pa.RecordBatch) -> None:
        """Write rows; columns that the kind does not have are ignored."""
        if not batch.num_rows:
            return
        chosen = batch.select(self._kind.schema.names).cast(self._kind.schema)
        if self._writer is None:
            self._open()
        assert self._writer is not None
        self._writer.write_batch(chosen)
        self._rows += chosen.num_rows
        self._bytes += chosen.nbytes
        if self._bytes >= self._file_bytes:
            self._close()

    def _open(self) -> None:
        self._fs.create_dir(self._directory, recursive=True)
        name = f"{self._label}-{uuid.uuid4().hex}.parquet"
        self._path = f"{self._directory}/{name}"
        self._writer = pq.ParquetWriter(
            self._path, self._kind.schema, filesystem=self._fs, compression=COMPRESSION
        )

    def _close(self) -> None:
        assert self._writer is not None
        self._writer.close()
        self._writer = None
        _sync(self._fs, self._path)
        info = self._fs.get_file_info(self._path)
        url = f"{self._kind.directory.rstrip('/')}/{self._path.rpartition('/')[2]}"
        self.written.append(WrittenFile(path=url, size=info.size, rows=self._rows))
        self._bytes = self._rows = 0

    def finish(self) -> pa.RecordBatch:
        """Close the last file; return rows about all files, as in `FILE_SCHEMA`."""
        if self._writer is not None:
            self._close()
        rows: list[dict[str, Any]] = [
            {"kind": self._kind.name, "path": file.path, "size": file.size, "rows": file.rows}
            for file in self.written
        ]
        return pa.RecordBatch.from_pylist(rows, schema=_FILE_ARROW)


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
        file = WrittenFile(path=row["path"], size=row["size"], rows=row["rows"])
        found.setdefault(row["kind"], []).append(file)
    return found


def open_directory(url: str) -> "tuple[pafs.FileSystem, str]":
    """The file system of a directory or URL, and the path in it."""
    import pyarrow.fs as pafs

    if not urlsplit(url).scheme:
        return pafs.LocalFileSystem(), os.path.abspath(url)
    fs, path = pafs.FileSystem.from_uri(url)
    return fs, path


def _sync(fs: "pafs.FileSystem", path: str) -> None:
    """Sync local files before they are reported."""
    import pyarrow.fs as pafs

    if isinstance(fs, pafs.LocalFileSystem):
        fd = os.open(path, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
