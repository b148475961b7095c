"""Stages a span of a topic as files of a table: tasks read the log, decode, and write Parquet.

A task reads its offsets with the source's own reader and writes files itself, in one process: rows
do not go through the JVM. Spark only distributes the tasks and repeats those that fail. Without a
session the same tasks run here, one after the other.

A task that meets schemas it does not have writes nothing more; it goes on reading, to name them
all.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

import pyarrow as pa

from cordwood.errors import FormatError
from cordwood.spark.decoding.column_format import Encoding
from cordwood.spark.decoding.json_inference import join_types
from cordwood.spark.decoding.row_decoding import REASON, RowDecoder, RowFormat
from cordwood.spark.decoding.type_text import parse_schema, render_schema
from cordwood.spark.decoding.wire_format import schema_ids
from cordwood.spark.source.arrow_rows import arrow_schema
from cordwood.spark.tables.lake_files import FILE_SCHEMA, FileKind, LakeWriter
from cordwood.spark.tables.lake_table import TABLE_COLUMNS, WrittenFile
from cordwood.spark.tables.time_partitions import PartitionBy
from cordwood.value_class import dataclass, field

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ACCEPTED: Final = "accepted"
REJECTED: Final = "rejected"
_NEWS: Final = "news"  # a row about what a task met, instead of a file
_SMALL_TASK_RECORDS: Final = 200_000


@dataclass(frozen=True, slots=True, kw_only=True)
class StagePlan:
    """What a task needs besides its offsets. Spark pickles it."""

    form: RowFormat
    accepted_directory: str
    rejected_directory: str
    by: PartitionBy = PartitionBy.NONE

    @property
    def accepted_schema(self) -> pa.Schema:
        return self.form.table_schema(arrow_schema(TABLE_COLUMNS))

    @property
    def rejected_schema(self) -> pa.Schema:
        return rejected_schema()


def rejected_schema() -> pa.Schema:
    """The columns of a table of rejected rows: as they are in the log, and the reason."""
    return arrow_schema(TABLE_COLUMNS).append(pa.field(REASON, pa.string()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Staged:
    """The files of a span, and what the tasks met.

    found    a type with fields that the value's schema lacks
    missing  ids of schemas, for keys and values; if there are any, the files are not complete
    """

    accepted: tuple[WrittenFile, ...] = ()
    rejected: tuple[WrittenFile, ...] = ()
    found: pa.DataType | None = None
    missing: Mapping[str, frozenset[int]] = field(default_factory=dict)


Batches = Iterable[pa.RecordBatch]


def stage_batches(plan: StagePlan, batches: Batches) -> Iterator[pa.RecordBatch]:
    """Write rows to files; yield rows as in `FILE_SCHEMA`. One task's work."""
    if _lacks_type(plan.form):
        yield _news(None, _all_ids(plan.form, batches))
        return
    decoder = RowDecoder(plan.form)
    accepted = LakeWriter(
        FileKind(name=ACCEPTED, directory=plan.accepted_directory, schema=plan.accepted_schema),
        "part",
        by=plan.by,
    )
    rejected = LakeWriter(
        FileKind(name=REJECTED, directory=plan.rejected_directory, schema=plan.rejected_schema),
        "part",
    )
    missing: dict[str, set[int]] = {}
    found: pa.DataType | None = None
    for batch in batches:
        rows = decoder.decode(batch)
        for name, ids in rows.missing.items():
            missing.setdefault(name, set()).update(ids)
        if rows.found is not None:
            found = rows.found if found is None else join_types(found, rows.found)
        if any(missing.values()):
            continue
        accepted.write(rows.accepted)
        if rows.rejected is not None:
            rejected.write(rows.rejected)
    yield accepted.finish()
    yield rejected.finish()
    if found is not None or any(missing.values()):
        yield _news(found, missing)


def _lacks_type(form: RowFormat) -> bool:
    """Whether a column's type depends on schemas that nobody has asked for yet."""
    return any(
        each.is_framed and each.schema is None and each.encoding is not Encoding.JSON
        for each in (form.key, form.value)
    )


def _all_ids(form: RowFormat, batches: Batches) -> dict[str, set[int]]:
    ids: dict[str, set[int]] = {"key": set(), "value": set()}
    for batch in batches:
        for name, each in (("key", form.key), ("value", form.value)):
            if each.is_framed and each.encoding is not Encoding.JSON:
                there = schema_ids(batch.column(batch.schema.get_field_index(name)))
                ids[name].update(int(number) for number in set(there.tolist()) if number >= 0)
    for name, each in (("key", form.key), ("value", form.value)):
        ids[name] -= set(each.writers) | each.unknown
    return ids


