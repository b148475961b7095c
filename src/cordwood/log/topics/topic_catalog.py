"""The topics of a store: names, ids, partition counts, configurations.

Kept in every data directory, twice, as `cordwood-topics` and `cordwood-topics.copy`:

    cordwood-topics 1 <generation> <crc32c of the rest, 8 hex digits>
    {"orders": {"id": ..., "partitions": 3, "state": "live", "config": {"retention.ms": ...}}}

The newest sound copy counts. Unlike indexes and checkpoints this cannot be derived from
anything else, and a topic that fell back to default retention would lose data; so when no copy
can be read the store refuses to open and says so.

`state` carries changes across a crash: a topic `creating` gets the directories it still lacks,
one `deleting` loses those it still has.
"""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final
from uuid import UUID

import crc32c

from cordwood.errors import FormatError, StorageError
from cordwood.format.file_names import check_topic_name
from cordwood.format.partition_metadata import decode_topic_id, encode_topic_id
from cordwood.log.partition.log_parts import FULL_DISK_ERRNOS
from cordwood.log.rules.topic_config import TopicConfig
from cordwood.quantities import KIB, MIB
from cordwood.storage.files import FileSystem, read_whole, replace_file, write_all

CATALOG_FILE: Final = "cordwood-topics"
_COPY_FILE: Final = "cordwood-topics.copy"
_MAGIC: Final = "cordwood-topics"
_VERSION: Final = "1"
_CATALOG_BYTES_MAX: Final = 256 * MIB
_PADDED_TO_BYTES: Final = 4 * KIB

CREATING: Final = "creating"
LIVE: Final = "live"
DELETING: Final = "deleting"
_STATES: Final = (CREATING, LIVE, DELETING)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicEntry:
    """One topic. `config` holds only what was set for it, as text."""

    name: str
    topic_id: UUID
    partitions: int
    config: Mapping[str, str]
    state: str = LIVE

    def with_state(self, state: str) -> "TopicEntry":
        return replace(self, state=state)


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalog:
    """All topics. Replaced as a whole; `generation` grows with every change."""

    generation: int
    topics: Mapping[str, TopicEntry]

    def put(self, entry: TopicEntry) -> "Catalog":
        return Catalog(generation=self.generation + 1, topics={**self.topics, entry.name: entry})

    def without(self, name: str) -> "Catalog":
        return Catalog(
            generation=self.generation + 1,
            topics={other: entry for other, entry in self.topics.items() if other != name},
        )


def render_catalog(catalog: Catalog) -> bytes:
    body = json.dumps(
        {
            entry.name: {
                "id": encode_topic_id(entry.topic_id),
                "partitions": entry.partitions,
                "state": entry.state,
                "config": dict(entry.config),
            }
            for entry in catalog.topics.values()
        },
        indent=1,
        sort_keys=True,
    ).encode()
    # Blanks up to a whole number of blocks: then the next one fits in its place, see `_overwrite`.
    head_size = len(f"{_MAGIC} {_VERSION} {catalog.generation} 00000000\n")
    body += b" " * (-(head_size + len(body)) % _PADDED_TO_BYTES)
    checked = f"{catalog.generation}\n".encode() + body
    head = f"{_MAGIC} {_VERSION} {catalog.generation} {crc32c.crc32c(checked):08x}\n"
    return head.encode() + body


def parse_catalog(content: bytes) -> Catalog:
    """Raises `FormatError` for anything but a whole, unchanged catalog."""
    head, _, body = content.partition(b"\n")
    fields = head.split(b" ")
    if len(fields) != 4 or fields[0] != _MAGIC.encode() or not fields[2].isdigit():
        raise FormatError("not a topic catalog")
    if fields[1] != _VERSION.encode():
        raise FormatError(f"topic catalog of version {fields[1]!r}")
    checked = fields[2] + b"\n" + body
    if f"{crc32c.crc32c(checked):08x}".encode() != fields[3]:
        raise FormatError("the topic catalog's checksum does not match")
    try:
        topics = {name: _parse_entry(name, value) for name, value in json.loads(body).items()}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise FormatError(f"the topic catalog is malformed: {error}") from error
    return Catalog(generation=int(fields[2]), topics=topics)


def _parse_entry(name: str, value: Mapping[str, object]) -> TopicEntry:
    check_topic_name(name)
    partitions, state, config = value["partitions"], value["state"], value["config"]
    if not isinstance(partitions, int) or partitions < 1 or state not in _STATES:
        raise ValueError(f"topic {name!r} has {partitions!r} partitions and state {state!r}")
    if not isinstance(config, dict):
        raise TypeError(f"topic {name!r} has no configuration")
    TopicConfig.parse(config)
    return TopicEntry(
        name=name,
        topic_id=decode_topic_id(str(value["id"])),
        partitions=partitions,
        config={str(key): str(text) for key, text in config.items()},
        state=str(state),
    )


def write_catalog(fs: FileSystem, directories: Sequence[str], catalog: Catalog) -> None:
    """Durable on return, in every directory. A crash in between leaves the old or the new."""
    content = render_catalog(catalog)
    for directory in directories:
        for name in (CATALOG_FILE, _COPY_FILE):
            path = os.path.join(directory, name)
            try:
                replace_file(fs, path, content)
            except OSError as error:
                if error.errno not in FULL_DISK_ERRNOS:
                    raise
                _overwrite(fs, path, content, error)


def _overwrite(fs: FileSystem, path: str, content: bytes, full: OSError) -> None:
    """On a full disk a topic must still be deletable: write into the blocks that are there.

    Not atomic; but the other copy is not touched until this one is durable.
    """
    file = fs.open_write(path)
    try:
        if file.size() < len(content):
            raise full
        write_all(file, 0, content)
        file.truncate_to(len(content))
        file.sync()
    finally:
        file.close()


def read_catalog(fs: FileSystem, directories: Sequence[str]) -> Catalog | None:
    """The newest sound copy; None when there is no catalog at all.

    Raises `StorageError` when there are copies and none can be read.
    """
    return CatalogReader(fs, directories).read()


class CatalogReader:
    """Reads the catalog again and again: what has not changed is not parsed again."""

    def __init__(self, fs: FileSystem, directories: Sequence[str]) -> None:
        self._fs = fs
        self._paths = [
            os.path.join(directory, name)
            for directory in directories
            for name in (CATALOG_FILE, _COPY_FILE)
        ]
        self._parsed: dict[bytes, Catalog] = {}

    def read(self) -> Catalog | None:
        """See `read_catalog`."""
        sound: dict[bytes, Catalog] = {}
        faults: list[str] = []
        for path in self._paths:
            try:
                content = read_whole(self._fs, path, limit=_CATALOG_BYTES_MAX)
                if content not in sound:
                    sound[content] = self._parsed.get(content) or parse_catalog(content)
            except FileNotFoundError:
                continue
            except FormatError as error:
                faults.append(f"{path}: {error}")
        self._parsed = sound
        if sound:
            return max(sound.values(), key=lambda catalog: catalog.generation)
        if faults:
            raise StorageError(
                "no copy of the topic catalog can be read, and opening without it could delete "
                "data by the wrong retention: restore one of these files from a backup, or open "
                f"with read_only=True to save the records ({'; '.join(faults)})"
            )
        return None
