"""Which catalog a command names, and that looking at it creates nothing."""

from pathlib import Path

import pytest

from cordwood.errors import ConfigError
from cordwood.spark.tables.iceberg_catalog import CatalogChoice
from cordwood.spark.tables.iceberg_table import IcebergTable


@pytest.mark.parametrize(
    ("warehouse", "properties", "is_sql", "location"),
    [
        ("/lake", {}, True, "file:///lake/shop.db/orders"),
        ("s3://b/lake", {"uri": "sqlite:////srv/c.db"}, True, "s3://b/lake/shop.db/orders"),
        ("s3://b/l", {"uri": "postgresql://h/db"}, True, "s3://b/l/shop.db/orders"),
        ("prod", {"uri": "http://host:8181"}, False, None),
        (None, {"uri": "http://host:8181"}, False, None),
        (None, {"uri": "http://h", "location": "s3://b/x"}, False, "s3://b/x/shop.db/orders"),
        ("s3://b/lake", {"uri": "thrift://host:9083"}, False, "s3://b/lake/shop.db/orders"),
        ("s3://b/lake", {"type": "glue"}, False, "s3://b/lake/shop.db/orders"),
        (None, {"catalog": "prod"}, False, None),
    ],
)
def test_properties_name_a_catalog(
    warehouse: str | None, properties: dict[str, str], is_sql: bool, location: str | None
) -> None:
    choice = CatalogChoice(warehouse=warehouse, properties=properties)

    assert choice.is_sql == is_sql
    assert choice.location_of("shop", "orders") == location


def test_a_warehouse_in_object_storage_needs_a_catalog() -> None:
    with pytest.raises(ConfigError, match="name a catalog"):
        CatalogChoice(warehouse="s3://bucket/lake")


def test_looking_for_a_table_creates_nothing(tmp_path: Path) -> None:
    in_warehouse = IcebergTable("lake.orders", warehouse=str(tmp_path / "warehouse"))
    elsewhere = IcebergTable(
        "lake.orders",
        warehouse=str(tmp_path / "warehouse"),
        properties={"uri": f"sqlite:///{tmp_path}/catalog.db"},
    )

    assert in_warehouse.load() is None
    assert elsewhere.load() is None
    assert list(tmp_path.iterdir()) == []
