"""Which partition of which topic each row goes to.

A place is the number of one partition of one topic; a task numbers topics in the order it meets
them. The option `partitioner` chooses the hash of keys. Rows without a key go to each partition in
turn, a thousand rows at a time; tasks start at different partitions.
"""

import os
from array import array
from collections.abc import Iterable, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from cordwood.errors import (
    ConfigError,
    InvalidRecordError,
    UnknownPartitionError,
    UnknownTopicError,
)
from cordwood.format import column_kernels as kernels
from cordwood.format.batch_builder import BatchStyle
from cordwood.format.column_batches import ChosenPlaces, PlaceRule, RecordColumns
from cordwood.format.compression import Codec
from cordwood.format.file_names import INTERNAL_TOPICS, check_topic_name
from cordwood.format.staged_batches import PlaceName
from cordwood.log.rules.topic_config import TopicConfig
from cordwood.log.topics.catalog_files import read_catalog
from cordwood.log.topics.topic_catalog import TopicEntry
from cordwood.spark.sink.sink_options import SinkOptions
from cordwood.storage.files import FileSystem

_ROWS_PER_TURN: Final = 1000
_NO_INTEGERS: Final = array("i")


class RowPlaces:
    """The topics that a task writes to. For one thread."""

    def __init__(self, options: SinkOptions, fs: FileSystem, *, first_turn: int) -> None:
        self.names: list[PlaceName] = []
        self.missing: dict[str, int] = {}  # topics to create, with their partition counts
        self._options = options
        self._fs = fs
        self._catalog: dict[str, TopicEntry] | None = None
        self._numbers: dict[str, int] = {}
        self._styles: list[BatchStyle] = []  # of each topic
        self._topic_of: list[int] = []  # of each place
        self._compacted: set[str] = set()
        self._rule = PlaceRule(
            first_places=array("q"),
            partition_counts=array("q"),
            crc_table=options.partitioner.crc_table(),
            turn=first_turn * _ROWS_PER_TURN,
            rows_per_turn=_ROWS_PER_TURN,
        )

    def style_of(self, place: int) -> BatchStyle:
        """The style of the batches of a place."""
        return self._styles[self._topic_of[place]]

    def choose(
        self,
        columns: RecordColumns,
        *,
        topic: "pa.Array[Any] | None",
        partition: "pa.Array[Any] | None",
        key: "pa.Array[Any] | None",
    ) -> ChosenPlaces:
        """A place for each row of a record batch."""
        topics = self._topic_numbers(topic)
        if self._compacted:
            self._check_keys(columns, topic, key)
        places = array("i", bytes(4 * columns.count))
        given = _NO_INTEGERS if partition is None else _integers(_given(partition))
        self._rule.turn, bad = kernels.choose_places(
            columns.keys, given, topics, self._rule, places
        )
        if bad >= 0:
            assert partition is not None, bad
            name = list(self._numbers)[topics[bad] if len(topics) else 0]
            count = self._rule.partition_counts[self._numbers[name]]
            raise UnknownPartitionError(name, partition[bad].as_py(), count=count)
        return ChosenPlaces(places, len(self.names))

    # --- topics ------------------------------------------------------------------------------

    def _topic_numbers(self, column: "pa.Array[Any] | None") -> "array[int] | memoryview":
        """The number of each row's topic; empty if all rows belong to the first topic."""
        if self._options.topic is not None:
            self._number(self._options.topic)
            return _NO_INTEGERS
        assert column is not None, self._options
        if column.null_count:
            raise InvalidRecordError(
                "a row has no topic; set the option topic, or fill the column topic"
            )
        encoded: Any = column.dictionary_encode()
        numbers = pa.array([self._number(name.as_py()) for name in encoded.dictionary], pa.int32())
        return _integers(pc.take(numbers, encoded.indices))

    def _number(self, topic: str) -> int:
        number = self._numbers.get(topic)
        return self._meet(topic) if number is None else number

    def _meet(self, topic: str) -> int:
        check_topic_name(topic)
        if topic in INTERNAL_TOPICS:
            raise ConfigError("topic", topic, "is internal to the store")
        entry = self._entries().get(topic)
        if entry is None and self._options.partitions is None:
            raise missing_topic(self._options, topic, self._entries())
        if entry is None:
            assert self._options.partitions is not None
            self.missing[topic] = self._options.partitions
        config = TopicConfig.parse({} if entry is None else entry.config)
        count = self.missing[topic] if entry is None else entry.partitions
        number = len(self._numbers)
        self._numbers[topic] = number
        self._styles.append(self._style(config))
        self._rule.first_places.append(len(self.names))
        self._rule.partition_counts.append(count)
        self.names += [(topic, partition) for partition in range(count)]
        self._topic_of += [number] * count
        if config.is_compacted:
            self._compacted.add(topic)
        return number

    def _entries(self) -> dict[str, TopicEntry]:
        if self._catalog is None:
            self._catalog = live_topics(self._fs, self._options.paths)
        return self._catalog

    def _style(self, config: TopicConfig) -> BatchStyle:
        codec = config.codec if config.codec is not None else self._options.codec
        return BatchStyle(
            bytes_max=min(config.max_message_bytes, config.segment_bytes_effective),
            codec=codec or Codec.NONE,
            level=config.compression_level if config.codec is not None else None,
        )

    def _check_keys(
        self,
        columns: RecordColumns,
        topic: "pa.Array[Any] | None",
        key: "pa.Array[Any] | None",
    ) -> None:
        if columns.keys.nulls == 0 and len(columns.keys.words) == 2 * columns.count:
            return
        keyless = self._compacted
        if self._options.topic is None:
            assert topic is not None, self._options
            rows = topic if key is None else topic.filter(key.is_null())
            keyless = self._compacted.intersection(pc.unique(rows).to_pylist())
        if keyless:
            raise InvalidRecordError(
                f"topic {sorted(keyless)[0]!r} is compacted, and a row for it has no key: a "
                "compacted topic keeps the newest record of each key"
            )


def live_topics(fs: FileSystem, paths: Sequence[str]) -> dict[str, TopicEntry]:
    """The topics in a store's catalog; none if the store does not exist yet."""
    catalog = read_catalog(fs, paths)
    if catalog is None:
        return {}
    return dict(catalog.topics)


def missing_topic(options: SinkOptions, topic: str, known: Iterable[str]) -> UnknownTopicError:
    """The error for a topic that is not among the `known` ones of the store."""
    error = UnknownTopicError(topic, known=known)
    where = options.path if os.path.isdir(options.path) else f"{options.path}, which does not exist"
    error.add_note(
        f"in {where}; create it (`cordwood topics create {topic} --at {options.path}`), or set "
        'option("partitions", 1) to have it created by the write'
    )
    return error


def _given(partition: "pa.Array[Any]") -> "pa.Array[Any]":
    """The partitions that rows name; -1 for a row that names none."""
    smallest = pc.min(partition).as_py()
    if smallest is not None and smallest < 0:
        raise InvalidRecordError(f"a row names partition {smallest}")
    filled: Any = partition
    return filled.fill_null(-1) if partition.null_count else filled  # type: ignore[no-any-return]


def _integers(column: "pa.Array[Any]") -> "array[int] | memoryview":
    buffer = column.buffers()[1]
    if buffer is None:
        return _NO_INTEGERS
    start = 4 * column.offset
    return memoryview(buffer).cast("B")[start : start + 4 * len(column)].cast("i")
