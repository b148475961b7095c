"""The table that a job writes to, as the command line names it."""

import os
from collections.abc import Mapping
from enum import StrEnum
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from cordwood.errors import ConfigError
from cordwood.spark.tables.lake_table import LakeTable
from cordwood.value_class import dataclass, field

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class TableFormat(StrEnum):
    """The kinds of table."""

    PARQUET = "parquet"
    DELTA = "delta"
    ICEBERG = "iceberg"

    @property
    def can_widen(self) -> bool:
        """Whether a column's type may become wider while its files stay as they are."""
        return self is TableFormat.ICEBERG


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeTarget:
    """A table by its name.

    table       a directory or URL for Parquet and Delta, namespace.name for Iceberg
    warehouse   where an Iceberg catalog stores its tables; a catalog server may know it itself
    properties  of the Iceberg catalog, or of Delta's object store
    """

    format: TableFormat
    table: str
    warehouse: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.table.strip():
            raise ConfigError("table", self.table, "must be the name of a table")
        is_iceberg = self.format is TableFormat.ICEBERG
        has_catalog = self.properties.keys() & {"uri", "type", "catalog"}
        if is_iceberg and self.warehouse is None and not has_catalog:
            raise ConfigError(
                "warehouse",
                "",
                "is required for an Iceberg table: a directory or a URL, or name a catalog, as in "
                "--property uri=http://host:8181",
            )
        if not is_iceberg and self.warehouse is not None:
            raise ConfigError("warehouse", self.warehouse, f"is not for {self.format} tables")

    def open(self, *, replaces: bool = False) -> LakeTable:
        """The table, which may not exist yet. With `replaces` commits may remove files."""
        match self.format:
            case TableFormat.PARQUET:
                from cordwood.spark.tables.parquet_table import ParquetTable

                return ParquetTable(self.table, replaces=replaces)
            case TableFormat.DELTA:
                from cordwood.spark.tables.delta_table import DeltaLakeTable

                return DeltaLakeTable(_absolute(self.table), storage=self.properties)
            case TableFormat.ICEBERG:
                from cordwood.spark.tables.iceberg_table import IcebergTable

                return IcebergTable(
                    self.table, warehouse=self.warehouse, properties=self.properties
                )

    def obstacles(self) -> tuple[str, ...]:
        """What would keep a run from writing, as far as that can be seen without writing."""
        place = self.warehouse if self.format is TableFormat.ICEBERG else self.table
        parts = urlsplit(place or "")
        if parts.scheme not in {"", "file"} or not place:
            return ()
        path = os.path.abspath(unquote(parts.path) if parts.scheme else place)
        while not os.path.exists(path) and os.path.dirname(path) != path:
            path = os.path.dirname(path)
        if not os.path.isdir(path):
            return (f"{path} is not a directory",)
        if not os.access(path, os.W_OK | os.X_OK):
            return (f"{path} cannot be written to",)
        return ()

    def beside(self, suffix: str) -> "LakeTarget":
        """The table of that name with a suffix, in the same place."""
        return LakeTarget(
            format=self.format,
            table=self.table.rstrip("/") + suffix,
            warehouse=self.warehouse,
            properties=self.properties,
        )


def read_files(spark: "SparkSession", paths: list[str]) -> "DataFrame":
    """The rows of the Parquet files of a table, at least one file."""
    return spark.read.parquet(*(_for_spark(path) for path in paths))


def _for_spark(path: str) -> str:
    return "s3a" + path.removeprefix("s3") if path.startswith("s3://") else path


def _absolute(path: str) -> str:
    return path if urlsplit(path).scheme else os.path.abspath(path)
