"""An Iceberg table, written with `pyiceberg`, without a JVM or a jar; see `iceberg_catalog`.

Tasks write the files. The driver registers them in one transaction, which also creates the table
the first time and stores the offsets in its properties, where they survive the expiry of snapshots.
Each snapshot has them too. A commit builds on the loaded snapshot: pyiceberg's own retries, which
would build on a later one, are not used.
"""

import uuid
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from cordwood.errors import ConfigError, TableChangedError
from cordwood.spark.tables.iceberg_catalog import CatalogChoice
from cordwood.spark.tables.lake_files import has_files
from cordwood.spark.tables.lake_table import (
    PARTITION_BY,
    TableState,
    UpkeepPolicy,
    WrittenFile,
)
from cordwood.spark.tables.time_partitions import TIME_COLUMN, PartitionBy

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table, Transaction

_STATE: Final = "cordwood.state"
# A table that gets a commit every few seconds must not keep everything for ever.
_NEW_TABLE: Final = {
    "commit.retry.num-retries": "0",
    "commit.manifest-merge.enabled": "true",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "50",
}


class IcebergTable:
    """A `LakeTable` in Iceberg.

    `identifier` is namespace and name, separated by dots. `properties` are those of the catalog; if
    they name none, it is a SQLite file in the warehouse.
    """

    def __init__(
        self,
        identifier: str,
        *,
        warehouse: str | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        if "." not in identifier:
            raise ConfigError("table", identifier, "must be a namespace and a name: lake.orders")
        self.identifier = identifier
        self._choice = CatalogChoice(warehouse=warehouse, properties=dict(properties or {}))
        self._opened: tuple[bool, Catalog] | None = None
        self._table: Table | None = None
        self._proposed: str | None = None  # the place of a table that does not exist yet

    @property
    def name(self) -> str:
        return self.identifier

    def catalog(self, *, creates: bool = False) -> "Catalog":
        """The catalog; it is created only if something is to be written."""
        if self._opened is None or (creates and not self._opened[0]):
            self._opened = (creates, self._choice.open(creates=creates))
        return self._opened[1]

    def load(self) -> TableState | None:
        from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

        try:
            with self._choice.answering(self.identifier):
                self._table = self._load() if self._choice.exists() else None
        except (NoSuchTableError, NoSuchNamespaceError):
            self._table = None
        if self._table is None:
            return None
        text = self._table.properties.get(_STATE)
        if text is None:  # a table of ours has it from its first commit on
            raise ConfigError(
                "table", self.identifier, "is a table of something else: name another one"
            )
        return TableState.parse(text)

    def _load(self) -> "Table | None":
        if not self._choice.is_sql:
            return self.catalog().load_table(self.identifier)
        from sqlalchemy.exc import OperationalError, ProgrammingError

        try:
            return self.catalog().load_table(self.identifier)
        except ProgrammingError:
            return None  # a database without a catalog; the first commit makes one
        except OperationalError as error:
            if "no such table" in str(error.orig):  # what SQLite says of such a database
                return None
            raise

    def staging(self, run_id: str) -> str:
        location = self._new_location() if self._table is None else self._table.location()
        return f"{location.rstrip('/')}/data/cordwood-{run_id}"

    def _new_location(self) -> str:
        namespace, _, name = self.identifier.rpartition(".")
        if self._proposed is None:
            known = self._choice.location_of(namespace, name)
            if known is None:
                known = self._propose_location(namespace)
            elif has_files(f"{known}/metadata"):
                # A table of that name was renamed or dropped. Upkeep must not find its files.
                known = f"{known}-{uuid.uuid4().hex[:8]}"
            self._proposed = known
        return self._proposed

    def _propose_location(self, namespace: str) -> str:
        """Where the catalog would put the table: it is asked to prepare one, which nobody sees."""
        from pyiceberg.schema import Schema

        try:
            with self._choice.answering(self.identifier):
                catalog = self.catalog(creates=True)
                catalog.create_namespace_if_not_exists(namespace)
                staged = catalog.create_table_transaction(self.identifier, Schema())
        except ValueError as error:  # a catalog without a place of its own
            raise ConfigError(
                "table",
                self.identifier,
                "the catalog does not say where the tables of its namespace are: "
                "name a place, as in --property location=s3://bucket/lake",
            ) from error
        return staged.table_metadata.location

    def files(self) -> list[str]:
        if self._table is None:
            return []
        tasks = list(self._table.scan().plan_files())
        if any(task.delete_files for task in tasks):
            raise ConfigError("table", self.identifier, "has deleted rows: rewrite its files first")
        return [task.file.file_path for task in tasks]

    def commit(
        self,
        state: TableState,
        schema: "pa.Schema",
        *,
        run_id: str,
        added: Sequence[WrittenFile],
        removed: Sequence[str] = (),
    ) -> None:
        from pyiceberg.exceptions import (
            CommitFailedException,
            NoSuchTableError,
            TableAlreadyExistsError,
            ValidationException,
        )

        about = {"cordwood.state": state.render(), "cordwood.run": run_id}
        paths = [file.path for file in added]
        try:
            with (
                self._choice.answering(self.identifier),
                self._transaction(schema, state) as transaction,
            ):
                if self._table is not None:
                    with transaction.update_schema() as update:
                        update.union_by_name(schema)
                transaction.set_properties({_STATE: state.render()})
                if removed:
                    assert self._table is not None, "there is nothing to remove"
                    _replace(transaction, self._table, paths, frozenset(removed), about)
                elif paths:
                    transaction.add_files(
                        paths, snapshot_properties=about, check_duplicate_files=False
                    )
        except (
            CommitFailedException,
            NoSuchTableError,
            TableAlreadyExistsError,
            ValidationException,
        ) as error:
            raise TableChangedError(self.identifier, str(error)) from error
        self.load()

    def _transaction(self, schema: "pa.Schema", state: TableState) -> "Transaction":
        """A transaction on the table; it creates the table if there is none."""
        if self._table is not None:
            return self._table.transaction()
        namespace, _, _ = self.identifier.rpartition(".")
        catalog = self.catalog(creates=True)
        catalog.create_namespace_if_not_exists(namespace)
        transaction = catalog.create_table_transaction(
            self.identifier, schema, location=self._new_location(), properties=_NEW_TABLE
        )
        by = PartitionBy(state.settings.get(PARTITION_BY, PartitionBy.NONE))
        if by is not PartitionBy.NONE:
            with transaction.update_spec() as spec:
                spec.add_field(TIME_COLUMN, _transform(by), f"{TIME_COLUMN}_{by.value}")
        return transaction

    def settle(self) -> None:
        """Do nothing: a commit is one step."""

    def discard(self, run_id: str) -> None:
        """Do nothing: files that no snapshot names are not in the table. Upkeep removes them."""

    def keep_up(self, policy: UpkeepPolicy) -> dict[str, int]:
        from cordwood.spark.tables.iceberg_upkeep import expire, merge_small_files, sweep

        state = TableState.parse(self._loaded().properties[_STATE])
        added, removed, schema = merge_small_files(
            self._loaded(), policy, self.staging(uuid.uuid4().hex)
        )
        if removed:
            self.commit(state, schema, run_id="upkeep", added=added, removed=removed)
        with self._choice.answering(self.identifier):
            expired = expire(self._loaded(), policy)
        if expired:
            self.load()
        return {
            "merged_files": len(removed),
            "expired_snapshots": expired,
            "removed_files": sweep(self._loaded(), policy),
        }

    def _loaded(self) -> "Table":
        assert self._table is not None, "load it first"
        return self._table


def _replace(
    transaction: Any,
    table: "Table",
    paths: Sequence[str],
    removed: frozenset[str],
    about: Mapping[str, str],
) -> None:
    """Remove files and add others, as one snapshot."""
    from pyiceberg.io.pyarrow import parquet_files_to_data_files

    if transaction.table_metadata.name_mapping() is None:
        mapping = transaction.table_metadata.schema().name_mapping.model_dump_json()
        transaction.set_properties({"schema.name-mapping.default": mapping})
    metadata = transaction.table_metadata
    with transaction.update_snapshot(snapshot_properties=dict(about)).overwrite() as overwrite:
        for task in table.scan().plan_files():
            if task.file.file_path in removed:
                overwrite.delete_data_file(task.file)
        for file in parquet_files_to_data_files(table.io, metadata, iter(paths)):
            overwrite.append_data_file(file)


def _transform(by: PartitionBy) -> Any:
    from pyiceberg.transforms import DayTransform, HourTransform, MonthTransform

    match by:
        case PartitionBy.HOUR:
            return HourTransform()
        case PartitionBy.DAY:
            return DayTransform()
        case _:
            return MonthTransform()
