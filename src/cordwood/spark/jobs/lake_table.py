"""A table outside of the log that knows which offsets it holds.

The offsets, with the ids of the topics they belong to, are kept in the table and change in the
same commit as its rows: a table never has rows it does not know of, nor the other way round.
Three kinds of table promise that, each in its own way: see `parquet_table`, `delta_table` and
`iceberg_table`.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol

from cordwood.errors import FormatError
from cordwood.spark.source.stream_offsets import StreamOffset
from cordwood.spark.source.topic_choice import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

# Of a table of records, in its order.
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

    offsets    by topic and partition: the first that is not in it
    topic_ids  which topics of those names are meant: a topic made anew is another one
    settings   what was chosen when the table was made, and does not change
    """

    offsets: Mapping[TopicPartition, int] = field(default_factory=dict)
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)

    def starting_offsets(self) -> str:
        """What `startingOffsets` must be for a query to go on where the table ends."""
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
        """Raises `FormatError` for what `render` never made."""
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
            raise FormatError(f"the offsets kept in the table cannot be read: {error}") from error


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
    """One table. For one thread of the driver; tasks only get to know where to put files."""

    @property
    def name(self) -> str:
        """For messages."""
        ...

    def load(self) -> TableState | None:
        """What it holds; None when there is no such table. Every commit builds on the last load."""
        ...

    def staging(self, run_id: str) -> str:
        """The directory, or its URL, into which tasks of a run put their files."""
        ...

    def files(self) -> list[str]:
        """Paths or URLs of the files that make up the table as it was loaded."""
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
        """Add and remove files and set the state, all at once; makes the table if there is none.

        Raises `TableChangedError`, and nothing is changed, if someone else did since `load`.
        """
        ...

    def settle(self) -> None:
        """Finish what a commit that was killed had still to do once it counted."""
        ...

    def discard(self, run_id: str) -> None:
        """Remove what tasks of a run staged and what was not committed, where that is safe."""
        ...
