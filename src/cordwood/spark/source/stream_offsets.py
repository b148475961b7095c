"""The position of a stream, as Spark writes it into the checkpoint.

    {"orders": {"0": 23, "1": 5}, "@ids": {"orders": "PZ9f…"},
     "@marks": {"orders": {"0": "0:22:00c0ffee", "1": "0:0:1f2e3d4c"}}}

The offsets are those of the next records, in the form of Spark's Kafka source. A topic name cannot
contain "@", so our additions have such names:

    @ids       the id of each topic, to detect a recreated topic
    @initial   true if the stream has read nothing yet
    @from      in the end of the first batch: the offsets at which it starts
    @marks     for each partition, which batch ends before the offset: see `position_mark`

Why `@from`: if Spark must replay the first batch in a new process, it asks for the initial offset
again and does not say where its checkpoint is. "latest" would then be a later offset, and records
appended in between would be lost. So the end of the batch, which Spark does keep, also holds its
start.

Spark compares offsets as text, so topics and partitions are always sorted.
"""

from collections.abc import Mapping
from typing import Any, Final

from cordwood.errors import FormatError
from cordwood.quantities import INT32_MAX, INT64_MAX
from cordwood.spark.source.topic_choice import TopicPartition
from cordwood.value_class import dataclass, field

SPECIAL_PREFIX: Final = "@"
_IDS: Final = "@ids"
_INITIAL: Final = "@initial"
_FROM: Final = "@from"
_MARKS: Final = "@marks"


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamOffset:
    """A position in every partition of a stream."""

    positions: Mapping[TopicPartition, int]
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    is_initial: bool = False
    first: Mapping[TopicPartition, int] | None = None
    marks: Mapping[TopicPartition, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """The form that Spark stores. Equal offsets give equal text."""
        found: dict[str, Any] = _render_places(self.positions)
        if self.first is not None:
            found[_FROM] = _render_places(self.first)
        if self.topic_ids:
            found[_IDS] = {topic: self.topic_ids[topic] for topic in sorted(self.topic_ids)}
        if self.is_initial:
            found[_INITIAL] = True
        if self.marks:
            found[_MARKS] = _render_places(self.marks)
        return found

    @classmethod
    def from_json(cls, found: Any) -> "StreamOffset":
        """Raises `FormatError` for a value that `to_json` cannot have made."""
        try:
            if not isinstance(found, Mapping):
                raise ValueError("it must be an object of topics")
            topics = {name: value for name, value in found.items() if not name.startswith("@")}
            ids, first = found.get(_IDS, {}), found.get(_FROM)
            if not isinstance(ids, dict) or not all(isinstance(v, str) for v in ids.values()):
                raise ValueError(f"{_IDS} must hold a text for each topic")
            return cls(
                positions=cls.parse_positions(topics),
                topic_ids=ids,
                is_initial=bool(found.get(_INITIAL, False)),
                first=None if first is None else cls.parse_positions(first),
                marks=_parse_marks(found.get(_MARKS, {})),
            )
        except ValueError as error:
            raise FormatError(
                f"the checkpoint's offset {found} is not one of this source: {error}"
            ) from error

    @staticmethod
    def parse_positions(found: object, *, minimum: int = 0) -> dict[TopicPartition, int]:
        """Offsets by topic and partition; raises ValueError for anything else."""
        if not isinstance(found, dict):
            raise ValueError("offsets must be an object of topics")
        positions: dict[TopicPartition, int] = {}
        for topic, offsets in found.items():
            if not isinstance(offsets, dict) or not offsets:
                raise ValueError(f"{topic!r} must hold an offset for each partition")
            for number, offset in offsets.items():
                if not number.isdecimal() or int(number) > INT32_MAX:
                    raise ValueError(f"unknown partition {number!r}")
                if isinstance(offset, bool) or not isinstance(offset, int):
                    raise ValueError(f"{offset!r} is not an offset")
                if not minimum <= offset <= INT64_MAX:
                    raise ValueError(f"invalid offset {offset}")
                positions[topic, int(number)] = offset
        return positions


def _render_places(values: Mapping[TopicPartition, int | str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for topic, number in sorted(values):
        found.setdefault(topic, {})[str(number)] = values[topic, number]
    return found


def _parse_marks(found: object) -> dict[TopicPartition, str]:
    if not isinstance(found, dict) or not all(isinstance(v, dict) for v in found.values()):
        raise ValueError(f"{_MARKS} must be an object of topics")
    return {
        (topic, int(number)): str(mark)
        for topic, marks in found.items()
        for number, mark in marks.items()
    }
