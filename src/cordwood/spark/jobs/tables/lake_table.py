"""A table outside of the log that stores which offsets it holds.

The table stores the offsets, with the ids of their topics, and changes them in the same commit as
its rows, so rows and offsets always agree. Three kinds of table guarantee that in different ways:
see `parquet_table`, `delta_table` and `iceberg_table`.
"""

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

from cordwood.errors import FormatError
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
_VERSION: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class TableState:
    """What a table holds of its source.

    offsets    by topic and partition: the first offset that is not in the table
    topic_ids  the ids of the topics: a recreated topic is another topic
    settings   chosen when the table was created, and constant
    """

    offsets: Mapping[TopicPartition, int] = field(default_factory=dict)
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)

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
    """A Parquet file that a task has written. `path` is absolute, or a URL."""

    path: str
    size: int
    rows: int

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]


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

        Raises `TableChangedError`, without a change, if the table has changed since `load`.
        """
        ...

    def settle(self) -> None:
        """Finish the clean-up of a commit that was killed after it took effect."""
        ...

    def discard(self, run_id: str) -> None:
        """Remove files that a run staged and did not commit, if that is safe."""
        ...
