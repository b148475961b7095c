"""The contents of a data directory: partitions, deleted partitions, and foreign entries."""

import logging
import os
from collections.abc import Callable
from typing import Final
from uuid import UUID

from cordwood.errors import FormatError
from cordwood.format.file_names import (
    PARTITION_METADATA,
    SECURITY_FOLDER,
    DirectoryState,
    FileKind,
    parse_directory_name,
    segment_file_name,
)
from cordwood.format.small_files.partition_metadata import parse_partition_metadata
from cordwood.quantities import KIB, Offset
from cordwood.storage.files import FileSystem, read_whole
from cordwood.value_class import dataclass

logger = logging.getLogger(__name__)

# Directories of Kafka's own: the controller's log, and a cache of remote indexes. And the files
# of `serve --secure`.
_NOT_TOPICS: Final = frozenset({"__cluster_metadata"})
_NOT_PARTITIONS: Final = frozenset({"remote-log-index-cache", "lost+found", SECURITY_FOLDER})


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundPartition:
    """A partition's directory. `topic_id` is None if its file is missing or damaged.

    `error`: the disk did not let us read that file, so nothing is known of the partition.
    """

    topic: str
    number: int
    topic_id: UUID | None
    error: OSError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundPartitions:
    """The partitions of a data directory, and the directory names of deleted ones."""

    live: list[FoundPartition]
    deleted: list[str]


def find_partitions(
    fs: FileSystem, directory: str, *, wants: Callable[[str, int], bool] | None = None
) -> FoundPartitions:
    """List the partitions of a data directory; other entries are ignored.

    `wants` selects live partitions by topic and number; None: all.
    """
    live: list[FoundPartition] = []
    deleted: list[str] = []
    for entry in fs.list(directory):
        if not entry.is_directory or entry.name in _NOT_PARTITIONS:
            continue
        try:
            parsed = parse_directory_name(entry.name)
        except FormatError as error:
            logger.warning("ignoring %s: %s", os.path.join(directory, entry.name), error)
            continue
        if parsed.topic in _NOT_TOPICS:
            continue
        if parsed.state is DirectoryState.DELETE:
            deleted.append(entry.name)
        elif parsed.state is DirectoryState.LIVE:
            if wants is not None and not wants(parsed.topic, parsed.partition):
                continue
            live.append(_found(fs, directory, entry.name, parsed.topic, parsed.partition))
    return FoundPartitions(live=live, deleted=deleted)


def _found(fs: FileSystem, directory: str, name: str, topic: str, number: int) -> FoundPartition:
    try:
        topic_id = read_topic_id(fs, os.path.join(directory, name))
    except OSError as error:  # one bad sector does not take the other partitions with it
        return FoundPartition(topic=topic, number=number, topic_id=None, error=error)
    return FoundPartition(topic=topic, number=number, topic_id=topic_id)


def is_pristine(fs: FileSystem, directory: str) -> bool:
    """Whether a partition's directory is as it was made: nothing was ever opened in it."""
    first_log = segment_file_name(Offset(0), FileKind.LOG)
    return all(
        entry.name == PARTITION_METADATA or (entry.name == first_log and entry.size == 0)
        for entry in fs.list(directory)
    )


def read_topic_id(fs: FileSystem, directory: str) -> UUID | None:
    """The topic id in a partition's directory; None if it is missing or damaged.

    Raises `OSError` if it cannot be read.
    """
    try:
        content = read_whole(fs, os.path.join(directory, PARTITION_METADATA), limit=KIB)
        return parse_partition_metadata(content.decode("utf-8"))
    except FileNotFoundError:
        return None
    except (FormatError, UnicodeDecodeError) as error:
        logger.warning("%s in %s is damaged: %s", PARTITION_METADATA, directory, error)
        return None
