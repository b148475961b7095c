"""The topics of a store: names, ids, partition counts, configurations.

Every data directory holds two copies, `cordwood-topics` and `cordwood-topics.copy`, each a
checked document (see `format/small_files/checked_document.py`) with this body:

    {"orders": {"id": ..., "partitions": 3, "state": "live", "config": {"retention.ms": ...}}}

The newest sound copy counts. Indexes and checkpoints can be derived from other files; the
catalog cannot, and a topic that fell back to the default retention would lose data. So if no
copy can be read, the store refuses to open.

`state` carries a change across a crash. A topic that is `creating` gets the directories it
still lacks; a topic that is `deleting` loses the directories it still has.
"""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final
from uuid import UUID

from cordwood.errors import FormatError, StorageError
from cordwood.format.file_names import check_topic_name
from cordwood.format.small_files.checked_document import (
    CheckedDocument,
    decode_document,
    document_head_size,
    encode_document,
)
from cordwood.format.small_files.partition_metadata import decode_topic_id, encode_topic_id
from cordwood.quantities import KIB, MIB
from cordwood.storage.disk_errors import FAILING_DISK_ERRNOS, FULL_DISK_ERRNOS
from cordwood.storage.files import FileSystem, read_whole, replace_file, write_all

CATALOG_FILE: Final = "cordwood-topics"
_COPY_FILE: Final = "cordwood-topics.copy"
_CATALOG_BYTES_MAX: Final = 256 * MIB
_PADDED_TO_BYTES: Final = 4 * KIB

CREATING: Final = "creating"
LIVE: Final = "live"
DELETING: Final = "deleting"
_STATES: Final = (CREATING, LIVE, DELETING)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicEntry:
    """One topic. `config` holds only the keys that were set for the topic, as text."""

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
    # Padded with blanks to whole blocks, so that the next catalog fits in place: `_overwrite`.
    size = document_head_size(CATALOG_FILE, catalog.generation) + len(body)
    body += b" " * (-size % _PADDED_TO_BYTES)
    return encode_document(CATALOG_FILE, CheckedDocument(catalog.generation, body))


def parse_catalog(content: bytes) -> Catalog:
    """Raises `FormatError` for anything but a whole, unchanged catalog."""
    document = decode_document(CATALOG_FILE, content)
    try:
        entries = json.loads(document.body).items()
        topics = {name: _parse_entry(name, value) for name, value in entries}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise FormatError(f"the topic catalog is malformed: {error}") from error
    return Catalog(generation=document.generation, topics=topics)


def _parse_entry(name: str, value: Mapping[str, object]) -> TopicEntry:
    check_topic_name(name)
    partitions, state, config = value["partitions"], value["state"], value["config"]
    if not isinstance(partitions, int) or partitions < 1 or state not in _STATES:
        raise ValueError(f"topic {name!r} has {partitions!r} partitions and state {state!r}")
    if not isinstance(config, dict):
        raise TypeError(f"topic {name!r} has no configuration")
    return TopicEntry(
        name=name,
        topic_id=decode_topic_id(str(value["id"])),
        partitions=partitions,
        config={str(key): str(text) for key, text in config.items()},
        state=str(state),
    )


def write_catalog(fs: FileSystem, directories: Sequence[str], catalog: Catalog) -> None:
    """Durable on return, in every directory whose disk works, at least in one.

    A crash in between leaves the old or the new.
    """
    content = render_catalog(catalog)
    failures: list[OSError] = []
    for directory in directories:
        try:
            _write_copies(fs, directory, content)
        except OSError as error:
            if error.errno not in FAILING_DISK_ERRNOS:
                raise
            failures.append(error)
    if failures and len(failures) == len(directories):
        raise failures[0]


def _write_copies(fs: FileSystem, directory: str, content: bytes) -> None:
    for name in (CATALOG_FILE, _COPY_FILE):
        path = os.path.join(directory, name)
        try:
            replace_file(fs, path, content)
        except OSError as error:
            if error.errno not in FULL_DISK_ERRNOS:
                raise
            _overwrite(fs, path, content, error)


def _overwrite(fs: FileSystem, path: str, content: bytes, full: OSError) -> None:
    """Write into the blocks that the file already has: a full disk must allow deleting a topic.

    This is not atomic, but the other copy is not touched until this one is durable.
    """
    try:
        file = fs.open_write(path)
    except FileNotFoundError:
        raise full from None
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
    """Reads the catalog repeatedly. Content that did not change is not parsed again."""

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
                "no copy of the topic catalog can be read. Opening without it could delete data "
                "under the wrong retention. Restore one of these files from a backup, or open "
                f"with read_only=True to save the records ({'; '.join(faults)})"
            )
        return None


class CatalogKeeper:
    """The catalog of a store that is open for writing: the same in memory and on disk.

    Not thread-safe: callers hold the lock of the topics.
    """

    def __init__(self, fs: FileSystem, directories: Sequence[str]) -> None:
        """Reads the newest sound copy."""
        self._fs = fs
        self._directories = directories
        self._catalog = read_catalog(fs, directories) or Catalog(generation=0, topics={})

    @property
    def catalog(self) -> Catalog:
        return self._catalog

    @property
    def topics(self) -> Mapping[str, TopicEntry]:
        return self._catalog.topics

    def put(self, entry: TopicEntry) -> None:
        """Add or replace a topic. Durable on return."""
        self.save(self._catalog.put(entry))

    def remove(self, name: str) -> None:
        """Durable on return."""
        self.save(self._catalog.without(name))

    def save(self, catalog: Catalog) -> None:
        """Replace the whole catalog. Durable on return; if it fails, the old one stays."""
        try:
            write_catalog(self._fs, self._directories, catalog)
        except BaseException:
            # Some copies may be written: the next catalog must be newer than they are.
            self._catalog = replace(self._catalog, generation=catalog.generation)
            raise
        self._catalog = catalog
