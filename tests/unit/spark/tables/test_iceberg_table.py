"""An Iceberg table that this job did not make is left alone."""

import contextlib
import sqlite3
from pathlib import Path

import pyarrow as pa
import pytest

from cordwood.errors import CatalogUnreachableError, ConfigError, TableChangedError
from cordwood.spark.tables.iceberg_table import IcebergTable
from cordwood.spark.tables.lake_table import TableState

pytest.importorskip("pyiceberg")

SCHEMA = pa.schema([("offset", pa.int64())])
STATE = TableState(offsets={("orders", 0): 3}, topic_ids={"orders": "an id"})


def table_in(path: Path) -> IcebergTable:
    return IcebergTable("lake.orders", warehouse=str(path))


def test_a_table_of_something_else_is_refused(tmp_path: Path) -> None:
    foreign = table_in(tmp_path)
    foreign.catalog(creates=True).create_namespace("lake")
    foreign.catalog(creates=True).create_table("lake.orders", SCHEMA)

    with pytest.raises(ConfigError, match="is a table of something else"):
        table_in(tmp_path).load()


def test_a_table_that_lost_its_offsets_is_refused(tmp_path: Path) -> None:
    table = table_in(tmp_path)
    assert table.load() is None
    table.commit(STATE, SCHEMA, run_id="first", added=[])
    assert table_in(tmp_path).load() == STATE
    found = table.catalog().load_table("lake.orders")
    with found.transaction() as transaction:
        transaction.remove_properties("cordwood.state")

    with pytest.raises(ConfigError, match="is a table of something else"):
        table_in(tmp_path).load()


def test_a_table_made_by_another_run_meanwhile_is_not_written_to(tmp_path: Path) -> None:
    stale, other = table_in(tmp_path), table_in(tmp_path)
    assert stale.load() is None
    assert other.load() is None
    other.commit(STATE, SCHEMA, run_id="other", added=[])

    with pytest.raises(TableChangedError):
        stale.commit(TableState(), SCHEMA, run_id="stale", added=[])

    assert table_in(tmp_path).load() == STATE


def test_a_table_that_was_renamed_keeps_its_place_to_itself(tmp_path: Path) -> None:
    first = table_in(tmp_path)
    first.load()
    first.commit(STATE, SCHEMA, run_id="first", added=[])
    first.catalog().rename_table("lake.orders", "lake.old")

    second = table_in(tmp_path)
    assert second.load() is None
    second.commit(STATE, SCHEMA, run_id="second", added=[])

    places = [first.catalog().load_table(name).location() for name in ("lake.old", "lake.orders")]
    assert places[0] != places[1]
    assert second.staging("third").startswith(f"{places[1]}/data/")


def test_a_catalog_that_is_locked_or_no_database_is_unreachable_and_not_empty(
    tmp_path: Path,
) -> None:
    table = table_in(tmp_path)
    table.load()
    table.commit(STATE, SCHEMA, run_id="first", added=[])
    properties = {"uri": f"sqlite:///{tmp_path / 'catalog.db'}?timeout=0"}
    other = IcebergTable("lake.orders", warehouse=str(tmp_path), properties=properties)
    with contextlib.closing(sqlite3.connect(tmp_path / "catalog.db")) as connection:
        connection.execute("BEGIN EXCLUSIVE")
        with pytest.raises(CatalogUnreachableError, match="database is locked"):
            other.load()
        connection.rollback()
    assert table_in(tmp_path).load() == STATE

    (tmp_path / "catalog.db").write_bytes(b"no database" * 100)
    with pytest.raises(CatalogUnreachableError, match="not a database"):
        table_in(tmp_path).load()
