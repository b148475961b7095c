"""An Iceberg table, written with `pyiceberg`, without a JVM or a jar; by default in SQLite.

Tasks write the files. The driver registers them in one transaction, which also creates the table
the first time and stores the offsets in its properties, where they survive the expiry of snapshots.
Each snapshot has them too. A commit builds on the loaded snapshot: pyiceberg's own retries, which
would build on a later one, are not used.
"""

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from cordwood.errors import ConfigError, TableChangedError
from cordwood.spark.jobs.tables.lake_table import TableState, WrittenFile

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table, Transaction

_STATE: Final = "cordwood.state"
_NO_RETRIES: Final = {"commit.retry.num-retries": "0"}
_CATALOG: Final = "cordwood"
_CATALOG_FILE: Final = "catalog.db"


class IcebergTable:
    """A `LakeTable` in Iceberg.

    `identifier` is namespace and name, separated by dots. `properties` are those of the catalog; if
    they name none, it is a SQLite file in the warehouse.
    """

    def __init__(
        self, identifier: str, *, warehouse: str, properties: Mapping[str, str] | None = None
    ) -> None:
        if "." not in identifier:
            raise ConfigError("table", identifier, "must be a namespace and a name: lake.orders")
        self.identifier = identifier
        self._catalog = _open_catalog(warehouse, dict(properties or {}))
        self._warehouse = warehouse
        self._table: Table | None = None

    @property
    def name(self) -> str:
        return self.identifier

    def load(self) -> TableState | None:
        from pyiceberg.exceptions import NoSuchTableError

        try:
            self._table = self._catalog.load_table(self.identifier)
        except NoSuchTableError:
            self._table = None
            return None
        text = self._table.properties.get(_STATE)
        if text is None:  # a table of ours has it from its first commit on
            raise ConfigError(
                "table", self.identifier, "is a table of something else: name another one"
            )
        return TableState.parse(text)

    def staging(self, run_id: str) -> str:
        location = self._default_location() if self._table is None else self._table.location()
        return f"{location.rstrip('/')}/data/cordwood-{run_id}"

    def _default_location(self) -> str:
        namespace, _, name = self.identifier.rpartition(".")
        return f"{_url(self._warehouse)}/{namespace}.db/{name}"

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
            with self._transaction(schema) as transaction:
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

    def _transaction(self, schema: "pa.Schema") -> "Transaction":
        """A transaction on the table; it creates the table if there is none."""
        if self._table is not None:
            return self._table.transaction()
        namespace, _, _ = self.identifier.rpartition(".")
        self._catalog.create_namespace_if_not_exists(namespace)
        return self._catalog.create_table_transaction(
            self.identifier,
            schema,
            location=self._default_location(),
            properties=_NO_RETRIES,
        )

    def settle(self) -> None:
        """Do nothing: a commit is one step."""

    def discard(self, run_id: str) -> None:
        """Do nothing: files that no snapshot names are not in the table."""


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


def _open_catalog(warehouse: str, properties: dict[str, str]) -> "Catalog":
    try:
        from pyiceberg.catalog import load_catalog
    except ImportError as error:
        raise ConfigError(
            "format", "iceberg", "needs the package pyiceberg: pip install 'cordwood[lake]'"
        ) from error
    url = _url(warehouse)
    if "uri" not in properties:
        if urlsplit(url).scheme != "file":
            raise ConfigError(
                "warehouse",
                warehouse,
                "is not a local directory: name a catalog, as in --property uri=sqlite:///cat.db",
            )
        directory = urlsplit(url).path
        os.makedirs(directory, exist_ok=True)
        properties["uri"] = f"sqlite:///{os.path.join(directory, _CATALOG_FILE)}"
    if properties["uri"].partition(":")[0].partition("+")[0] in {"sqlite", "postgresql"}:
        properties.setdefault("type", "sql")
    return load_catalog(_CATALOG, **{"warehouse": url, **properties})


def _url(warehouse: str) -> str:
    if urlsplit(warehouse).scheme:
        return warehouse.rstrip("/")
    return f"file://{os.path.abspath(warehouse)}"
