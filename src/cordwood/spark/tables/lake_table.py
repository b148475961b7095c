"""A table outside of the log that stores which offsets it holds.

The table stores the offsets, with the ids of their topics, and changes them in the same commit as
its rows, so rows and offsets always agree. Three kinds of table guarantee that in different ways:
see `parquet_table`, `delta_table` and `iceberg_table`.
"""

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

from cordwood.errors import ConfigError, FormatError
from cordwood.quantities import MIB
from cordwood.spark.source.stream_offsets import StreamOffset
from cordwood.spark.source.topic_choice import TopicPartition
from cordwood.value_class import dataclass, field

if TYPE_CHECKING:
    import pyarrow as pa

# The columns of a table of records, in order.
TABLE_COLUMNS: Final = (
    "topic",
    "partition",
    "offset",
    "timestamp",
    "timestampType",
    "key",
    "value",
    "headers",
)
PARTITION_BY: Final = "partition_by"  # a setting
BUCKETS: Final = "buckets"  # a setting that only tables with a row for each key have
_VERSION: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class TableState:
    """What a table holds of its source.

    offsets    by topic and partition: the first offset that is not in the table
    topic_ids  the ids of the topics: a recreated topic is another topic
    settings   how its rows are decoded and divided; a commit may change them
    """

    offsets: Mapping[TopicPartition, int] = field(default_factory=dict)
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)

    def check_records(self, table: str) -> None:
        """Raise `ConfigError` if the table has a row for each key, not for each record."""
        if BUCKETS in self.settings:
            rule = "has one row for each key, from `materialize`; choose another table"
            raise ConfigError("table", table, rule)

    def check_keys(self, table: str) -> None:
        """Raise `ConfigError` if the table has a row for each record, not for each key."""
        if self.offsets and BUCKETS not in self.settings:
            rule = "has one row for each record, from `export`; choose another table"
            raise ConfigError("table", table, rule)

    def starting_offsets(self) -> str:
        """The value of `startingOffsets` for a query that continues where the table ends."""
        found = StreamOffset(positions=self.offsets, topic_ids=self.topic_ids)
        return json.dumps(found.to_json())

    def render(self) -> str:
        found = StreamOffset(positions=self.offsets, topic_ids=self.topic_ids)
        return json.dumps(
            {"version": _VERSION, "offsets": found.to_json(), "settings": dict(self.settings)},
            sort_keys=True,
        )

    @classmethod
    def parse(cls, text: str) -> "TableState":
        """Raises `FormatError` for a text that `render` cannot have made."""
        try:
            found: Any = json.loads(text)
            if found["version"] != _VERSION:
                raise ValueError(f"version {found['version']!r} is not {_VERSION}")
            offsets = StreamOffset.from_json(found["offsets"])
            return cls(
                offsets=offsets.positions,
                topic_ids=offsets.topic_ids,
                settings={str(key): str(value) for key, value in found["settings"].items()},
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise FormatError(f"the offsets stored in the table cannot be read: {error}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenFile:
    """A Parquet file that a task has written. `path` is absolute, or a URL.

    partition  the unit of time of its rows; None if the table is not divided by time
    """

    path: str
    size: int
    rows: int
    partition: str | None = None

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class UpkeepPolicy:
    """What upkeep does to a table.

    small_bytes     files smaller than this are merged, if a partition has several
    file_bytes      into files of about this size
    expire_ms       versions older than this are forgotten; readers of older ones fail
    leftover_ms     files that no version names are removed if they are older than this: a run in
                    progress has such files
    """

    small_bytes: int = 64 * MIB
    file_bytes: int = 256 * MIB
    expire_ms: int = 5 * 24 * 3600 * 1000
    leftover_ms: int = 3 * 24 * 3600 * 1000

    def __post_init__(self) -> None:
        for name, value in (
            ("small bytes", self.small_bytes),
            ("file bytes", self.file_bytes),
            ("expire ms", self.expire_ms),
            ("leftover ms", self.leftover_ms),
        ):
            if value < 0:
                raise ConfigError(f"upkeep {name}", value, "must not be negative")


class LakeTable(Protocol):
    """One table. For one thread of the driver; tasks only know the directory of its files."""

    @property
    def name(self) -> str:
        """The name of the table in messages."""
        ...

    def load(self) -> TableState | None:
        """The state of the table; None if it does not exist. A commit builds on the last load."""
        ...

    def staging(self, run_id: str) -> str:
        """The directory or URL into which the tasks of a run write their files."""
        ...

    def files(self) -> list[str]:
        """Paths or URLs of the files of the table at the last load."""
        ...

    def commit(
        self,
        state: TableState,
        schema: "pa.Schema",
        *,
        run_id: str,
        added: Sequence[WrittenFile],
        removed: Sequence[str] = (),
    ) -> None:
        """Add and remove files and set the state atomically; create the table if there is none.

        Columns of `schema` that the table lacks are added, and types widened, in the same step or
        before it.

        Raises `TableChangedError`, without a change, if the table has changed since `load`.
        """
        ...

    def settle(self) -> None:
        """Finish the clean-up of a commit that was killed after it took effect."""
        ...

    def discard(self, run_id: str) -> None:
        """Remove files that a run staged and did not commit, if that is safe."""
        ...

    def keep_up(self, policy: "UpkeepPolicy") -> dict[str, int]:
        """Merge small files, expire old versions, remove leftovers; return what was done.

        The rows and the state stay the same. Call it after `load`, which it repeats at the end.
        """
        ...
