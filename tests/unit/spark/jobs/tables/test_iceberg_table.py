"""An Iceberg table that this job did not make is left alone."""

from pathlib import Path

import pyarrow as pa
import pytest

from cordwood.errors import ConfigError, TableChangedError
from cordwood.spark.jobs.tables.iceberg_table import IcebergTable
from cordwood.spark.jobs.tables.lake_table import TableState

pytest.importorskip("pyiceberg")

SCHEMA = pa.schema([("offset", pa.int64())])
STATE = TableState(offsets={("orders", 0): 3}, topic_ids={"orders": "an id"})


def table_in(path: Path) -> IcebergTable:
    return IcebergTable("lake.orders", warehouse=str(path))


def test_a_table_of_something_else_is_refused(tmp_path: Path) -> None:
    foreign = table_in(tmp_path)
    foreign._catalog.create_namespace("lake")
    foreign._catalog.create_table("lake.orders", SCHEMA)

    with pytest.raises(ConfigError, match="is a table of something else"):
        table_in(tmp_path).load()


def test_a_table_that_lost_its_offsets_is_refused(tmp_path: Path) -> None:
    table = table_in(tmp_path)
    assert table.load() is None
    table.commit(STATE, SCHEMA, run_id="first", added=[])
    assert table_in(tmp_path).load() == STATE
    found = table._catalog.load_table("lake.orders")
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
