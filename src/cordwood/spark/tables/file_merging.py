"""Small Parquet files become one, with the same rows in the same order."""

from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from cordwood.spark.decoding.type_casting import conformed
from cordwood.spark.tables.lake_files import FileKind, LakeWriter, open_directory
from cordwood.spark.tables.lake_table import WrittenFile
from cordwood.spark.tables.table_upkeep import FileGroup


def merged_schema(groups: list[FileGroup]) -> pa.Schema:
    """The columns of all files of the groups."""
    schemas = [_schema(path) for group in groups for path in group.paths]
    return pa.unify_schemas(schemas, promote_options="permissive")


def merge_group(group: FileGroup, schema: pa.Schema, directory: str) -> list[WrittenFile]:
    """Write the rows of a group to a new file in a directory."""
    kind = FileKind(name="merged", directory=directory, schema=schema)
    writer = LakeWriter(kind, "merged", file_bytes=1 << 62)
    for url in group.paths:
        fs, path = open_directory(url)
        with fs.open_input_file(path) as source:
            for batch in pq.ParquetFile(source).iter_batches():
                writer.write(_with_columns(batch, schema))
    writer.finish()
    return writer.written


def _schema(url: str) -> pa.Schema:
    fs, path = open_directory(url)
    with fs.open_input_file(path) as source:
        return pq.read_schema(source).remove_metadata()


def _with_columns(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    columns: list[Any] = []
    for field in schema:
        number = batch.schema.get_field_index(field.name)
        column = pa.nulls(batch.num_rows, field.type) if number < 0 else batch.column(number)
        columns.append(conformed(column, field.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)
