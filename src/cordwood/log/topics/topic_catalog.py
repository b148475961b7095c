"""The topics of a store: names, ids, partition counts, configurations. Pure; see `catalog_files`.

The catalog is a value that changes as a whole. A `CatalogChange` says what one request changes,
for any number of topics, and is one line on disk:

    {"put": {"orders": {"id": ..., "partitions": 3, "begun": [], "config": {...}}}}
    {"delete": ["orders"]}          its directories must go
    {"begin": {"orders": [2]}}      partition 2 is about to acknowledge its first records
    {"doom": {"<id>": "orders"}}    directories with this id must go, unless the topic is put
    {"forget": ["<id>"]}            they are gone

A topic exists from the line that puts it to the line that deletes it. Its directories follow:

* A partition that has not begun has no records. If a power cut took its directory, it is made
  again. If the directory of a partition that has begun is missing, the partition is offline.
* A partition that is absent is on other brokers of a cluster. If it has a directory, that is left
  over from a move, and is removed.
* A directory with the id of a deleted topic is removed, whenever it is found.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final
from uuid import UUID

from cordwood.errors import FormatError
from cordwood.format.file_names import check_topic_name
from cordwood.format.small_files.partition_metadata import decode_topic_id, encode_topic_id
from cordwood.quantities import INT32_MAX
from cordwood.value_class import dataclass, field, replace

_MALFORMED: Final = (ValueError, TypeError, KeyError, AttributeError, RecursionError)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicEntry:
    """One topic. `config` holds only the keys that were set for the topic, as text.

    Bit n of `begun` says that partition n has begun: it has, or had, records on the disk.
    Bit n of `absent` says that other brokers of the cluster have partition n, and this one not.
    `is_adopted` says that another broker wrote the topic before it was ours.
    """

    name: str
    topic_id: UUID
    partitions: int
    config: Mapping[str, str]
    begun: int = 0
    is_adopted: bool = False
    absent: int = 0

    def is_here(self, number: int) -> bool:
        """Whether this broker has, or should have, files of the partition."""
        return not self.absent >> number & 1

    def has_begun(self, number: int) -> bool:
        return bool(self.begun >> number & 1)

    def with_begun(self, numbers: Iterable[int]) -> "TopicEntry":
        begun = self.begun
        for number in numbers:
            begun |= 1 << number
        return replace(self, begun=begun)


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogChange:
    """What one line changes, in the order of the fields."""

    put: tuple[TopicEntry, ...] = ()
    delete: tuple[str, ...] = ()
    begin: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    doom: Mapping[UUID, str] = field(default_factory=dict)
    forget: tuple[UUID, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalog:
    """All topics, and the names by id of deleted ones that may still have directories."""

    generation: int
    topics: Mapping[str, TopicEntry] = field(default_factory=dict)
    doomed: Mapping[UUID, str] = field(default_factory=dict)

    def after(self, change: CatalogChange) -> "Catalog":
        """The next catalog. What `change` says of unknown topics has no effect."""
        topics, doomed = dict(self.topics), dict(self.doomed)
        for entry in change.put:
            old = topics.get(entry.name)
            begun = old.begun if old is not None and old.topic_id == entry.topic_id else 0
            # A partition that went away begins again if it comes back.
            begun = (entry.begun | begun) & ~entry.absent
            topics[entry.name] = replace(entry, begun=begun)
            doomed.pop(entry.topic_id, None)
        for name in change.delete:
            gone = topics.pop(name, None)
            if gone is not None:
                doomed[gone.topic_id] = name
        for name, numbers in change.begin.items():
            if name in topics:
                topics[name] = topics[name].with_begun(numbers)
        doomed.update(change.doom)
        for topic_id in change.forget:
            doomed.pop(topic_id, None)
        return Catalog(generation=self.generation + 1, topics=topics, doomed=doomed)


# --- as text ---------------------------------------------------------------------------------


def render_state(catalog: Catalog) -> bytes:
    return _render(
        {
            "topics": {entry.name: _rendered(entry) for entry in catalog.topics.values()},
            "doomed": {encode_topic_id(i): name for i, name in catalog.doomed.items()},
        }
    )


def render_change(change: CatalogChange) -> bytes:
    parts: dict[str, object] = {
        "put": {entry.name: _rendered(entry) for entry in change.put},
        "delete": change.delete,
        "begin": change.begin,
        "doom": {encode_topic_id(i): name for i, name in change.doom.items()},
        "forget": [encode_topic_id(i) for i in change.forget],
    }
    return _render({name: part for name, part in parts.items() if part})


def parse_state(generation: int, body: bytes) -> Catalog:
    """Raises `FormatError` unless `body` is a whole catalog."""
    try:
        value = json.loads(body)
        return Catalog(
            generation=generation,
            topics={name: _parse_entry(name, item) for name, item in value["topics"].items()},
            doomed=_parse_names(value["doomed"]),
        )
    except _MALFORMED as error:
        raise FormatError(f"the topic catalog is malformed: {error}") from error


def parse_change(body: bytes) -> CatalogChange:
    """Raises `FormatError` unless `body` is a change."""
    try:
        value = json.loads(body)
        return CatalogChange(
            put=tuple(_parse_entry(name, item) for name, item in value.get("put", {}).items()),
            delete=tuple(str(name) for name in value.get("delete", ())),
            begin={
                str(name): tuple(_checked_number(number) for number in numbers)
                for name, numbers in value.get("begin", {}).items()
            },
            doom=_parse_names(value.get("doom", {})),
            forget=tuple(decode_topic_id(str(text)) for text in value.get("forget", ())),
        )
    except _MALFORMED as error:
        raise FormatError(f"a change of the topic catalog is malformed: {error}") from error


def _render(value: Mapping[str, object]) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def _rendered(entry: TopicEntry) -> dict[str, object]:
    rendered: dict[str, object] = {
        "id": encode_topic_id(entry.topic_id),
        "partitions": entry.partitions,
        "begun": list(_ranges(entry.begun)),
        "config": dict(entry.config),
    }
    if entry.is_adopted:
        rendered["adopted"] = True
    if entry.absent:
        rendered["absent"] = list(_ranges(entry.absent))
    return rendered


def _ranges(bits: int) -> Iterator[tuple[int, int]]:
    """The half-open ranges of numbers whose bits are set."""
    number = 0
    while bits:
        zeros = (bits & -bits).bit_length() - 1
        bits >>= zeros
        ones = (~bits & (bits + 1)).bit_length() - 1
        bits >>= ones
        number += zeros
        yield number, number + ones
        number += ones


def _parse_entry(name: str, value: Mapping[str, object]) -> TopicEntry:
    check_topic_name(name)
    partitions, begun, config = value["partitions"], value["begun"], value["config"]
    if not isinstance(partitions, int) or not 1 <= partitions <= INT32_MAX:
        raise ValueError(f"topic {name!r} has {partitions!r} partitions")
    if not isinstance(begun, list) or not isinstance(config, dict):
        raise TypeError(f"topic {name!r} has no configuration")
    absent = value.get("absent", [])
    if not isinstance(absent, list):
        raise TypeError(f"topic {name!r} has no list of absent partitions")
    return TopicEntry(
        name=name,
        topic_id=decode_topic_id(str(value["id"])),
        partitions=partitions,
        config={str(key): str(text) for key, text in config.items()},
        begun=_parse_ranges(name, begun, partitions),
        is_adopted=value.get("adopted") is True,
        absent=_parse_ranges(name, absent, partitions),
    )


def _parse_ranges(name: str, ranges: Iterable[Sequence[int]], partitions: int) -> int:
    """The bits of the numbers in half-open ranges."""
    bits = 0
    for first, stop in ranges:
        if not 0 <= first < stop <= partitions:
            raise ValueError(f"topic {name!r} has no partitions {first!r} to {stop!r}")
        bits |= (1 << stop) - (1 << first)
    return bits


def _parse_names(value: Mapping[str, object]) -> dict[UUID, str]:
    return {decode_topic_id(text): str(name) for text, name in value.items()}


def _checked_number(number: object) -> int:
    if not isinstance(number, int) or not 0 <= number < INT32_MAX:
        raise ValueError(f"there is no partition {number!r}")
    return number