def _news(found: pa.DataType | None, missing: Mapping[str, set[int]]) -> pa.RecordBatch:
    told = {
        "found": None if found is None else render_schema(_renderable(found)),
        "missing": {name: sorted(ids) for name, ids in missing.items()},
    }
    columns: dict[str, list[Any]] = {
        "kind": [_NEWS],
        "path": [json.dumps(told)],
        "size": [0],
        "rows": [0],
        "partition": [None],
    }
    kinds = {"size": pa.int64(), "rows": pa.int64()}
    fields = [pa.field(name, kinds.get(name, pa.string())) for name in columns]
    return pa.RecordBatch.from_pydict(columns, schema=pa.schema(fields))


def _renderable(kind: pa.DataType) -> pa.DataType:
    """The type without fields of which nothing is known."""
    from cordwood.spark.decoding.json_inference import known_fields

    return known_fields(kind)


def collect_staged(rows: Iterable[Mapping[str, Any]]) -> Staged:
    """What the rows of all tasks say."""
    files: dict[str, list[WrittenFile]] = {ACCEPTED: [], REJECTED: []}
    found: pa.DataType | None = None
    missing: dict[str, frozenset[int]] = {}
    for row in rows:
        if row["kind"] != _NEWS:
            files[row["kind"]].append(
                WrittenFile(
                    path=row["path"],
                    size=row["size"],
                    rows=row["rows"],
                    partition=row["partition"],
                )
            )
            continue
        news = json.loads(row["path"])
        for name, ids in news["missing"].items():
            missing[name] = missing.get(name, frozenset()) | frozenset(ids)
        if news["found"] is not None and json.loads(news["found"])["fields"]:
            kind = parse_schema(news["found"])
            found = kind if found is None else join_types(found, kind)
    return Staged(
        accepted=tuple(files[ACCEPTED]),
        rejected=tuple(files[REJECTED]),
        found=found,
        missing={name: ids for name, ids in missing.items() if ids},
    )


class TaskReader(Protocol):
    """Reads the rows of a part of a task: of the log, or of a file of a table."""

    def read(self, task: Any) -> Batches: ...


def run_tasks(
    spark: "SparkSession | None",
    read: "TaskReader",
    tasks: Sequence[Sequence[Any]],
    plan: StagePlan,
) -> Staged:
    """Run the tasks, each a list of parts that it reads one after the other."""
    if not tasks:
        return Staged()
    if spark is None:
        here = [
            row
            for parts in tasks
            for batch in stage_batches(plan, _rows(read, parts))
            for row in batch.to_pylist()
        ]
        return collect_staged(here)
    numbered = list(tasks)

    def stage(batches: Batches) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            numbers: list[Any] = batch.column(0).to_pylist()
            for number in numbers:
                yield from stage_batches(plan, _rows(read, numbered[number]))

    count = len(numbered)
    done = spark.range(0, count, 1, count).mapInArrow(stage, FILE_SCHEMA)
    found = done.collect()
    seen = [row.asDict() for row in found]
    if any(row["kind"] is None for row in seen):
        raise FormatError("a task returned a row that no task makes")
    return collect_staged(seen)


def _rows(read: "TaskReader", parts: Sequence[Any]) -> Iterator[pa.RecordBatch]:
    for part in parts:
        yield from read.read(part)


def grouped(ranges: Sequence[Any], *, width: int) -> list[list[Any]]:
    """Ranges in tasks: small ones together, so that a small commit makes few files.

    A range has `count`, the number of its offsets.
    """
    total = sum(each.count for each in ranges)
    wanted = min(len(ranges), max(1, min(width, -(-total // _SMALL_TASK_RECORDS))))
    if total > width * _SMALL_TASK_RECORDS:
        return [[each] for each in ranges]
    groups: list[list[Any]] = [[] for _ in range(wanted)]
    sizes = [0] * wanted
    for each in sorted(ranges, key=lambda found: -found.count):
        smallest = sizes.index(min(sizes))
        groups[smallest].append(each)
        sizes[smallest] += each.count
    for group in groups:
        group.sort(key=lambda each: (each.place.topic, each.place.partition, each.start))
    return groups
