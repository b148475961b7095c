"""The Iceberg catalog that a command names: SQLite, or by properties REST, Hive, Glue, SQL.

    --warehouse DIR                                              SQLite, in the directory
    --warehouse URL --property uri=sqlite:////srv/catalog.db     SQLite or PostgreSQL, in that place
    --property uri=http://host:8181 [--warehouse NAME]           a REST catalog
    --property uri=thrift://host:9083 --warehouse URL            Hive's metastore
    --property type=glue --warehouse s3://bucket/lake            AWS Glue
    --property catalog=NAME                                      one of pyiceberg's configuration

Properties are pyiceberg's own. A catalog is made only by the first commit: reading creates nothing.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlsplit

from cordwood.errors import CatalogUnreachableError, ConfigError
from cordwood.value_class import dataclass, field

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

_NAME: Final = "cordwood"
_FILE: Final = "catalog.db"
_SQL: Final = frozenset({"sqlite", "postgresql"})


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogChoice:
    """Which catalog, and where its tables are."""

    warehouse: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if "uri" in self.properties or "type" in self.properties or "catalog" in self.properties:
            return
        if self.warehouse is None or urlsplit(directory_url(self.warehouse)).scheme != "file":
            raise ConfigError(
                "warehouse",
                self.warehouse,
                "is not a local directory: name a catalog, as in --property uri=sqlite:///cat.db",
            )

    @property
    def is_sql(self) -> bool:
        uri = self.properties.get("uri")
        if self.properties.get("type") is not None or "catalog" in self.properties:
            return self.properties.get("type") == "sql"
        return uri is None or uri.partition(":")[0].partition("+")[0] in _SQL

    @property
    def sqlite_path(self) -> str | None:
        """The file of a SQLite catalog; None for any other."""
        uri = self.properties.get("uri")
        if uri is None:
            if not self.is_sql or self.warehouse is None:
                return None
            return os.path.join(_local(directory_url(self.warehouse)), _FILE)
        prefix, found, path = uri.partition("?")[0].partition(":///")
        is_file = found and prefix.partition("+")[0] == "sqlite" and path
        return os.path.abspath(path) if is_file else None

    def location_of(self, namespace: str, name: str) -> str | None:
        """Where a new table is put; None if the catalog decides."""
        given = self.properties.get("location")
        if given is not None:
            return f"{directory_url(given)}/{namespace}.db/{name}"
        has_place = self.warehouse is not None and (self.is_sql or "/" in self.warehouse)
        return f"{directory_url(self.warehouse or '')}/{namespace}.db/{name}" if has_place else None

    def exists(self) -> bool:
        """Whether there is anything to read; True for a server, which is asked."""
        path = self.sqlite_path
        return path is None or os.path.exists(path)

    @contextmanager
    def answering(self, table: str) -> Iterator[None]:
        """Within, the failure of a catalog's server or file is a `CatalogUnreachableError`."""
        from pyiceberg.exceptions import RESTError
        from requests.exceptions import RequestException

        failures: tuple[type[Exception], ...] = (RESTError, RequestException)
        if self.is_sql:
            from sqlalchemy.exc import SQLAlchemyError

            failures += (SQLAlchemyError,)
        try:
            yield
        except failures as error:
            named = self.properties.get("uri") or self.properties.get("catalog")
            where = named or self.sqlite_path or "a server"
            parts = urlsplit(where)
            if parts.password is not None:
                where = where.replace(f"{parts.username}:{parts.password}@", "")
            raise CatalogUnreachableError(table, where, _first_line(error)) from error

    def open(self, *, creates: bool) -> "Catalog":
        """The catalog. Without `creates` nothing is made, not even an empty file."""
        try:
            from pyiceberg.catalog import load_catalog
        except ImportError as error:
            raise ConfigError(
                "format", "iceberg", "needs the package pyiceberg: pip install 'cordwood[lake]'"
            ) from error
        properties: dict[str, Any] = dict(self.properties)
        name = properties.pop("catalog", _NAME)
        properties.pop("location", None)
        if self.is_sql:
            properties.setdefault("type", "sql")
            if "uri" not in properties:
                path = self.sqlite_path
                assert path is not None
                if creates:
                    os.makedirs(os.path.dirname(path), exist_ok=True)
                properties["uri"] = f"sqlite:///{path}"
            properties["init_catalog_tables"] = str(creates).lower()
        if self.warehouse is not None:
            is_place = self.is_sql or "/" in self.warehouse
            place = directory_url(self.warehouse) if is_place else self.warehouse
            properties.setdefault("warehouse", place)
        return load_catalog(name, **properties)


def _first_line(error: Exception) -> str:
    text = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def directory_url(place: str) -> str:
    """A directory as a URL."""
    if urlsplit(place).scheme:
        return place.rstrip("/")
    return f"file://{os.path.abspath(place)}"


def _local(url: str) -> str:
    return unquote(urlsplit(url).path)
