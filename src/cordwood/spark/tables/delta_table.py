"""A Delta table, written with `deltalake`, without a JVM or a jar.

Tasks write the files, and the driver commits them as one transaction. Offsets are application
transactions, one for each partition, whose version is the next offset. That is their purpose in
Delta, and they survive the clean-up of Delta's log.

The topics, their partitions and the table's settings are its layout, which is a property of the
table. Properties cannot change in the same commit as files. So layouts are numbered: a new one is
written beside the present one, and the commit that adds the files sets the number in use with one
more application transaction.
"""

import json
import re
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from cordwood.errors import ConfigError, FormatError, TableChangedError
from cordwood.spark.tables.lake_table import (
    PARTITION_BY,
    TableState,
    UpkeepPolicy,
    WrittenFile,
)
from cordwood.spark.tables.table_upkeep import plan_merges
from cordwood.spark.tables.time_partitions import PartitionBy
from cordwood.value_class import dataclass

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable as Delta

_LAYOUT: Final = "cordwood.layout."  # followed by its number; a property
_LAYOUT_IN_USE: Final = "cordwood/layout"  # an application transaction
_DIRECTORY: Final = "cordwood"
_URL: Final = re.compile(r"[a-z][a-z0-9+.-]*://")


class DeltaLakeTable:
    """A `LakeTable` in Delta. `storage` are options of the object store."""

    def __init__(self, url: str, *, storage: Mapping[str, str] | None = None) -> None:
        self.url = url.rstrip("/")
        self._storage = dict(storage or {}) or None
        self._table: Delta | None = None

    @property
    def name(self) -> str:
        return self.url

    def load(self) -> TableState | None:
        delta = _deltalake()
        if not delta.DeltaTable.is_deltatable(self.url, storage_options=self._storage):
            self._table = None
            return None
        self._table = delta.DeltaTable(self.url, storage_options=self._storage)
        return self._state(self._table)

    def _state(self, table: "Delta") -> TableState:
        number = _layout_in_use(table)
        if not number and f"{_LAYOUT}1" not in table.metadata().configuration:
            raise ConfigError("table", self.url, "is a table of something else: name another one")
        if not number:
            return TableState()  # created by a run that was killed before its first commit
        layout = _parse_layout(self.url, table.metadata().configuration[f"{_LAYOUT}{number}"])
        offsets = {}
        for topic, (topic_id, partitions) in layout.topics.items():
            for partition in range(partitions):
                found = table.transaction_version(_application(topic, topic_id, partition))
                if found is not None:
                    offsets[topic, partition] = found
        return TableState(
            offsets=offsets,
            topic_ids={topic: name for topic, (name, _) in layout.topics.items() if name},
            settings=layout.settings,
        )

    def staging(self, run_id: str) -> str:
        return f"{self.url}/{_DIRECTORY}/{run_id}"

    def files(self) -> list[str]:
        return [] if self._table is None else self._table.file_uris()

    def commit(
        self,
        state: TableState,
        schema: "pa.Schema",
        *,
        run_id: str,
        added: Sequence[WrittenFile],
        removed: Sequence[str] = (),
    ) -> None:
        from deltalake import CommitProperties, Transaction
        from deltalake.exceptions import CommitFailedError
        from deltalake.transaction import AddAction, RemoveAction

        now_ms = time.time_ns() // 1_000_000
        by = PartitionBy(state.settings.get(PARTITION_BY, PartitionBy.NONE))
        schema = _with_partition(schema, by)
        try:
            table, number = self._prepared(state, schema, by)
            actions: list[AddAction | RemoveAction] = [
                AddAction(
                    path=self._relative(file.path),
                    size=file.size,
                    partition_values={} if by.column is None else {by.column: _value(file, by)},
                    modification_time=now_ms,
                    data_change=True,
                    stats=json.dumps({"numRecords": file.rows}),
                )
                for file in added
            ]
            actions += [
                RemoveAction(self._relative(path), data_change=True, deletion_timestamp=now_ms)
                for path in removed
            ]
            table.create_write_transaction(
                actions,
                "append",
                table.schema(),
                partition_by=[] if by.column is None else [by.column],
                commit_properties=CommitProperties(
                    custom_metadata={"cordwood.state": state.render()},
                    max_commit_retries=0,  # the other run may have written the same offsets
                    app_transactions=[
                        Transaction(_LAYOUT_IN_USE, number),
                        *(
                            Transaction(
                                _application(topic, state.topic_ids.get(topic, ""), partition),
                                offset,
                            )
                            for (topic, partition), offset in sorted(state.offsets.items())
                        ),
                    ],
                ),
            )
        except CommitFailedError as error:
            raise TableChangedError(self.url, str(error)) from error
        self.load()

    def _prepared(
        self, state: TableState, schema: "pa.Schema", by: PartitionBy
    ) -> "tuple[Delta, int]":
        """The table, created if missing, with all columns, and the number of the layout to use."""
        wanted = _render_layout(state)
        table, number = self._table, 0 if self._table is None else _layout_in_use(self._table)
        if table is None or not number:
            return self._create(schema, {f"{_LAYOUT}1": wanted}, by), 1
        self._add_columns(table, schema)
        if table.metadata().configuration[f"{_LAYOUT}{number}"] == wanted:
            return table, number
        before = self._state(table)
        table.alter.set_table_properties(
            {f"{_LAYOUT}{number + 1}": wanted}, raise_if_not_exists=False
        )
        table.update_incremental()
        if self._state(table) != before:
            raise TableChangedError(self.url, "another run committed first")
        return table, number + 1

    def _add_columns(self, table: "Delta", schema: "pa.Schema") -> None:
        """Add the columns and fields that the table lacks. Without rows, nobody minds them."""
        import pyarrow as pa
        from deltalake import write_deltalake

        there: Any = table.schema().to_arrow()
        held = pa.schema(there)
        if not _lacks(held, schema):
            return
        before = self._state(table)
        write_deltalake(table, schema.empty_table(), mode="append", schema_mode="merge")
        table.update_incremental()
        if self._state(table) != before:
            raise TableChangedError(self.url, "another run committed first")

    def _create(
        self, schema: "pa.Schema", properties: Mapping[str, str], by: PartitionBy
    ) -> "Delta":
        """Create an empty table, or replace one that a run created and never filled."""
        delta = _deltalake()
        try:
            return delta.DeltaTable.create(  # type: ignore[no-any-return]
                self.url,
                schema,
                partition_by=None if by.column is None else [by.column],
                mode="error" if self._table is None else "overwrite",
                configuration=dict(properties),
                storage_options=self._storage,
                raise_if_key_not_exists=False,
            )
        except delta.exceptions.DeltaError as error:
            raise TableChangedError(self.url, str(error)) from error

    def _relative(self, path: str) -> str:
        found = path.rpartition(f"/{_DIRECTORY}/")[2]
        return f"{_DIRECTORY}/{found}"

    def settle(self) -> None:
        """Do nothing: a commit is one step."""

    def discard(self, run_id: str) -> None:
        """Do nothing: files that no commit names are not in the table, and vacuum removes them."""

    def keep_up(self, policy: UpkeepPolicy) -> dict[str, int]:
        """With Delta's own means: `optimize`, a checkpoint, clean-up of its log, `vacuum`."""
        from deltalake.exceptions import CommitFailedError

        table = self._table
        assert table is not None, "load it first"
        hours = -(-policy.leftover_ms // 3_600_000)
        groups = plan_merges(self._sized(table), policy)
        done = {"merged_files": 0}
        if groups:
            try:
                metrics = table.optimize.compact(target_size=policy.file_bytes)
            except CommitFailedError as error:
                raise TableChangedError(self.url, str(error)) from error
            done["merged_files"] = int(metrics["numFilesRemoved"])
            table.update_incremental()
            table.create_checkpoint()
            table.cleanup_metadata()
        removed = table.vacuum(
            retention_hours=hours, dry_run=False, enforce_retention_duration=False, full=True
        )
        done["removed_files"] = len(removed)
        self.load()
        return done

    def _sized(self, table: "Delta") -> "list[tuple[str, int, Any]]":
        """Files with their sizes and partitions."""
        import pyarrow as pa

        found = pa.table(table.get_add_actions(flatten=True)).to_pylist()
        return [
            (
                row["path"],
                row["size_bytes"],
                tuple(v for name, v in sorted(row.items()) if name.startswith("partition.")),
            )
            for row in found
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Layout:
    """The id of each topic, "" if it has none, and the number of its partitions."""

    topics: Mapping[str, tuple[str, int]]
    settings: Mapping[str, str]


def _value(file: WrittenFile, by: PartitionBy) -> str | None:
    """The value of the partition's column. Delta reads no date after the year 9999."""
    year = (file.partition or "").partition("-")[0]
    return "9999-12-31" if by is PartitionBy.DAY and len(year) > 4 else file.partition


def _with_partition(schema: "pa.Schema", by: PartitionBy) -> "pa.Schema":
    """The schema with the column of the partition, which Delta stores beside the files."""
    import pyarrow as pa

    if by.column is None or by.column in schema.names:
        return schema
    kind = pa.date32() if by is PartitionBy.DAY else pa.string()
    return schema.append(pa.field(by.column, kind))


def _lacks(held: Any, wanted: Any) -> bool:
    """Whether a schema or a struct has fields that another lacks, at any depth."""
    import pyarrow as pa

    for number in range(len(wanted) if isinstance(wanted, pa.Schema) else wanted.num_fields):
        field = wanted.field(number)
        at = held.get_field_index(field.name)
        if at < 0:
            return True
        if _lacks_inside(held.field(at).type, field.type):
            return True
    return False


def _lacks_inside(held: Any, wanted: Any) -> bool:
    import pyarrow as pa

    if pa.types.is_struct(wanted) and pa.types.is_struct(held):
        return _lacks(held, wanted)
    if pa.types.is_list(wanted) and pa.types.is_list(held):
        return _lacks_inside(held.value_type, wanted.value_type)
    if pa.types.is_map(wanted) and pa.types.is_map(held):
        return _lacks_inside(held.item_type, wanted.item_type)
    return False


def _layout_in_use(table: "Delta") -> int:
    """The number of the layout; 0 if there is none."""
    return table.transaction_version(_LAYOUT_IN_USE) or 0


def _render_layout(state: TableState) -> str:
    counts: dict[str, int] = {}
    for topic, partition in state.offsets:
        counts[topic] = max(counts.get(topic, 0), partition + 1)
    topics = {topic: [state.topic_ids.get(topic, ""), count] for topic, count in counts.items()}
    return json.dumps({"topics": topics, "settings": dict(state.settings)}, sort_keys=True)


def _parse_layout(url: str, text: str) -> _Layout:
    try:
        found: Any = json.loads(text)
        return _Layout(
            topics={
                topic: (str(topic_id), int(partitions))
                for topic, (topic_id, partitions) in found["topics"].items()
            },
            settings={str(key): str(value) for key, value in found["settings"].items()},
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise FormatError(f"the layout kept in {url} cannot be read: {error}") from error


def _application(topic: str, topic_id: str, number: int) -> str:
    return f"cordwood/{topic}/{topic_id}/{number}"


def _deltalake() -> Any:
    try:
        import deltalake
        import deltalake.exceptions
    except ImportError as error:
        raise ConfigError(
            "format", "delta", "needs the package deltalake: pip install 'cordwood[lake]'"
        ) from error
    return deltalake
